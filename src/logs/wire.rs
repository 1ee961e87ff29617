//! Frames between the pump and the logs worker. Each stands alone (a data frame carries its whole source),
//! so a new worker needs the spec and nothing else.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::spec::LogSpec;
use crate::domain::ids::{Attempt, LocalRank, Rank};

/// Which of a process's two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

impl Stream {
    /// Both, in the order of their descriptors.
    pub const BOTH: [Self; 2] = [Self::Out, Self::Err];

    pub(super) fn index(self) -> usize {
        match self {
            Self::Out => 0,
            Self::Err => 1,
        }
    }

    /// `stdout` or `stderr`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }
}

/// Whose output: one rank in one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Source {
    /// The attempt; names the directory.
    pub attempt: Attempt,
    /// Rank within the node; names the directory below it.
    pub local_rank: LocalRank,
    /// Global rank; stands in the combined log.
    pub rank: Rank,
    /// Ranks in this attempt's world; above 16 the console shows rank 0 only.
    pub world_size: u32,
}

/// Bytes that postcard copies in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Blob<'a>(pub(super) Cow<'a, [u8]>);

impl Serialize for Blob<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob<'_> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, v: &[u8]) -> Result<Vec<u8>, E> {
                Ok(v.to_vec())
            }

            fn visit_byte_buf<E>(self, v: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(v)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<u8>, A::Error> {
                let mut bytes = Vec::new();
                while let Some(b) = seq.next_element()? {
                    bytes.push(b);
                }
                Ok(bytes)
            }
        }
        Ok(Self(Cow::Owned(from.deserialize_byte_buf(Bytes)?)))
    }
}

/// From the pump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToWorker<'a> {
    /// First frame of every connection.
    Spec(LogSpec),
    /// A rank starts: its directory and empty files appear.
    Open(Source),
    /// Bytes as read; `wall_ms` is when.
    Data { source: Source, stream: Stream, wall_ms: u64, bytes: Blob<'a> },
    /// So many bytes of this stream were thrown away here.
    Dropped { source: Source, stream: Stream, wall_ms: u64, bytes: u64 },
    /// A line of our own.
    Say { stream: Stream, wall_ms: u64, bytes: Blob<'a> },
    /// Last output of a rank that the console does not show, and which failed.
    Reveal { source: Source, stream: Stream, bytes: Blob<'a> },
    /// Nothing more from this rank.
    Close { source: Source, wall_ms: u64 },
}

/// From the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ToPump<'a> {
    /// So many bytes of frames of this connection are done with, in all: files are written, the console's
    /// part waits its turn.
    Ack(u64),
    /// So many bytes of frames of this connection are on the console too.
    Shown(u64),
    /// The spec is understood, and its directory can be written.
    Ready,
    /// So many bytes more are in no file, for want of one that can be written.
    Unwritten(u64),
    /// A file could not be written and is given up.
    Disabled { path: Blob<'a>, errno: i32 },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::frame;

    #[test]
    fn bytes_cross_unchanged_and_without_overhead() {
        let source = Source { attempt: Attempt(1), local_rank: LocalRank(2), rank: Rank(3), world_size: 4 };
        let bytes: Vec<u8> = (0..=255).cycle().take(65_536).collect();
        let data =
            ToWorker::Data { source, stream: Stream::Err, wall_ms: 7, bytes: Blob(Cow::Borrowed(&bytes)) };
        let encoded = frame::encode(&data).unwrap();
        assert!(encoded.len() < bytes.len() + 32, "{}", encoded.len());
        let back: ToWorker<'static> = frame::read(&mut &encoded[..]).unwrap();
        assert_eq!(back, data);
    }
}
