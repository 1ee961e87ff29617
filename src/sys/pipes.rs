//! Pipes and local sockets: non-blocking reads, waiting for several at once, sizes, inherited descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What somebody waits for on one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Want {
    /// Bytes to read, or the other side's close.
    pub read: bool,
    /// Room to write.
    pub write: bool,
}

/// What [`wait`] saw on one descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// A read returns at once: bytes, end of file or an error.
    pub read: bool,
    /// A write returns at once.
    pub write: bool,
}

/// Waits until one of `fds` is ready or `timeout` (rounded up to a millisecond; `None`: for ever) has
/// passed; fills `ready`, one entry per descriptor in the same order. A signal ends the wait with nothing
/// ready.
///
/// # Errors
/// The kernel's, other than EINTR.
pub fn wait(
    fds: &[(BorrowedFd<'_>, Want)],
    timeout: Option<Duration>,
    ready: &mut Vec<Ready>,
) -> io::Result<()> {
    ready.clear();
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|(fd, want)| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, want.read);
            flags.set(PollFlags::POLLOUT, want.write);
            PollFd::new(*fd, flags)
        })
        .collect();
    let timeout = timeout.map_or(PollTimeout::NONE, |t| {
        let ms = t.as_nanos().div_ceil(1_000_000);
        PollTimeout::try_from(i32::try_from(ms).unwrap_or(i32::MAX)).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut polled, timeout) {
        Ok(_) => {}
        Err(nix::errno::Errno::EINTR) => {
            ready.resize(fds.len(), Ready::default());
            return Ok(());
        }
        Err(e) => return Err(e.into()),
    }
    ready.extend(polled.iter().zip(fds).map(|(p, (_, want))| {
        let got = p.revents().unwrap_or(PollFlags::empty());
        let broken = got.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL);
        Ready {
            read: want.read && (broken || got.contains(PollFlags::POLLIN)),
            write: want.write && (broken || got.contains(PollFlags::POLLOUT)),
        }
    }));
    Ok(())
}

/// Makes reads and writes through this open file return at once. The flag belongs to the open file, so
/// every process that shares it (not merely the same pipe) sees it too.
///
/// # Errors
/// The kernel's.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(&fd, FcntlArg::F_GETFL)?);
    fcntl(&fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// How many bytes this pipe can hold.
///
/// # Errors
/// EBADF where `fd` is no pipe.
pub fn capacity(fd: impl AsFd) -> io::Result<usize> {
    Ok(usize::try_from(fcntl(&fd, FcntlArg::F_GETPIPE_SZ)?).unwrap_or(0))
}

/// Asks for room for `bytes` in this pipe and says how much it then has. The kernel refuses more than
/// `fs.pipe-max-size` (1 MiB) to ordinary users, or when the user's pipes hold too much together: callers
/// go on with the old size.
///
/// # Errors
/// EPERM, EBUSY, EBADF.
pub fn grow(fd: impl AsFd, bytes: usize) -> io::Result<usize> {
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX);
    Ok(usize::try_from(fcntl(&fd, FcntlArg::F_SETPIPE_SZ(wanted))?).unwrap_or(0))
}

/// Takes over a descriptor that this process was started with (a worker's socket on 3) and sets
/// close-on-exec. Call it once per number and process, before anything else opens files: nobody else may
/// own the number.
///
/// # Errors
/// EBADF where it is not open.
pub fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    if number < 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the kernel is asked first whether the number is open; the caller promises that no other
    // owner of it exists in this process.
    let fd = unsafe {
        let probe = BorrowedFd::borrow_raw(number);
        fcntl(probe, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        OwnedFd::from_raw_fd(number)
    };
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn wait_tells_readable_writable_and_closed() {
        let (mut r, mut w) = std::io::pipe().unwrap();
        let mut ready = Vec::new();
        let both = |r: &std::io::PipeReader, w: &std::io::PipeWriter, ready: &mut Vec<Ready>| {
            let read = Want { read: true, write: false };
            let write = Want { read: false, write: true };
            wait(&[(r.as_fd(), read), (w.as_fd(), write)], Some(Duration::from_secs(5)), ready).unwrap();
        };
        both(&r, &w, &mut ready);
        assert_eq!((ready[0].read, ready[1].write), (false, true));
        w.write_all(b"x").unwrap();
        both(&r, &w, &mut ready);
        assert!(ready[0].read);
        set_nonblocking(&r).unwrap();
        let mut one = [0];
        assert_eq!(r.read(&mut one).unwrap(), 1);
        assert_eq!(r.read(&mut one).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(w);
        wait(&[(r.as_fd(), Want { read: true, write: false })], None, &mut ready).unwrap();
        assert!(ready[0].read);
    }

    #[test]
    fn sizes_and_bad_numbers() {
        let (r, _w) = std::io::pipe().unwrap();
        assert!(capacity(&r).unwrap() >= 4096);
        assert!(grow(&r, 256 << 10).unwrap_or(0) <= 1 << 20);
        assert!(capacity(std::fs::File::open("/dev/null").unwrap()).is_err());
        assert!(adopt(-1).is_err());
        assert!(adopt(1_000_000).is_err());
    }
}
