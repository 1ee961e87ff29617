//! Process descriptors: a handle that never names another process, readable when the process has ended.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::libc;
use rustix::process::{Pid, PidfdFlags};

use super::capability::Capabilities;

/// A descriptor of a process, `None` where there are none (old kernel, forced off, no descriptor left): the
/// caller then works by pid. Closed on exec.
#[must_use]
pub fn open(pid: i32, caps: Capabilities) -> Option<OwnedFd> {
    if caps.pidfd { open_raw(pid).ok() } else { None }
}

/// As [`open`], without asking what is allowed.
///
/// # Errors
/// ESRCH when there is no such process, ENOSYS before Linux 5.3, EMFILE without a free descriptor.
pub fn open_raw(pid: i32) -> io::Result<OwnedFd> {
    // Below 0 the library asserts, and numbers come from files: they are turned away before it sees them.
    let pid = Some(pid).filter(|pid| *pid > 0).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal to the process behind the descriptor; 0 only asks whether that is allowed.
///
/// # Errors
/// ESRCH when it was reaped, EPERM, EINVAL for a number that is no signal.
pub fn send(fd: BorrowedFd<'_>, signal: i32) -> io::Result<()> {
    // SAFETY: plain system call; no pointer but a null siginfo, which the kernel fills in itself.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            fd.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_no_process() {
        for pid in [0, -1, i32::MIN, i32::MAX] {
            assert_eq!(open_raw(pid).unwrap_err().raw_os_error(), Some(libc::ESRCH), "{pid}");
        }
    }
}
