//! The socket between guardian and agent: one postcard message a packet, both ways, never blocking.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use serde::{Serialize, de::DeserializeOwned};

/// The largest packet, in bytes.
pub const MAX_PACKET: usize = 32 << 10;

/// Why a packet was not sent or not understood.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// The other side closed, or is dead.
    #[error("the other side closed the socket")]
    Closed,
    /// Nothing there, or no room: when the descriptor is ready again.
    #[error("not now")]
    NotNow,
    /// Longer than [`MAX_PACKET`].
    #[error("a packet of {0} bytes is over the limit of {MAX_PACKET}")]
    TooLong(usize),
    /// The bytes are no message of this type.
    #[error("a packet is not readable")]
    Codec(#[from] postcard::Error),
    /// The socket failed.
    #[error("the socket between guardian and agent failed")]
    Io(#[source] io::Error),
}

/// The bytes of one packet.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, PacketError> {
    let bytes = postcard::to_stdvec(message)?;
    if bytes.len() > MAX_PACKET {
        return Err(PacketError::TooLong(bytes.len()));
    }
    Ok(bytes)
}

/// The message in one packet. Bytes beyond it are an error: nothing is half understood.
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Result<T, PacketError> {
    match postcard::take_from_bytes(packet)? {
        (message, []) => Ok(message),
        (_, rest) => Err(PacketError::TooLong(rest.len())),
    }
}

/// One end of the `SOCK_SEQPACKET` pair.
#[derive(Debug)]
pub struct Socket {
    // A datagram socket's `send` and `recv` are what a seqpacket socket needs; only its 0 bytes mean "closed".
    inner: UnixDatagram,
}

impl Socket {
    /// Takes over one end, and makes it non-blocking.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, PacketError> {
        let inner = UnixDatagram::from(fd);
        inner.set_nonblocking(true).map_err(PacketError::Io)?;
        Ok(Self { inner })
    }

    /// Sends one message whole, or not at all.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<(), PacketError> {
        self.send_bytes(&encode(message)?)
    }

    /// As [`send`](Self::send), of encoded bytes.
    pub fn send_bytes(&self, packet: &[u8]) -> Result<(), PacketError> {
        loop {
            match self.inner.send(packet) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(refused(error)),
            }
        }
    }

    /// Receives one message.
    pub fn recv<T: DeserializeOwned>(&self) -> Result<T, PacketError> {
        // One byte more than allowed: a packet that fills it was cut.
        let mut buffer = vec![0_u8; MAX_PACKET + 1];
        loop {
            match self.inner.recv(&mut buffer) {
                Ok(0) => return Err(PacketError::Closed),
                Ok(n) if n > MAX_PACKET => return Err(PacketError::TooLong(n)),
                Ok(n) => return decode(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(refused(error)),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

fn refused(error: io::Error) -> PacketError {
    match error.kind() {
        ErrorKind::WouldBlock => PacketError::NotNow,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::NotConnected => PacketError::Closed,
        _ => PacketError::Io(error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::guardian::{SignalInfo, Start, ToAgent, ToGuardian};
    use crate::domain::ids::Incarnation;
    use crate::domain::time::BootTime;

    #[test]
    fn every_message_comes_back_whole() {
        let start = Start {
            incarnation: Incarnation(3),
            clean_of: Some(Incarnation(2)),
            survivors: vec![7],
            restarts: 1,
        };
        let signal = SignalInfo { no: 15, code: -6, pid: 9, uid: 1000 };
        for message in
            [ToAgent::Start(start), ToAgent::Signal(signal), ToAgent::RanksKilled { grant: BootTime(5) }]
        {
            assert_eq!(decode::<ToAgent>(&encode(&message).unwrap()).unwrap(), message);
        }
        for message in [ToGuardian::Joining, ToGuardian::Gone { code: 93 }] {
            assert_eq!(decode::<ToGuardian>(&encode(&message).unwrap()).unwrap(), message);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(packet in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<ToAgent>(&packet);
            if let Ok(message) = decode::<ToGuardian>(&packet) {
                prop_assert_eq!(decode::<ToGuardian>(&encode(&message).unwrap()).unwrap(), message);
            }
        }
    }
}
