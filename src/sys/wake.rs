//! Waking a thread that sits in `poll`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// An eventfd, shared by the one who sleeps and those who wake. Closed on exec.
#[derive(Clone, Debug)]
pub struct Wake(Arc<EventFd>);

impl Wake {
    /// A new one, asleep.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self(Arc::new(EventFd::from_flags(flags)?)))
    }

    /// Makes the descriptor readable until [`clear`](Self::clear).
    pub fn wake(&self) {
        // The only refusal is a full counter, and then it is readable already.
        let _ = self.0.write(1);
    }

    /// Forgets the calls so far. What they were for must be looked at *after* this.
    pub fn clear(&self) {
        let _ = self.0.read();
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
