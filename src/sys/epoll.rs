//! Waiting for very many descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

/// What is waited for. Errors and hang-ups are told in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interest {
    /// Something can be read.
    pub read: bool,
    /// Something can be written.
    pub write: bool,
}

impl Interest {
    /// To read alone.
    pub const READ: Self = Self { read: true, write: false };

    fn flags(self) -> EpollFlags {
        let mut flags = EpollFlags::empty();
        flags.set(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, self.read);
        flags.set(EpollFlags::EPOLLOUT, self.write);
        flags
    }
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The number under which it was added.
    pub token: u32,
    /// It can be read, or there is an error or an end to be read.
    pub read: bool,
    /// It can be written.
    pub write: bool,
}

/// Level-triggered: what is not dealt with is told again.
#[derive(Debug)]
pub struct Epoll {
    epoll: nix::sys::epoll::Epoll,
    events: Vec<EpollEvent>,
}

impl Epoll {
    /// One that tells of at most `most` descriptors at once. Closed on exec.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn new(most: usize) -> io::Result<Self> {
        let epoll = nix::sys::epoll::Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Self { epoll, events: vec![EpollEvent::empty(); most.max(1)] })
    }

    /// Waits for this one too. It is forgotten when it is closed.
    ///
    /// # Errors
    /// ENOMEM, ENOSPC (`/proc/sys/fs/epoll/max_user_watches`), EPERM for a file.
    pub fn add(&self, fd: impl AsFd, token: u32, interest: Interest) -> io::Result<()> {
        Ok(self.epoll.add(fd, EpollEvent::new(interest.flags(), u64::from(token)))?)
    }

    /// Waits for something else of one that was added.
    ///
    /// # Errors
    /// ENOENT for one that was not.
    pub fn change(&self, fd: BorrowedFd<'_>, token: u32, interest: Interest) -> io::Result<()> {
        Ok(self.epoll.modify(fd, &mut EpollEvent::new(interest.flags(), u64::from(token)))?)
    }

    /// What happened, as soon as anything did or the time is over (`None`: no limit); nothing after a signal.
    ///
    /// # Errors
    /// None that is expected.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<impl Iterator<Item = Ready>> {
        let timeout = match timeout {
            None => EpollTimeout::NONE,
            // Up, so that nobody wakes just before it is time.
            Some(timeout) => {
                let ms = timeout.as_millis() + u128::from(!timeout.is_zero());
                EpollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX))
            }
        };
        let count = match self.epoll.wait(&mut self.events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let bad = EpollFlags::EPOLLERR | EpollFlags::EPOLLHUP;
        Ok(self.events[..count].iter().map(move |event| Ready {
            token: u32::try_from(event.data()).unwrap_or(u32::MAX),
            read: event.events().intersects(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | bad),
            write: event.events().intersects(EpollFlags::EPOLLOUT | bad),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn what_is_not_dealt_with_is_told_again() {
        let mut epoll = Epoll::new(8).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        epoll.add(&reader, 7, Interest::READ).unwrap();
        assert_eq!(epoll.wait(Some(Duration::ZERO)).unwrap().count(), 0);
        writer.write_all(b"x").unwrap();
        for _ in 0..2 {
            let told: Vec<Ready> = epoll.wait(None).unwrap().collect();
            assert_eq!((told.len(), told[0].token, told[0].read, told[0].write), (1, 7, true, false));
        }
        epoll.change(reader.as_fd(), 9, Interest { read: false, write: false }).unwrap();
        assert_eq!(epoll.wait(Some(Duration::ZERO)).unwrap().count(), 0);
        drop(writer);
        let told: Vec<Ready> = epoll.wait(None).unwrap().collect();
        assert!(told[0].read && told[0].token == 9, "an end is told in any case");
    }
}
