//! Hello and proof, both ways. Nothing of a stranger is believed, and nothing is allocated on its word.
//!
//! ```text
//! hello:  magic (8) | protocol u32 LE | length u32 LE | postcard {version, run, role, node, incarnation, nonce}
//! proof:  HMAC-SHA256(secret, "proof" ‖ side ‖ role ‖ initiator's hello ‖ acceptor's hello)
//! ```
//! The initiator proves first; a peer that cannot is told nothing but the acceptor's hello. Magic, protocol
//! and the version text keep their places in every version, so that two versions can name each other.

use hmac::Mac;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::secret::{Secret, random};
use super::session::SessionError;
use crate::domain::ids::{Incarnation, NodeName, RunId};
use crate::domain::wire::PROTOCOL;

const MAGIC: [u8; 8] = *b"relight\n";
const HEADER: usize = 16;
/// The longest hello, in bytes after its header.
const MAX_HELLO: usize = 4 << 10;

/// What a process is in its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// An agent's control connection.
    Agent,
    /// An agent's beat connection.
    Beat,
    /// The coordinator: always the acceptor.
    Coordinator,
    /// The supervisor of the batch form.
    Supervisor,
    /// A command of a person.
    Operator,
}

/// Who one end is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The run; both ends must name the same.
    pub run: RunId,
    /// What it is.
    pub role: Role,
    /// Its node.
    pub node: NodeName,
    /// Which life of its agent.
    pub incarnation: Incarnation,
}

/// The other end, proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Who it is.
    pub identity: Identity,
    /// The version of its program.
    pub version: String,
}

#[derive(Serialize, Deserialize)]
struct Hello {
    version: String,
    identity: Identity,
    nonce: [u8; 32],
}

/// Which end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Initiator = 0,
    Acceptor = 1,
}

/// What the handshake leaves.
pub(super) struct Agreed {
    pub(super) peer: Peer,
    /// Of this session only: a frame of another session does not fit.
    pub(super) key: [u8; 32],
}

fn encode(identity: &Identity) -> Result<Vec<u8>, SessionError> {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let hello = Hello { version, identity: identity.clone(), nonce: random()? };
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(PROTOCOL.to_le_bytes());
    bytes.extend([0; 4]);
    let mut bytes = postcard::to_extend(&hello, bytes)?;
    let length = bytes.len() - HEADER;
    if length > MAX_HELLO {
        return Err(SessionError::TooLong { length, limit: MAX_HELLO });
    }
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    bytes[12..HEADER].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<(Vec<u8>, Hello), SessionError> {
    let mut bytes = vec![0; HEADER];
    stream.read_exact(&mut bytes).await.map_err(SessionError::reading)?;
    if bytes[..8] != MAGIC {
        return Err(SessionError::Stranger);
    }
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let (protocol, length) = (word(8), usize::try_from(word(12)).unwrap_or(usize::MAX));
    if length > MAX_HELLO {
        return Err(SessionError::TooLong { length, limit: MAX_HELLO });
    }
    bytes.resize(HEADER + length, 0);
    stream.read_exact(&mut bytes[HEADER..]).await.map_err(SessionError::reading)?;
    if protocol != PROTOCOL {
        let version = postcard::take_from_bytes::<&str>(&bytes[HEADER..]).map_or("?", |(version, _)| version);
        let version = version.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(SessionError::OtherProtocol { theirs: protocol, ours: PROTOCOL, version });
    }
    let hello = postcard::from_bytes(&bytes[HEADER..])?;
    Ok((bytes, hello))
}

/// Who may speak to whom: the coordinator accepts, everybody else dials it.
fn admissible(side: Side, ours: &Identity, theirs: &Identity) -> Result<(), SessionError> {
    if ours.run != theirs.run {
        return Err(SessionError::OtherRun(theirs.run.clone()));
    }
    if (theirs.role == Role::Coordinator) != (side == Side::Initiator) {
        return Err(SessionError::UnexpectedRole(theirs.role));
    }
    Ok(())
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), SessionError> {
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

pub(super) async fn shake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    side: Side,
    identity: &Identity,
    secret: &Secret,
) -> Result<Agreed, SessionError> {
    let ours = encode(identity)?;
    if side == Side::Initiator {
        write(stream, &ours).await?;
    }
    let received = read(stream).await;
    if side == Side::Acceptor {
        match &received {
            Ok(_) => write(stream, &ours).await?,
            // It learns why it is refused, if it still listens.
            Err(SessionError::OtherProtocol { .. }) => drop(write(stream, &ours).await),
            Err(_) => {}
        }
    }
    let (theirs, hello) = received?;
    admissible(side, identity, &hello.identity)?;
    let (first, second, other) = match side {
        Side::Initiator => (&ours, &theirs, Side::Acceptor),
        Side::Acceptor => (&theirs, &ours, Side::Initiator),
    };
    let proof = |of: Side, role: Role| secret.mac(&[b"proof", &[of as u8, role as u8], first, second]);
    let own = proof(side, identity.role).finalize().into_bytes();
    let mut given = [0; 32];
    if side == Side::Initiator {
        write(stream, &own).await?;
    }
    stream.read_exact(&mut given).await.map_err(|error| match side {
        Side::Initiator => SessionError::NotBelieved,
        Side::Acceptor => SessionError::reading(error),
    })?;
    proof(other, hello.identity.role).verify_slice(&given).map_err(|_| SessionError::BadProof)?;
    if side == Side::Acceptor {
        write(stream, &own).await?;
    }
    let key = secret.mac(&[b"frames", first, second]).finalize().into_bytes().into();
    Ok(Agreed { peer: Peer { identity: hello.identity, version: hello.version }, key })
}
