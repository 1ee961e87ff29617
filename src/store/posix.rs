//! The journal on a POSIX file system: a record is created exclusively by `link(2)` of a file whose bytes
//! are already durable.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::codec::{self, MAX_RECORD, Unreadable};
use super::error::IoTrouble;
use super::faults::{Call, Hands};
use super::nonce::random_hex;
use crate::domain::ids::Seq;
use crate::domain::record::Record;
use crate::sys::files::{self, Meaning};

/// Where temporary files begin; readers and [`crate::store::look`] pass over them.
pub const TEMPORARY: &str = ".tmp-";

/// The name of a record: 20 digits, so that names sort as numbers.
#[must_use]
pub fn record_name(seq: Seq) -> String {
    format!("{:020}", seq.0)
}

/// The number in a record's name.
#[must_use]
pub fn record_number(name: &str) -> Option<Seq> {
    (name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit())).then_some(())?;
    name.parse().ok().map(Seq)
}

/// How an exclusive create ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// Ours is under the name, durably.
    Clean,
    /// Something is under the name already.
    Exists,
}

/// What lies under a number.
#[derive(Debug)]
pub enum Read {
    /// A record.
    Record(Box<Record>),
    /// Nothing.
    Absent,
    /// Something else.
    Unreadable(Unreadable),
}

/// A name for a temporary file that no other process uses. Random, because process ids repeat across nodes.
#[must_use]
pub fn temporary_name() -> String {
    format!("{TEMPORARY}{}", random_hex::<12>())
}

/// Writes `bytes` durably under `name` in `dir`, unless the name is taken. Any error leaves it unknown
/// whether the name is ours: read it back.
pub fn create(hands: &mut Hands, dir: &Path, name: &str, bytes: &[u8]) -> Result<Created, IoTrouble> {
    let temporary = dir.join(temporary_name());
    let mut file = hands.call(Call::Open, &temporary, || files::create_exclusive(&temporary))?;
    let created = link_in(hands, &mut file, dir, &temporary, &dir.join(name), bytes);
    // A temporary file that stays is no harm; it goes with the directory.
    let _ = hands.call(Call::Unlink, &temporary, || std::fs::remove_file(&temporary));
    created
}

fn link_in(
    hands: &mut Hands,
    file: &mut File,
    dir: &Path,
    temporary: &Path,
    path: &Path,
    bytes: &[u8],
) -> Result<Created, IoTrouble> {
    hands.call(Call::Write, temporary, || file.write_all(bytes))?;
    hands.call(Call::Fsync, temporary, || file.sync_all())?;
    let linked = hands.call(Call::Link, path, || std::fs::hard_link(temporary, path));
    // A server's answer to `link` may be lost or repeated; two names of our file prove that one is ours.
    let names = hands.call(Call::Stat, temporary, || files::link_count(file));
    match (linked, names) {
        (_, Ok(2)) => {}
        (Err(e), _) if files::meaning(&e.source) == Meaning::Exists => return Ok(Created::Exists),
        (Err(e), _) | (Ok(()), Err(e)) => return Err(e),
        (Ok(()), Ok(_)) => {
            let error = std::io::Error::other("link succeeded, but the file does not have two names");
            return Err(IoTrouble::new(Call::Link.name(), path, error));
        }
    }
    let handle = hands.call(Call::Open, dir, || files::open_dir(dir))?;
    hands.call(Call::FsyncDir, dir, || files::sync_dir(&handle))?;
    Ok(Created::Clean)
}

/// Reads at most `limit` + 1 bytes of a file.
pub fn read_bytes(hands: &mut Hands, path: &Path, limit: usize) -> Result<Option<Vec<u8>>, IoTrouble> {
    let read = hands.call(Call::Read, path, || {
        let mut bytes = Vec::new();
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        files::open_plain(path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.source.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The end of a plain file, at most `limit` bytes of it, from the beginning of a line on; and how many bytes lie before
/// that. `None`: there is no such file.
pub fn read_end(hands: &mut Hands, path: &Path, limit: usize) -> Result<Option<(Vec<u8>, u64)>, IoTrouble> {
    let most = u64::try_from(limit).unwrap_or(u64::MAX);
    let read = hands.call(Call::Read, path, || {
        let mut file = files::open_plain(path)?;
        let before = file.metadata()?.len().saturating_sub(most);
        file.seek(SeekFrom::Start(before))?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok((bytes, before))
    });
    match read {
        Ok((mut bytes, before)) => {
            let torn = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |at| at + 1);
            let torn = if before > 0 { torn } else { 0 };
            bytes.drain(..torn);
            Ok(Some((bytes, before.saturating_add(torn as u64))))
        }
        Err(e) if e.source.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The journal directory of a run.
#[derive(Clone, Debug)]
pub struct Journal {
    dir: PathBuf,
}

impl Journal {
    /// The journal in this directory, which exists.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Where it lies.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Creates one record. See [`create`].
    pub fn create(&self, hands: &mut Hands, seq: Seq, bytes: &[u8]) -> Result<Created, IoTrouble> {
        create(hands, &self.dir, &record_name(seq), bytes)
    }

    /// Reads one number.
    pub fn read(&self, hands: &mut Hands, seq: Seq) -> Result<Read, IoTrouble> {
        let path = self.dir.join(record_name(seq));
        Ok(match read_bytes(hands, &path, MAX_RECORD)? {
            None => Read::Absent,
            Some(bytes) => match codec::decode(seq, &bytes) {
                Ok(record) => Read::Record(Box::new(record)),
                Err(why) => Read::Unreadable(why),
            },
        })
    }
}
