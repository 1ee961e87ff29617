//! Waiting for several descriptors.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::clock;

/// One descriptor to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'a> {
    fd: BorrowedFd<'a>,
    flags: PollFlags,
}

impl<'a> Watch<'a> {
    /// Until something can be read, or the other end is gone.
    #[must_use]
    pub fn read(fd: BorrowedFd<'a>) -> Self {
        Self { fd, flags: PollFlags::POLLIN }
    }

    /// Until something can be read or written.
    #[must_use]
    pub fn read_write(fd: BorrowedFd<'a>) -> Self {
        Self { fd, flags: PollFlags::POLLIN | PollFlags::POLLOUT }
    }
}

/// Waits until one of them is ready or the time is over (`None`: no limit). Says for each whether anything
/// happened, errors and hang-ups included. A signal ends the wait early with nothing ready.
///
/// # Errors
/// ENOMEM, or EINVAL with more descriptors than RLIMIT_NOFILE.
pub fn wait(watches: &[Watch<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut fds: Vec<_> = watches.iter().map(|watch| PollFd::new(watch.fd, watch.flags)).collect();
    match ppoll(&mut fds, timeout.map(TimeSpec::from_duration), None) {
        Ok(_) => Ok(fds.iter().map(|fd| fd.revents().is_none_or(|flags| !flags.is_empty())).collect()),
        Err(Errno::EINTR) => Ok(vec![false; watches.len()]),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits for one descriptor to become readable, through signals; `false` when the time is over first.
///
/// # Errors
/// As [`wait`].
pub fn readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<bool> {
    let end = timeout.map(|timeout| clock::boot().after(timeout));
    loop {
        let left = end.map(|end| end.since(clock::boot()));
        if wait(&[Watch::read(fd)], left)?.contains(&true) {
            return Ok(true);
        }
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
    }
}
