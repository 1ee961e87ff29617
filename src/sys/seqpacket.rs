//! A local socket that keeps the borders of messages (SOCK_SEQPACKET), never blocking.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};

/// The longest message that is received; longer ones are cut by the kernel and refused.
pub const MAX_PACKET: usize = 64 * 1024;

/// One end.
#[derive(Debug)]
pub struct Packets(OwnedFd);

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
        Self(fd)
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
        self.0
    }

    /// Sends one message, at once or not at all. An empty one could not be told from the end and is not sent.
    #[must_use]
    pub fn send(&self, bytes: &[u8]) -> Sent {
        if bytes.is_empty() || bytes.len() > MAX_PACKET {
            return Sent::TooLong;
        }
        loop {
            match send(self.0.as_raw_fd(), bytes, MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL) {
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
    pub fn receive(&self) -> Received {
        // First its length: most calls find nothing, and need no room.
        let peek = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
        match self.receive_into(&mut [], peek) {
            Ok(0) => Received::Closed,
            Ok(length) if length > MAX_PACKET => Received::Closed,
            Ok(length) => {
                let mut bytes = vec![0; length];
                match self.receive_into(&mut bytes, MsgFlags::MSG_DONTWAIT) {
                    Ok(read) if read == length => Received::Packet(bytes),
                    Err(Errno::EAGAIN) => Received::Empty,
                    Ok(_) | Err(_) => Received::Closed,
                }
            }
            Err(Errno::EAGAIN) => Received::Empty,
            Err(_) => Received::Closed,
        }
    }

    fn receive_into(&self, bytes: &mut [u8], flags: MsgFlags) -> nix::Result<usize> {
        loop {
            match recv(self.0.as_raw_fd(), bytes, flags) {
                Err(Errno::EINTR) => {}
                other => return other,
            }
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_borders_and_the_end_is_seen() {
        let (a, b) = Packets::pair().unwrap();
        assert_eq!(b.receive(), Received::Empty);
        assert_eq!((a.send(b"one"), a.send(&[7; MAX_PACKET])), (Sent::Done, Sent::Done));
        assert_eq!((a.send(b""), a.send(&[0; MAX_PACKET + 1])), (Sent::TooLong, Sent::TooLong));
        assert_eq!(b.receive(), Received::Packet(b"one".to_vec()));
        assert_eq!(b.receive(), Received::Packet(vec![7; MAX_PACKET]));
        assert_eq!(b.receive(), Received::Empty);
        while a.send(b"x") == Sent::Done {}
        assert_eq!(a.send(b"x"), Sent::Full);
        drop(b);
        assert_eq!(a.send(b"x"), Sent::Closed);
        assert_eq!(a.receive(), Received::Closed);
    }
}
