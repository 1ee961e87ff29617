//! Descriptors that a parent of ours left under agreed numbers.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};

/// Numbers that were taken, one bit each.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// Takes over the descriptor under this number (3 to 63), once in a process's life, and keeps it from being
/// inherited further. To be called before anything else opens descriptors, so that the number can only be the
/// parent's.
///
/// # Errors
/// EBADF when nothing is there, when it was taken before, or for other numbers.
pub fn take(number: i32) -> io::Result<OwnedFd> {
    let bit = u32::try_from(number).ok().filter(|n| (3..64).contains(n)).map(|n| 1_u64 << n);
    let bit = bit.ok_or(Errno::EBADF)?;
    // SAFETY: borrowed for this one call, which fails if nothing is open under the number.
    fcntl(unsafe { BorrowedFd::borrow_raw(number) }, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    if TAKEN.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
        return Err(Errno::EBADF.into());
    }
    // SAFETY: it is open, and nobody in this process took it over before; the parent put it there for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_refused() {
        for number in [-1, 0, 2, 63, 64, i32::MAX] {
            assert_eq!(take(number).unwrap_err().raw_os_error(), Some(Errno::EBADF as i32), "{number}");
        }
    }
}
