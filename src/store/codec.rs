//! A record as people read it: JSON, one file each.

use serde::Deserialize;

use crate::domain::ids::{Attempt, Seq, Term};
use crate::domain::record::{Body, Kind, RECORD_VERSION, Record, Writer};

/// The largest record that is read, in bytes. Above it a file under a record's name is damage.
pub const MAX_RECORD: usize = 8 << 20;

/// Why bytes are no record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// No bytes: a name without content, as after a power loss.
    #[error("it is empty")]
    Empty,
    /// Larger than any record.
    #[error("it is larger than {MAX_RECORD} bytes")]
    TooLong,
    /// No JSON, or without the head that every version has.
    #[error("it is not a record: line {line}, column {column}")]
    Broken {
        /// Line of the first byte that does not fit, from 1.
        line: usize,
        /// Column of the same.
        column: usize,
    },
    /// It says that it has another number than its name.
    #[error("it says that it is record {says}")]
    OtherNumber {
        /// The number inside.
        says: Seq,
    },
}

/// Why a record cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// Larger than what is read.
    #[error("a record of {0} bytes is over the limit of {MAX_RECORD}")]
    TooLong(usize),
    /// Not expressible.
    #[error("a record is not expressible as JSON")]
    Json(#[from] serde_json::Error),
}

/// The head, which every version of a record has.
#[derive(Deserialize)]
struct Head {
    v: u32,
    seq: Seq,
    term: Term,
    attempt: Attempt,
    writer: Writer,
    nonce: u64,
    wall_ms: u64,
    #[serde(default)]
    why: Vec<String>,
}

/// The bytes of a record: indented, with a newline at the end.
pub fn encode(record: &Record) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = serde_json::to_vec_pretty(record)?;
    bytes.push(b'\n');
    if bytes.len() > MAX_RECORD {
        return Err(EncodeError::TooLong(bytes.len()));
    }
    Ok(bytes)
}

/// The record in these bytes, which lie under the number `seq`. Of a newer version or of an unknown kind only
/// the head is kept.
pub fn decode(seq: Seq, bytes: &[u8]) -> Result<Record, Unreadable> {
    if bytes.is_empty() {
        return Err(Unreadable::Empty);
    }
    if bytes.len() > MAX_RECORD {
        return Err(Unreadable::TooLong);
    }
    let head: Head = serde_json::from_slice(bytes)
        .map_err(|e| Unreadable::Broken { line: e.line(), column: e.column() })?;
    if head.seq != seq {
        return Err(Unreadable::OtherNumber { says: head.seq });
    }
    if head.v == RECORD_VERSION
        && let Ok(record) = serde_json::from_slice::<Record>(bytes)
        && record.kind == record.body.kind()
    {
        return Ok(record);
    }
    let Head { v, seq, term, attempt, writer, nonce, wall_ms, why } = head;
    Ok(Record {
        v,
        seq,
        kind: Kind::Unknown,
        term,
        attempt,
        writer,
        nonce,
        wall_ms,
        why,
        body: Body::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::record;

    #[test]
    fn a_record_survives_and_reads_well() {
        let record = record(3, 42);
        let bytes = encode(&record).unwrap();
        assert!(bytes.ends_with(b"}\n"));
        assert_eq!(decode(Seq(3), &bytes), Ok(record));
    }

    #[test]
    fn of_a_newer_program_the_head_is_kept() {
        let text = String::from_utf8(encode(&record(3, 42)).unwrap()).unwrap();
        let newer = text.replace("\"v\": 1", "\"v\": 2");
        let kind = text.replace("\"kind\": \"evict\"", "\"kind\": \"retire\"");
        let body = text.replace("\"evict\": {", "\"retire\": {");
        let inner = text.replace("\"reason\"", "\"ground\"");
        for other in [newer, kind, body, inner] {
            assert_ne!(other, text);
            let read = decode(Seq(3), other.as_bytes()).unwrap();
            assert_eq!((read.kind, read.nonce, read.body), (Kind::Unknown, 42, Body::Unknown));
            assert_eq!(read.why, ["a test wants it"]);
        }
    }

    #[test]
    fn damage_is_told_from_news() {
        let bytes = encode(&record(3, 42)).unwrap();
        assert_eq!(decode(Seq(3), b""), Err(Unreadable::Empty));
        assert_eq!(decode(Seq(4), &bytes), Err(Unreadable::OtherNumber { says: Seq(3) }));
        assert!(matches!(decode(Seq(3), &[0; 4096]), Err(Unreadable::Broken { line: 1, .. })));
        for cut in [1, bytes.len() / 2, bytes.len() - 3] {
            assert!(matches!(decode(Seq(3), &bytes[..cut]), Err(Unreadable::Broken { .. })), "{cut}");
        }
        let twice = [bytes.as_slice(), bytes.as_slice()].concat();
        assert!(matches!(decode(Seq(3), &twice), Err(Unreadable::Broken { .. })));
    }
}
