//! Reads run directories from outside: for status, events, why, logs and gc. Changes nothing, except that
//! [`remove`] removes.

use std::fs;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::codec::Unreadable;
use super::error::IoTrouble;
use super::faults::Hands;
use super::layout::{self, LayoutError, RunJson, Tail, names};
use super::posix::{self, Journal};
use super::status::Status;
use crate::domain::liveness::lineup::{self, Row};
use crate::domain::record::{Body, End, Record};
use crate::domain::suggest;
use crate::sys::{files, random};

/// What is read of one file at most, in bytes.
const MAX_FILE: usize = 64 << 20;

/// And of a file of events, from its end.
const MAX_EVENTS: usize = 32 << 20;

/// Files of agents that are read at most, and how much of each, in bytes.
const MAX_AGENTS: usize = 4096;
const MAX_AGENT_FILE: usize = 256 << 10;
/// A status is no longer than this, in bytes: thousands of nodes with their ranks.
const MAX_STATUS: usize = 16 << 20;

/// A run, as its directory shows it.
#[derive(Debug)]
pub struct RunView {
    /// Where it lies.
    pub dir: PathBuf,
    /// What it is.
    pub run: RunJson,
    /// All records up to the first that cannot be read.
    pub records: Vec<Record>,
    /// Why there are no more, if that is not simply the tail.
    pub damage: Option<String>,
    /// The lines of `events.jsonl.1` and `events.jsonl`.
    pub events: Vec<String>,
    /// So many bytes of them, the oldest, are not among these lines.
    pub events_left_out: u64,
    /// What agents that follow said of their own, each in its order.
    pub agents: Vec<String>,
    /// The newest status.
    pub status: Option<Status>,
    /// The incidents that have a directory with files.
    pub incident_dirs: Vec<u64>,
}

impl RunView {
    /// How the run ended, if its last record says so.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        end_of(&self.records)
    }
}

fn end_of(records: &[Record]) -> Option<&End> {
    records.last().and_then(|r| match &r.body {
        Body::End(end) => Some(end),
        _ => None,
    })
}

/// Why a run is not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Nothing like it.
    #[error("there is no run {wanted} in {}", base.display())]
    Nothing {
        /// What was asked for.
        wanted: String,
        /// Where.
        base: PathBuf,
        /// A run whose name is close.
        close: Option<String>,
    },
    /// A path that leads to no run directory.
    #[error("{} is no run directory", .0.display())]
    NoRun(PathBuf),
    /// The word begins several names.
    #[error("{wanted} is not one run in {}: {}", base.display(), names.join(", "))]
    Several {
        /// What was asked for.
        wanted: String,
        /// Where.
        base: PathBuf,
        /// What it may be, at most eight.
        names: Vec<String>,
    },
    /// There is no base directory.
    #[error("cannot look for runs: {0}")]
    Io(#[from] IoTrouble),
}

impl FindError {
    /// What the user can do.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::Nothing { close: Some(close), .. } => format!("did you mean {close}?"),
            Self::Nothing { close: None, .. } | Self::NoRun(_) | Self::Io(_) => {
                "name the run's directory, or where the runs lie with --run-dir".into()
            }
            Self::Several { .. } => "type more of its name".into(),
        }
    }
}

/// The directory of a run: by path, by its name below `base`, or by a prefix that only one name has.
pub fn find(base: &Path, wanted: &str) -> Result<PathBuf, FindError> {
    let path = Path::new(wanted);
    if wanted.contains('/') || wanted == "." {
        if path.join(names::RUN).is_file() {
            return Ok(path.to_owned());
        }
        return Err(FindError::NoRun(path.to_owned()));
    }
    if !wanted.is_empty() && base.join(wanted).join(names::RUN).is_file() {
        return Ok(base.join(wanted));
    }
    let all: Vec<String> = run_names(base)?;
    let begin: Vec<&String> = all.iter().filter(|n| n.starts_with(wanted)).collect();
    // `42` means `42.0`; the older `42.0~1` is only meant when it is typed.
    let live: Vec<&&String> = begin.iter().filter(|n| !n.contains('~')).collect();
    match (begin.as_slice(), live.as_slice()) {
        ([one], _) => Ok(base.join(one)),
        (_, [one]) => Ok(base.join(one)),
        ([], _) => Err(FindError::Nothing {
            wanted: wanted.into(),
            base: base.to_owned(),
            close: suggest::closest(wanted, all.iter().map(String::as_str)).map(str::to_owned),
        }),
        (several, _) => Err(FindError::Several {
            wanted: wanted.into(),
            base: base.to_owned(),
            names: several.iter().take(8).map(|n| (*n).clone()).collect(),
        }),
    }
}

fn run_names(base: &Path) -> Result<Vec<String>, IoTrouble> {
    let failed = |e| IoTrouble::new("list", base, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(base).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(name) = entry.file_name().to_str()
            && entry.path().join(names::RUN).is_file()
        {
            found.push(name.to_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// Reads a run directory. Damage is part of the answer; only a directory that is no run's is an error.
pub fn read_run(dir: &Path) -> Result<RunView, LayoutError> {
    let mut hands = Hands::default();
    let run = layout::read_run_json(&mut hands, dir)?.ok_or_else(|| LayoutError::Missing(dir.to_owned()))?;
    let journal = Journal::new(dir.join(names::JOURNAL));
    let (Tail { records, unreadable }, damage) = match layout::read_journal(&mut hands, &journal) {
        Ok(tail) => (tail, None),
        Err(LayoutError::Damaged { what, .. }) => (upward(&mut hands, &journal), Some(what.to_string())),
        Err(other) => return Err(other),
    };
    let tail = |why: Unreadable| format!("what lies behind the last record cannot be read: {why}");
    let (mut events, mut events_left_out) = (Vec::new(), 0);
    for name in [names::OLD_EVENTS, names::EVENTS] {
        let Some((bytes, before)) = posix::read_end(&mut hands, &dir.join(name), MAX_EVENTS)? else {
            continue;
        };
        events.extend(lines(&bytes));
        events_left_out += before;
    }
    let status = posix::read_bytes(&mut hands, &dir.join(names::STATUS), MAX_STATUS)?;
    Ok(RunView {
        dir: dir.to_owned(),
        run,
        records,
        damage: damage.or(unreadable.map(tail)),
        events,
        events_left_out,
        agents: agents(&mut hands, &dir.join(names::AGENTS)),
        status: status.and_then(|bytes| serde_json::from_slice(&bytes).ok()),
        incident_dirs: incident_dirs(&dir.join(names::INCIDENTS)),
    })
}

/// Who was where when the program did not advance, as it is kept with an incident; empty where nothing can be read.
#[must_use]
pub fn lineup(dir: &Path, incident: u64) -> Vec<Row> {
    let path = dir.join(names::INCIDENTS).join(format!("{incident:04}")).join(lineup::FILE);
    let bytes = posix::read_bytes(&mut Hands::default(), &path, MAX_STATUS).ok().flatten();
    bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

/// One longer than this is none of ours.
const MAX_LINE: usize = 1 << 20;

fn lines(bytes: &[u8]) -> impl Iterator<Item = String> {
    bytes.split(|b| *b == b'\n').filter(|line| !line.is_empty()).map(|line| match line.len() {
        0..=MAX_LINE => String::from_utf8_lossy(line).into_owned(),
        length => format!("a line of {length} bytes"),
    })
}

/// What agents wrote. A file that cannot be read says nothing.
fn agents(hands: &mut Hands, dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> =
        entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "jsonl")).collect();
    paths.sort();
    // Of many, the end of each.
    let most = (MAX_EVENTS / paths.len().max(1)).min(MAX_AGENT_FILE);
    let mut all = Vec::new();
    for path in paths.iter().take(MAX_AGENTS) {
        if let Ok(Some((bytes, _))) = posix::read_end(hands, path, most) {
            all.extend(lines(&bytes));
        }
    }
    all
}

fn incident_dirs(dir: &Path) -> Vec<u64> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// The records up to the first that is not there or not readable.
fn upward(hands: &mut Hands, journal: &Journal) -> Tail {
    let mut tail = Tail::default();
    while let Ok(posix::Read::Record(record)) =
        journal.read(hands, crate::domain::ids::Seq(tail.records.len() as u64))
    {
        tail.records.push(*record);
    }
    tail
}

/// One run below a base directory, for [`crate::inspect`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name of its directory.
    pub name: String,
    /// Where it lies.
    pub dir: PathBuf,
    /// Ours, private, and of a layout that this program knows.
    pub ours: bool,
    /// Its last record says that it is over.
    pub ended: bool,
    /// The last sign of life: the newest change of a file of ours, unix milliseconds.
    pub changed_ms: u64,
    /// What it takes, in bytes.
    pub bytes: u64,
}

/// Every run below `base`, by name.
pub fn list(base: &Path) -> Result<Vec<Listed>, IoTrouble> {
    let mut runs = Vec::new();
    for name in run_names(base)? {
        let dir = base.join(&name);
        let mut hands = Hands::default();
        let ours = layout::identify(&mut hands, &dir).is_ok();
        let journal = Journal::new(dir.join(names::JOURNAL));
        let ended = layout::read_journal(&mut hands, &journal).is_ok_and(|t| end_of(&t.records).is_some());
        let (bytes, changed_ms) = measure(&dir);
        runs.push(Listed { name, dir, ours, ended, changed_ms, bytes });
    }
    Ok(runs)
}

/// Bytes and newest change of a tree; links are not followed.
fn measure(dir: &Path) -> (u64, u64) {
    let (mut bytes, mut newest) = (0_u64, 0_u64);
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        let changed = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let (below, changed_below) = if meta.is_dir() { measure(&entry.path()) } else { (meta.len(), 0) };
        bytes = bytes.saturating_add(below);
        let ms = changed.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX));
        newest = newest.max(ms).max(changed_below);
    }
    (bytes, newest)
}

/// Removes a run directory of ours. First it gets another name, so that nobody opens it half removed.
pub fn remove(dir: &Path) -> Result<(), LayoutError> {
    layout::identify(&mut Hands::default(), dir)?;
    let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let gone = dir.with_file_name(format!("{name}~gone-{:x}", random::u64()));
    fs::rename(dir, &gone).map_err(|e| IoTrouble::new("rename", dir, e))?;
    let failed = |e: io::Error| IoTrouble::new("remove", &gone, e);
    // `run.json` goes last: what is left by an interruption is still known as ours.
    for entry in fs::read_dir(&gone).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name() == names::RUN {
            continue;
        }
        let is_dir = entry.file_type().map_err(failed)?.is_dir();
        let path = entry.path();
        if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) }.map_err(failed)?;
    }
    Ok(fs::remove_dir_all(&gone).map_err(failed)?)
}

/// The last `lines` lines of a file that passes `keep`; without `lines` all of them. At most 64 MiB from its
/// end are looked at. `None`: there is no such file.
pub fn tail(
    path: &Path,
    lines: Option<usize>,
    keep: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>, IoTrouble> {
    let failed = |e| IoTrouble::new("read", path, e);
    let mut file = match files::open_plain(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(failed(e)),
    };
    let size = file.metadata().map_err(failed)?.len();
    let start = size.saturating_sub(MAX_FILE as u64);
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE as u64).read_to_end(&mut bytes).map_err(failed)?;
    let kept: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').filter(|line| keep(line)).collect();
    let skip = lines.map_or(0, |n| kept.len().saturating_sub(n));
    Ok(Some(kept[skip..].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::testing::options;

    fn make(base: &Path, name: &str) {
        let mut wants = options(base);
        wants.dir = base.join(name);
        layout::open(&mut Hands::default(), &wants).unwrap();
    }

    #[test]
    fn a_run_is_found_by_name_prefix_and_path() {
        let base = tempfile::tempdir().unwrap();
        let at = base.path();
        for name in ["42.0", "42.0~1", "43.0", "43.1"] {
            make(at, name);
        }
        fs::create_dir(at.join("thesis")).unwrap();
        for (wanted, name) in [("42.0", "42.0"), ("42", "42.0"), ("42.0~", "42.0~1"), ("43.1", "43.1")] {
            assert_eq!(find(at, wanted).unwrap(), at.join(name), "{wanted}");
        }
        let path = at.join("43.0");
        assert_eq!(find(at, path.to_str().unwrap()).unwrap(), path);
        let said = |wanted: &str| {
            let error = find(at, wanted).unwrap_err();
            format!("{error}; {}", error.hint()).replace(at.to_str().unwrap(), "BASE")
        };
        insta::assert_snapshot!([said("43"), said("44.0"), said("thesis"), said("./x")].join("\n"), @r"
        43 is not one run in BASE: 43.0, 43.1; type more of its name
        there is no run 44.0 in BASE; did you mean 42.0?
        there is no run thesis in BASE; name the run's directory, or where the runs lie with --run-dir
        ./x is no run directory; name the run's directory, or where the runs lie with --run-dir
        ");
    }

    #[test]
    fn a_removed_run_leaves_nothing_and_others_stay() {
        let base = tempfile::tempdir().unwrap();
        make(base.path(), "a");
        make(base.path(), "b");
        remove(&base.path().join("a")).unwrap();
        assert_eq!(run_names(base.path()).unwrap(), ["b"]);
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 1);
        fs::create_dir(base.path().join("thesis")).unwrap();
        assert!(remove(&base.path().join("thesis")).is_err());
        assert!(base.path().join("thesis").is_dir());
    }

    #[test]
    fn the_tail_of_a_file() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("log");
        fs::write(&path, "1 a\n2 b\n3 a\n4 a").unwrap();
        let read = |lines, letter: u8| {
            let bytes = tail(&path, lines, |l| l.contains(&letter)).unwrap().unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(read(None, b'a'), "1 a\n3 a\n4 a");
        assert_eq!(read(Some(1), b'a'), "4 a");
        assert_eq!(read(Some(9), b'b'), "2 b\n");
        assert_eq!(tail(&base.path().join("none"), None, |_| true).unwrap(), None);
    }
}
