//! A descriptor in the event loop.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Waits until a descriptor is readable: a pipe, a process descriptor, where signals arrive.
#[derive(Debug)]
pub struct Ready(AsyncFd<OwnedFd>);

impl Ready {
    /// Must be called inside the event loop.
    ///
    /// # Errors
    /// EPERM for a descriptor that is always ready, ENOSPC without a free watch.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        // SAFETY: an OwnedFd names one open file, and no other, as long as it lives.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        fd.map(Self).map_err(|error| error.into_parts().1)
    }

    /// Waits for news since the last call: look what there is after it, and before the first one. May be dropped at any
    /// time.
    ///
    /// # Errors
    /// The event loop is about to end.
    pub async fn news(&self) -> io::Result<()> {
        self.0.readable().await?.clear_ready();
        Ok(())
    }
}

impl AsFd for Ready {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}
