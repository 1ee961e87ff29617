//! The run directory: who may make it, what it must look like, what lies in it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::IoTrouble;
use super::faults::{Call, Hands};
use super::nonce::random_hex;
use super::posix::{self, Created, Journal, Read, TEMPORARY};
use crate::domain::ids::{RunId, Seq, StoreId};
use crate::domain::record::{Body, End, Record};
use crate::sys::files::{self, Meaning};

/// The version of the run directory that this program makes and reads.
pub const LAYOUT_VERSION: u32 = 1;

/// Names in a run directory.
pub mod names {
    /// What it is: see [`super::RunJson`].
    pub const RUN: &str = "run.json";
    /// 32 random bytes as hexadecimal text, 0600.
    pub const SECRET: &str = "secret";
    /// Store proofs.
    pub const NONCE: &str = "nonce";
    /// Probes of exclusive creation.
    pub const PROBE: &str = "probe";
    /// Records.
    pub const JOURNAL: &str = "journal";
    /// One directory per incident.
    pub const INCIDENTS: &str = "incidents";
    /// What agents that follow said when nobody led any more: one file each.
    pub const AGENTS: &str = "agents";
    /// The newest status.
    pub const STATUS: &str = "status.json";
    /// How the run ended.
    pub const RESULT: &str = "result.json";
    /// Events, one JSON object a line.
    pub const EVENTS: &str = "events.jsonl";
    /// Older events.
    pub const OLD_EVENTS: &str = "events.jsonl.1";
    /// The directories.
    pub const DIRS: [&str; 4] = [NONCE, PROBE, JOURNAL, INCIDENTS];
}

/// The content of `run.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunJson {
    /// [`LAYOUT_VERSION`] of the program that made it.
    pub v: u32,
    /// Random; proves that two nodes see one directory.
    pub store: StoreId,
    /// The run.
    pub run: RunId,
    /// When it was made, unix milliseconds.
    pub created_ms: u64,
    /// The command line that made it.
    pub command: Vec<String>,
}

/// Why a run directory cannot be used. Each is one sentence; [`LayoutError::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// Nothing there, and this caller must not make it.
    #[error("there is no run directory {}", .0.display())]
    Missing(PathBuf),
    /// The directory that it should be made in is not there.
    #[error("cannot make the run directory {}: {} does not exist", dir.display(), parent.display())]
    NoParent {
        /// The run directory.
        dir: PathBuf,
        /// What is missing.
        parent: PathBuf,
    },
    /// A symbolic link.
    #[error("the run directory {} is a symbolic link", .0.display())]
    Symlink(PathBuf),
    /// A file or the like.
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    /// Somebody else's.
    #[error("{} belongs to user {owner}, not to us (user {me})", dir.display())]
    ForeignOwner {
        /// The path.
        dir: PathBuf,
        /// Its owner.
        owner: u32,
        /// Our user.
        me: u32,
    },
    /// Others may write into it.
    #[error("others may write into the run directory {} (mode {mode:04o})", dir.display())]
    OpenToOthers {
        /// The path.
        dir: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Others may read the secret.
    #[error("others may read {} (mode {mode:04o})", path.display())]
    SecretOpen {
        /// The path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// We may not write into it.
    #[error("the run directory {} is not writable", .0.display())]
    NotWritable(PathBuf),
    /// The file system is mounted read-only.
    #[error("the run directory {} is on a read-only file system", .0.display())]
    ReadOnly(PathBuf),
    /// No space, or no quota.
    #[error("no space is left for the run directory {} ({free} bytes free)", dir.display())]
    Full {
        /// The path.
        dir: PathBuf,
        /// What is free for us on its file system.
        free: u64,
    },
    /// The file system lacks what the journal needs.
    #[error("the file system of {} has no hard links, which the journal needs", .0.display())]
    NoLinks(PathBuf),
    /// A directory with something else in it.
    #[error("{} is no run directory: it holds {found:?} and no run.json", dir.display())]
    Foreign {
        /// The path.
        dir: PathBuf,
        /// One name in it.
        found: String,
    },
    /// `run.json` or `secret` is not readable as such.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: Damage,
    },
    /// Made by a newer program.
    #[error("{} was made by a newer relight (layout {v}, this one knows {LAYOUT_VERSION})", dir.display())]
    Newer {
        /// The path.
        dir: PathBuf,
        /// Its version.
        v: u64,
    },
    /// Of another run.
    #[error("{} is the directory of run {}, not of {}", dir.display(), found, wanted)]
    OtherRun {
        /// The path.
        dir: PathBuf,
        /// Whose it is.
        found: RunId,
        /// Whose it should be.
        wanted: RunId,
    },
    /// A file call failed.
    #[error("the run directory cannot be used: {0}")]
    Io(#[from] IoTrouble),
}

/// What is wrong with a file of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It is not there although the directory is complete otherwise.
    #[error("it is missing")]
    Missing,
    /// It is not what it should be.
    #[error("it cannot be read as what it should be")]
    NotReadable,
    /// A record before the tail cannot be read.
    #[error("record {} cannot be read ({}), and later records are there", .0, .1)]
    Record(Seq, super::codec::Unreadable),
    /// A record before the tail is missing.
    #[error("record {} is missing, and record {} is there", .0, .1)]
    Gap(Seq, Seq),
}

impl LayoutError {
    /// What the user can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing(_) => "check --run-dir and the run id; only the first node makes the directory",
            Self::NoParent { .. } => "make it, or choose another place with --run-dir",
            Self::Symlink(_) => "name the directory itself with --run-dir",
            Self::NotADirectory(_) | Self::ForeignOwner { .. } => "choose another place with --run-dir",
            Self::OpenToOthers { .. } => "take the permission away: chmod go-w",
            Self::SecretOpen { .. } => "take the permission away (chmod 600), or start with another --run-id",
            Self::NotWritable(_) | Self::ReadOnly(_) => "choose a writable place with --run-dir",
            Self::Full { .. } => "free some space (relight gc), or choose another place with --run-dir",
            Self::NoLinks(_) => "choose a place on another file system with --run-dir",
            Self::Foreign { .. } => "choose an empty or new directory with --run-dir, or another --run-id",
            Self::Damaged { .. } => "look at the file, or start with another --run-id; nothing was changed",
            Self::Newer { .. } => "use the newer relight, or another --run-id",
            Self::OtherRun { .. } => "choose another place with --run-dir",
            Self::Io(_) => "check the file system, or choose another place with --run-dir",
        }
    }
}

/// How a run directory is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenOptions {
    /// The run directory itself.
    pub dir: PathBuf,
    /// The run.
    pub run: RunId,
    /// Make it if it is not there. Only the first coordinator says so.
    pub create: bool,
    /// Make the directories above it too (the default place).
    pub make_parents: bool,
    /// The command line, for `run.json`.
    pub command: Vec<String>,
    /// Now, unix milliseconds, for `run.json`.
    pub wall_ms: u64,
}

/// What an existing directory says of the launch before this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Previous {
    /// Its last record says that the run is over.
    pub ended: Option<End>,
    /// The command line that made the directory.
    pub command: Vec<String>,
}

/// An open run directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Its random id.
    pub store: StoreId,
    /// 32 random bytes as hexadecimal text.
    pub secret: String,
    /// All records, from 0.
    pub records: Vec<Record>,
    /// There is something under the number after the last record that cannot be read: perhaps acted on.
    pub unreadable_tail: Option<String>,
    /// What was there before; none: the directory is new.
    pub previous: Option<Previous>,
}

fn refuse(dir: &Path, trouble: IoTrouble) -> LayoutError {
    match files::meaning(&trouble.source) {
        Meaning::Full => {
            LayoutError::Full { dir: dir.to_owned(), free: files::free_bytes(dir).unwrap_or_default() }
        }
        Meaning::ReadOnly => LayoutError::ReadOnly(dir.to_owned()),
        Meaning::Denied if trouble.call == Call::Link.name() => LayoutError::NoLinks(dir.to_owned()),
        Meaning::Denied => LayoutError::NotWritable(dir.to_owned()),
        Meaning::Unsupported => LayoutError::NoLinks(dir.to_owned()),
        Meaning::Gone | Meaning::Exists | Meaning::Io | Meaning::Other => LayoutError::Io(trouble),
    }
}

/// Checks that a directory is there, ours, and closed to others. `Ok(false)`: nothing is there.
pub fn check_private(dir: &Path) -> Result<bool, LayoutError> {
    let look = match files::look(dir) {
        Ok(look) => look,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            let file = dir.ancestors().find(|a| files::look(a).is_ok_and(|l| !l.dir && !l.symlink));
            return Err(LayoutError::NotADirectory(file.unwrap_or(dir).to_owned()));
        }
        Err(e) => return Err(IoTrouble::new("stat", dir, e).into()),
    };
    let me = files::my_uid();
    if look.symlink {
        return Err(LayoutError::Symlink(dir.to_owned()));
    }
    if !look.dir {
        return Err(LayoutError::NotADirectory(dir.to_owned()));
    }
    if look.uid != me {
        return Err(LayoutError::ForeignOwner { dir: dir.to_owned(), owner: look.uid, me });
    }
    if look.mode & 0o022 != 0 {
        return Err(LayoutError::OpenToOthers { dir: dir.to_owned(), mode: look.mode });
    }
    Ok(true)
}

fn check_writable(dir: &Path) -> Result<(), LayoutError> {
    files::may_change(dir).map_err(|e| refuse(dir, IoTrouble::new("access", dir, e)))
}

/// Whether a name may lie in a directory that is being made.
fn is_our_name(name: &str) -> bool {
    names::DIRS.contains(&name) || name == names::SECRET || name.starts_with(TEMPORARY)
}

fn foreign_name(dir: &Path) -> Result<Option<String>, LayoutError> {
    let failed = |e| IoTrouble::new("list", dir, e);
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
        if name != names::RUN && !is_our_name(&name) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

pub(super) fn read_run_json(hands: &mut Hands, dir: &Path) -> Result<Option<RunJson>, LayoutError> {
    let path = dir.join(names::RUN);
    let Some(bytes) = posix::read_bytes(hands, &path, 1 << 20)? else { return Ok(None) };
    let damaged = || LayoutError::Damaged { path: path.clone(), what: Damage::NotReadable };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
    let v = value.get("v").and_then(serde_json::Value::as_u64).ok_or_else(damaged)?;
    if v > u64::from(LAYOUT_VERSION) {
        return Err(LayoutError::Newer { dir: dir.to_owned(), v });
    }
    serde_json::from_value(value).map(Some).map_err(|_| damaged())
}

/// Reads `run.json` of an existing run directory.
pub fn identify(hands: &mut Hands, dir: &Path) -> Result<RunJson, LayoutError> {
    if !check_private(dir)? {
        return Err(LayoutError::Missing(dir.to_owned()));
    }
    match read_run_json(hands, dir)? {
        Some(run) => Ok(run),
        None => Err(match foreign_name(dir)? {
            Some(found) => LayoutError::Foreign { dir: dir.to_owned(), found },
            None => LayoutError::Missing(dir.to_owned()),
        }),
    }
}

/// The secret of a run, for a command of the user whose run it is.
///
/// # Errors
/// It cannot be read, or others may read it.
pub fn secret_of(dir: &Path) -> Result<String, LayoutError> {
    read_secret(&mut Hands::default(), dir)
}

fn read_secret(hands: &mut Hands, dir: &Path) -> Result<String, LayoutError> {
    let path = dir.join(names::SECRET);
    let damaged = |what| LayoutError::Damaged { path: path.clone(), what };
    let look = match files::look(&path) {
        Ok(look) => look,
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(damaged(Damage::Missing)),
        Err(e) => return Err(IoTrouble::new("stat", &path, e).into()),
    };
    if look.symlink || look.dir {
        return Err(damaged(Damage::NotReadable));
    }
    if look.mode & 0o077 != 0 {
        return Err(LayoutError::SecretOpen { path, mode: look.mode });
    }
    let bytes = posix::read_bytes(hands, &path, 256)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).trim_end().to_owned();
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(damaged(Damage::NotReadable));
    }
    Ok(text)
}

fn make_parents(hands: &mut Hands, dir: &Path) -> Result<(), LayoutError> {
    let missing: Vec<&Path> = dir.ancestors().skip(1).take_while(|a| files::look(a).is_err()).collect();
    for parent in missing.into_iter().rev().filter(|p| !p.as_os_str().is_empty()) {
        match hands.call(Call::Mkdir, parent, || files::make_private_dir(parent)) {
            Err(e) if files::meaning(&e.source) != Meaning::Exists => return Err(refuse(dir, e)),
            _ => {}
        }
    }
    Ok(())
}

/// Makes the directory itself, its parents where wanted. `Ok(false)`: it was there already.
fn make_dir(hands: &mut Hands, options: &OpenOptions) -> Result<bool, LayoutError> {
    let dir = &options.dir;
    if options.make_parents {
        make_parents(hands, dir)?;
    }
    match hands.call(Call::Mkdir, dir, || files::make_private_dir(dir)) {
        Ok(()) => Ok(true),
        Err(e) if files::meaning(&e.source) == Meaning::Exists => Ok(false),
        Err(e) if e.source.kind() == ErrorKind::NotFound => {
            let parent = dir.parent().unwrap_or(Path::new("/"));
            Err(LayoutError::NoParent { dir: dir.clone(), parent: parent.to_owned() })
        }
        Err(e) => Err(refuse(dir, e)),
    }
}

/// Fills a directory of ours that has no `run.json`: new, or left half made. `run.json` comes last and makes
/// it a run directory. `Ok(false)`: another process made it meanwhile.
fn fill(hands: &mut Hands, options: &OpenOptions) -> Result<bool, LayoutError> {
    let dir = &options.dir;
    for name in names::DIRS {
        let path = dir.join(name);
        match hands.call(Call::Mkdir, &path, || files::make_private_dir(&path)) {
            Err(e) if files::meaning(&e.source) != Meaning::Exists => return Err(refuse(dir, e)),
            _ => {}
        }
    }
    let secret = format!("{}\n", random_hex::<32>());
    posix::create(hands, dir, names::SECRET, secret.as_bytes()).map_err(|e| refuse(dir, e))?;
    let run = RunJson {
        v: LAYOUT_VERSION,
        store: StoreId::new(random_hex::<16>()),
        run: options.run.clone(),
        created_ms: options.wall_ms,
        command: options.command.clone(),
    };
    let mut bytes = serde_json::to_vec_pretty(&run)
        .map_err(|e| IoTrouble::new("write", &dir.join(names::RUN), e.into()))?;
    bytes.push(b'\n');
    let created = posix::create(hands, dir, names::RUN, &bytes).map_err(|e| refuse(dir, e))?;
    if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty())
        && let Ok(handle) = files::open_dir(parent)
    {
        // The name of the run directory itself; a parent that we may not open is no reason to refuse.
        let _ = hands.call(Call::FsyncDir, parent, || files::sync_dir(&handle));
    }
    Ok(created == Created::Clean)
}

/// What was read of a journal.
#[derive(Debug, Default)]
pub struct Tail {
    /// All records, from 0.
    pub records: Vec<Record>,
    /// Why what lies behind them cannot be read; none: nothing lies there.
    pub unreadable: Option<super::codec::Unreadable>,
}

/// Reads all records, number by number upward. Names are listed only to see damage: a later record behind a
/// gap or behind one that cannot be read.
pub fn read_journal(hands: &mut Hands, journal: &Journal) -> Result<Tail, LayoutError> {
    let mut tail = Tail::default();
    loop {
        let seq = Seq(tail.records.len() as u64);
        let read = journal.read(hands, seq)?;
        if let Read::Record(record) = read {
            tail.records.push(*record);
            continue;
        }
        let damaged = |what| LayoutError::Damaged { path: journal.dir().to_owned(), what };
        match (read, last_name(journal.dir())?) {
            (Read::Unreadable(why), Some(last)) if last > seq => {
                return Err(damaged(Damage::Record(seq, why)));
            }
            (Read::Unreadable(why), _) => {
                tail.unreadable = Some(why);
                return Ok(tail);
            }
            (_, Some(last)) if last >= seq => {
                // Written since the read, or the read was answered from a stale cache: look once more.
                match journal.read(hands, seq)? {
                    Read::Absent if last > seq => return Err(damaged(Damage::Gap(seq, last))),
                    Read::Absent => return Ok(tail),
                    _ => {}
                }
            }
            _ => return Ok(tail),
        }
    }
}

fn last_name(dir: &Path) -> Result<Option<Seq>, LayoutError> {
    let failed = |e| IoTrouble::new("list", dir, e);
    let mut last = None;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        last = last.max(name.to_str().and_then(posix::record_number));
    }
    Ok(last)
}

/// Opens a run directory, making it where wanted.
pub fn open(hands: &mut Hands, options: &OpenOptions) -> Result<Opened, LayoutError> {
    let dir = &options.dir;
    let mut is_new = false;
    if !check_private(dir)? {
        if !options.create {
            return Err(LayoutError::Missing(dir.clone()));
        }
        make_dir(hands, options)?;
        check_private(dir)?;
    }
    check_writable(dir)?;
    let run = match read_run_json(hands, dir)? {
        Some(run) => run,
        None => {
            if let Some(found) = foreign_name(dir)? {
                return Err(LayoutError::Foreign { dir: dir.clone(), found });
            }
            if !options.create {
                return Err(LayoutError::Missing(dir.clone()));
            }
            files::make_private(dir).map_err(|e| refuse(dir, IoTrouble::new("chmod", dir, e)))?;
            is_new = fill(hands, options)?;
            identify(hands, dir)?
        }
    };
    if run.run != options.run {
        return Err(LayoutError::OtherRun { dir: dir.clone(), found: run.run, wanted: options.run.clone() });
    }
    for name in names::DIRS {
        let path = dir.join(name);
        if !check_private(&path)? {
            return Err(LayoutError::Damaged { path, what: Damage::Missing });
        }
    }
    let secret = read_secret(hands, dir)?;
    let journal = Journal::new(dir.join(names::JOURNAL));
    // What is read here is acted on: its names must be as durable as its bytes.
    let handle = hands.call(Call::Open, journal.dir(), || files::open_dir(journal.dir()))?;
    let tail = read_journal(hands, &journal)?;
    if !is_new {
        hands.call(Call::FsyncDir, journal.dir(), || files::sync_dir(&handle)).map_err(|e| refuse(dir, e))?;
    }
    let ended = tail.records.last().and_then(|r| match &r.body {
        Body::End(end) => Some(end.clone()),
        _ => None,
    });
    Ok(Opened {
        store: run.store,
        secret,
        unreadable_tail: tail.unreadable.map(|why| why.to_string()),
        records: tail.records,
        previous: (!is_new).then_some(Previous { ended, command: run.command }),
    })
}

/// Gives an old run directory another name, `<name>~<k>` with the smallest free k, and says which.
pub fn set_aside(hands: &mut Hands, dir: &Path) -> Result<PathBuf, LayoutError> {
    identify(hands, dir)?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut k = 1_u32;
    loop {
        // Bounded: a directory that answers every look with an error must not hold us here.
        if k > 10_000 {
            let error = std::io::Error::from(ErrorKind::AlreadyExists);
            return Err(IoTrouble::new("rename", dir, error).into());
        }
        let aside = dir.with_file_name(format!("{name}~{k}"));
        // A rename never replaces a directory with something in it, and nobody makes an empty one here.
        if files::look(&aside).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
            match hands.call(Call::Rename, dir, || std::fs::rename(dir, &aside)) {
                Ok(()) => return Ok(aside),
                Err(e) if e.source.kind() == ErrorKind::DirectoryNotEmpty => {}
                Err(e) => return Err(refuse(dir, e)),
            }
        }
        k += 1;
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
