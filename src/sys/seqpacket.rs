//! A local socket that keeps the borders of messages (SOCK_SEQPACKET), never blocking.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

/// The longest message that is received; longer ones are cut by the kernel and refused.
pub const MAX_PACKET: usize = 64 * 1024;

/// One end.
#[derive(Debug)]
pub struct Packets {
    fd: OwnedFd,
    /// Where messages are received; made when the first one is asked for.
    buffer: Vec<u8>,
}

/// What a receive gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// One message.
    Packet(Vec<u8>),
    /// Nothing is there now.
    Empty,
    /// The other end is gone, or sent what cannot be a message.
    Closed,
}

/// What a send did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It is in the socket.
    Done,
    /// No room now: try again when the descriptor is writable.
    Full,
    /// Longer than the socket takes: it will never go.
    TooLong,
    /// The other end is gone.
    Closed,
}

impl Packets {
    /// Takes an end that was inherited.
    #[must_use]
    pub fn new(fd: OwnedFd) -> Self {
        Self { fd, buffer: Vec::new() }
    }

    /// Two ends, closed on exec.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self::new(a), Self::new(b)))
    }

    /// The descriptor, to hand it on.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Sends one message, at once or not at all. An empty one could not be told from the end and is not sent.
    #[must_use]
    pub fn send(&self, bytes: &[u8]) -> Sent {
        if bytes.is_empty() || bytes.len() > MAX_PACKET {
            return Sent::TooLong;
        }
        loop {
            match send(self.fd.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
                Ok(_) => return Sent::Done,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM) => return Sent::Full,
                Err(Errno::EMSGSIZE) => return Sent::TooLong,
                Err(_) => return Sent::Closed,
            }
        }
    }

    /// Receives one message if one is there.
    #[must_use]
    pub fn receive(&mut self) -> Received {
        self.buffer.resize(MAX_PACKET + 1, 0);
        loop {
            match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Received::Closed,
                Ok(n) if n > MAX_PACKET => return Received::Closed,
                Ok(n) => return Received::Packet(self.buffer.iter().take(n).copied().collect()),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Received::Empty,
                Err(_) => return Received::Closed,
            }
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
