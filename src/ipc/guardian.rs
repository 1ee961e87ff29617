//! The socket between guardian and agent: one postcard message a packet, both ways, never blocking.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::{Serialize, de::DeserializeOwned};

use crate::sys::seqpacket::{MAX_PACKET, Packets, Received, Sent};

/// Why bytes are no message, or a message no packet.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// Longer than [`MAX_PACKET`].
    #[error("a packet of {0} bytes is over the limit of {MAX_PACKET}")]
    TooLong(usize),
    /// Bytes are left behind the message: nothing is half understood.
    #[error("a packet has {0} bytes too many")]
    Trailing(usize),
    /// The bytes are no message of this type.
    #[error("a packet is not readable")]
    Codec(#[from] postcard::Error),
}

/// The bytes of one packet.
///
/// # Errors
/// The message is longer than a packet may be.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, PacketError> {
    let bytes = postcard::to_stdvec(message)?;
    if bytes.len() > MAX_PACKET {
        return Err(PacketError::TooLong(bytes.len()));
    }
    Ok(bytes)
}

/// The message in one packet.
///
/// # Errors
/// The bytes are not exactly one message of this type.
pub fn decode<T: DeserializeOwned>(packet: &[u8]) -> Result<T, PacketError> {
    match postcard::take_from_bytes(packet)? {
        (message, []) => Ok(message),
        (_, rest) => Err(PacketError::Trailing(rest.len())),
    }
}

/// What a receive gave.
#[derive(Debug)]
pub enum Heard<T> {
    /// One message.
    Message(T),
    /// A packet that is none: another version, or a bug. The next one may be good.
    Unreadable(PacketError),
    /// Nothing is there now.
    Nothing,
    /// The other end is gone.
    Closed,
}

/// One end of the socket.
#[derive(Debug)]
pub struct Socket(Packets);

impl Socket {
    /// Two ends, closed on exec.
    ///
    /// # Errors
    /// EMFILE, ENFILE, ENOMEM.
    pub fn pair() -> std::io::Result<(Self, Self)> {
        let (a, b) = Packets::pair()?;
        Ok((Self(a), Self(b)))
    }

    /// Takes an end that was inherited; the caller sees to it that it is closed on exec.
    #[must_use]
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(Packets::new(fd))
    }

    /// The descriptor, to hand it on.
    #[must_use]
    pub fn into_fd(self) -> OwnedFd {
        self.0.into_fd()
    }

    /// Sends one message, at once and whole or not at all.
    ///
    /// # Errors
    /// The message is longer than a packet may be.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<Sent, PacketError> {
        Ok(self.send_packet(&encode(message)?))
    }

    /// As [`send`](Self::send), of encoded bytes.
    #[must_use]
    pub fn send_packet(&self, packet: &[u8]) -> Sent {
        self.0.send(packet)
    }

    /// Receives one message if one is there.
    #[must_use]
    pub fn receive<T: DeserializeOwned>(&mut self) -> Heard<T> {
        match self.0.receive() {
            Received::Packet(packet) => decode(&packet).map_or_else(Heard::Unreadable, Heard::Message),
            Received::Empty => Heard::Nothing,
            Received::Closed => Heard::Closed,
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
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
            clean_of: vec![Incarnation(2)],
            survivors: vec![7],
            restarts: 1,
        };
        let signal = SignalInfo { no: 15, code: -6, pid: 9, uid: 1000 };
        for message in
            [ToAgent::Start(start), ToAgent::Signal(signal), ToAgent::RanksKilled { grant: BootTime(5) }]
        {
            assert_eq!(decode::<ToAgent>(&encode(&message).unwrap()).unwrap(), message);
        }
        for message in [ToGuardian::Gone { code: 0 }, ToGuardian::Gone { code: 93 }] {
            assert_eq!(decode::<ToGuardian>(&encode(&message).unwrap()).unwrap(), message);
        }
    }

    #[test]
    fn an_end_is_heard_after_the_last_word() {
        let (mut guardian, agent) = Socket::pair().unwrap();
        assert!(matches!(guardian.receive::<ToGuardian>(), Heard::Nothing));
        assert_eq!(agent.send(&ToGuardian::Gone { code: 3 }).unwrap(), Sent::Done);
        assert_eq!(agent.send_packet(&[250]), Sent::Done);
        drop(agent);
        assert!(matches!(guardian.receive(), Heard::Message(ToGuardian::Gone { code: 3 })));
        assert!(matches!(guardian.receive::<ToGuardian>(), Heard::Unreadable(_)));
        assert!(matches!(guardian.receive::<ToGuardian>(), Heard::Closed));
        assert_eq!(guardian.send(&ToAgent::RanksKilled { grant: BootTime(1) }).unwrap(), Sent::Closed);
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
