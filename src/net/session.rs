//! A proven connection that carries messages.
//!
//! ```text
//! frame:  length u32 LE | MAC (16) | postcard      MAC = HMAC-SHA256(session key, direction ‖ counter ‖ postcard)
//! ```
//! A frame that is repeated, left out, reordered, changed or of another session fails its MAC. Every error ends
//! the session; the stream is closed when both halves are dropped.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use hmac::Mac;
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub use super::handshake::{Identity, Peer, Role};
use super::handshake::{Side, shake};
use super::secret::{NoRandomness, Secret, keyed};
use crate::domain::ids::RunId;

/// The longest message to the coordinator, in bytes.
pub const MAX_TO_COORDINATOR: usize = 1 << 20;
/// The longest message from the coordinator, in bytes.
pub const MAX_FROM_COORDINATOR: usize = 8 << 20;
/// From the connection to both proofs.
pub const HANDSHAKE: Duration = Duration::from_secs(5);

const MAC: usize = 16;
const HEADER: usize = 4 + MAC;
/// Room that a sender keeps for its next messages.
const KEEP: usize = 2 << 10;
/// Room that is made for whatever comes.
const LEAST: usize = 256;
/// Room that is made for a frame before its bytes arrive.
const CHUNK: usize = 64 << 10;

/// Why a session did not begin or went no further.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// No proof within [`HANDSHAKE`].
    #[error("no handshake within {} s", HANDSHAKE.as_secs())]
    Late,
    /// The other end closed between two frames, or instead of its proof.
    #[error("the other end closed the connection")]
    Closed,
    /// The other end closed within a frame.
    #[error("the other end closed the connection in the middle of a message")]
    Cut,
    /// The other end does not speak this protocol at all.
    #[error("a stranger answers there: not relight")]
    Stranger,
    /// The other end is another version.
    #[error("the other end is relight {version} with protocol {theirs}, this is protocol {ours}")]
    OtherProtocol {
        /// Its protocol.
        theirs: u32,
        /// Ours.
        ours: u32,
        /// Its version, as it says.
        version: String,
    },
    /// The other end belongs to another run.
    #[error("the other end belongs to run {0}")]
    OtherRun(RunId),
    /// An agent dialled an agent, or a coordinator dialled.
    #[error("the other end is not what belongs there ({0:?})")]
    UnexpectedRole(Role),
    /// The other end does not know the secret.
    #[error("the other end does not know the secret of this run")]
    BadProof,
    /// The other end, which leads this run, closed instead of its proof: ours did not convince it.
    #[error("the one that leads does not take this machine's word: their secrets differ")]
    NotBelieved,
    /// A frame was repeated, left out, changed, or is not of this session.
    #[error("a message was changed on its way or repeated")]
    BadMac,
    /// A message over the limit.
    #[error("a message of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The bytes are no message.
    #[error("a message is not readable")]
    Codec(#[from] postcard::Error),
    /// The system gives no randomness.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The connection failed.
    #[error("the connection failed")]
    Io(#[from] io::Error),
}

/// What can be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Dial again.
    Transient,
    /// The two ends do not belong together: dialling the same place again changes nothing.
    Refused,
    /// One end is faulty or somebody is in between.
    Broken,
}

impl SessionError {
    /// What can be done about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Late | Self::Closed | Self::Cut | Self::NotBelieved | Self::Io(_) | Self::Random(_) => {
                ErrorKind::Transient
            }
            Self::Stranger
            | Self::OtherProtocol { .. }
            | Self::OtherRun(_)
            | Self::UnexpectedRole(_)
            | Self::BadProof => ErrorKind::Refused,
            Self::BadMac | Self::TooLong { .. } | Self::Codec(_) => ErrorKind::Broken,
        }
    }

    /// An end of the stream where a message was expected.
    pub(super) fn reading(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::UnexpectedEof { Self::Closed } else { Self::Io(error) }
    }
}

fn limit(sender: Role) -> usize {
    if sender == Role::Coordinator { MAX_FROM_COORDINATOR } else { MAX_TO_COORDINATOR }
}

/// A proven connection: `In` is received, `Out` is sent.
pub struct Session<In, Out> {
    sender: Sender<Out>,
    receiver: Receiver<In>,
}

/// The sending half.
pub struct Sender<Out> {
    stream: Box<dyn AsyncWrite + Send + Unpin>,
    coat: Coat,
    buffer: BytesMut,
    /// The most that it held since it was made.
    room: usize,
    message: PhantomData<fn(Out)>,
}

/// The receiving half.
pub struct Receiver<In> {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    peer: Peer,
    coat: Coat,
    buffer: BytesMut,
    message: PhantomData<fn() -> In>,
}

/// One direction's MACs.
struct Coat {
    key: [u8; 32],
    from: Side,
    counter: u64,
    limit: usize,
}

impl Coat {
    /// Over a message in two pieces: as over the whole.
    fn mac(&mut self, begin: &[u8], end: &[u8]) -> hmac::Hmac<sha2::Sha256> {
        let mut mac = keyed(&self.key, &[&[self.from as u8], &self.counter.to_le_bytes()]);
        mac.update(&((begin.len() + end.len()) as u64).to_le_bytes());
        mac.update(begin);
        mac.update(end);
        self.counter += 1;
        mac
    }
}

impl<In: DeserializeOwned, Out: Serialize> Session<In, Out> {
    /// Begins a session with the coordinator over `stream`; [`SessionError::Late`] after [`HANDSHAKE`].
    pub async fn connect<S>(stream: S, identity: &Identity, secret: &Secret) -> Result<Self, SessionError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::begin(stream, Side::Initiator, identity, secret, HANDSHAKE).await
    }

    /// Begins a session as the coordinator, with whoever dialled; [`SessionError::Late`] after [`HANDSHAKE`].
    pub async fn accept<S>(stream: S, identity: &Identity, secret: &Secret) -> Result<Self, SessionError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        Self::begin(stream, Side::Acceptor, identity, secret, HANDSHAKE).await
    }

    async fn begin<S>(
        mut stream: S,
        side: Side,
        identity: &Identity,
        secret: &Secret,
        within: Duration,
    ) -> Result<Self, SessionError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let shaken = tokio::time::timeout(within, shake(&mut stream, side, identity, secret)).await;
        let agreed = shaken.map_err(|_| SessionError::Late)??;
        let other = if side == Side::Initiator { Side::Acceptor } else { Side::Initiator };
        let coat = |from, role| Coat { key: agreed.key, from, counter: 0, limit: limit(role) };
        let (outbound, inbound) = (coat(side, identity.role), coat(other, agreed.peer.identity.role));
        let (read, write) = tokio::io::split(stream);
        let sender = Sender {
            stream: Box::new(write),
            coat: outbound,
            buffer: BytesMut::new(),
            room: 0,
            message: PhantomData,
        };
        let receiver = Receiver {
            stream: Box::new(read),
            peer: agreed.peer,
            coat: inbound,
            buffer: BytesMut::new(),
            message: PhantomData,
        };
        Ok(Self { sender, receiver })
    }

    /// The other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.receiver.peer
    }

    /// The same session with the messages that go with the other end's role, which is known only now.
    #[must_use]
    pub fn carrying<A, B>(self) -> Session<A, B> {
        let Sender { stream, coat, buffer, room, .. } = self.sender;
        let sender = Sender { stream, coat, buffer, room, message: PhantomData };
        let Receiver { stream, peer, coat, buffer, .. } = self.receiver;
        Session { sender, receiver: Receiver { stream, peer, coat, buffer, message: PhantomData } }
    }

    /// Sends one message; see [`Sender::send`].
    pub async fn send(&mut self, message: &Out) -> Result<(), SessionError> {
        self.sender.send(message).await
    }

    /// Receives one message; see [`Receiver::recv`].
    pub async fn recv(&mut self) -> Result<In, SessionError> {
        self.receiver.recv().await
    }

    /// Its two halves.
    #[must_use]
    pub fn split(self) -> (Sender<Out>, Receiver<In>) {
        (self.sender, self.receiver)
    }
}

impl<Out: Serialize> Sender<Out> {
    /// Puts one message behind those that are not written yet; [`flush`](Self::flush) writes.
    /// A message over the limit is refused and leaves the session as it was.
    pub fn queue(&mut self, message: &Out) -> Result<(), SessionError> {
        self.put(&postcard::to_stdvec(message)?, &[])
    }

    /// As [`send`](Self::send), with a message whose end was encoded before: what precedes it, and that end, which is not
    /// copied. When it is dropped before it ends, the session is torn.
    pub async fn send_with(&mut self, begin: &[u8], end: &[u8]) -> Result<(), SessionError> {
        self.put(begin, end)?;
        // One call of the system for both.
        self.stream.write_all_buf(&mut (&mut self.buffer).chain(end)).await?;
        self.flush().await
    }

    /// Puts a message behind those that are not written yet, all but its end.
    fn put(&mut self, begin: &[u8], end: &[u8]) -> Result<(), SessionError> {
        let (length, limit) = (begin.len() + end.len(), self.coat.limit);
        if length > limit {
            return Err(SessionError::TooLong { length, limit });
        }
        let header = u32::try_from(length).map_err(|_| SessionError::TooLong { length, limit })?;
        let mac = self.coat.mac(begin, end).finalize().into_bytes();
        self.buffer.reserve(HEADER + begin.len());
        self.buffer.put_u32_le(header);
        self.buffer.put_slice(&mac[..MAC]);
        self.buffer.put_slice(begin);
        self.room = self.room.max(self.buffer.len());
        Ok(())
    }

    /// Bytes that were queued and are not written yet.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.buffer.len()
    }

    /// Writes what was queued. When it is dropped before it ends, the rest stays queued: nothing is torn.
    pub async fn flush(&mut self) -> Result<(), SessionError> {
        while self.buffer.has_remaining() {
            if self.stream.write_buf(&mut self.buffer).await? == 0 {
                return Err(SessionError::Closed);
            }
        }
        // Thousands of sessions do not keep the room for the longest message of each.
        if self.room > KEEP {
            (self.buffer, self.room) = (BytesMut::new(), 0);
        }
        Ok(self.stream.flush().await?)
    }

    /// Says that nothing more comes: the other end hears the end of the session. Dropping a sender does not say
    /// so while its receiver lives.
    pub async fn close(mut self) {
        // A connection that is gone is as closed as it gets.
        let _ = self.stream.shutdown().await;
    }

    /// Queues and flushes. When it is dropped before it ends, the message counts as sent and goes out with the
    /// next flush.
    pub async fn send(&mut self, message: &Out) -> Result<(), SessionError> {
        self.queue(message)?;
        self.flush().await
    }
}

impl<In: DeserializeOwned> Receiver<In> {
    /// The other end.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Waits for one message. May be dropped at any time without a loss.
    pub async fn recv(&mut self) -> Result<In, SessionError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(message);
            }
            // With room to spare a read that fills it not says that no more is there, without another one.
            self.buffer.reserve(self.wanted().clamp(LEAST, CHUNK));
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                let between = self.buffer.is_empty();
                return Err(if between { SessionError::Closed } else { SessionError::Cut });
            }
        }
    }

    /// The length in the header, if it is there.
    fn length(&self) -> Option<usize> {
        let mut header = self.buffer.get(..4)?;
        Some(usize::try_from(header.get_u32_le()).unwrap_or(usize::MAX))
    }

    /// Bytes that are missing for the next frame; at least 1.
    fn wanted(&self) -> usize {
        let whole = self.length().map_or(HEADER, |length| HEADER.saturating_add(length));
        whole.saturating_sub(self.buffer.len()).max(1)
    }

    /// The next message, if all of it is there.
    fn take(&mut self) -> Result<Option<In>, SessionError> {
        let Some(length) = self.length() else { return Ok(None) };
        let limit = self.coat.limit;
        if length > limit {
            return Err(SessionError::TooLong { length, limit });
        }
        if self.buffer.len() < HEADER + length {
            return Ok(None);
        }
        let frame = self.buffer.split_to(HEADER + length);
        let (given, payload) = frame[4..].split_at(MAC);
        self.coat.mac(payload, &[]).verify_truncated_left(given).map_err(|_| SessionError::BadMac)?;
        Ok(Some(postcard::from_bytes(payload)?))
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
