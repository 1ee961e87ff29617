//! `relight logs`: which files hold a rank's output, and which lines of them are meant.

use std::path::{Path, PathBuf};

use crate::domain::ids::{Attempt, Rank};
use crate::domain::record::{Body, Member};
use crate::store::IoTrouble;
use crate::store::look::{self, RunView};

/// A rank's output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// stdout.
    Out,
    /// stderr.
    Err,
}

impl Stream {
    /// As it is called in file names and in the combined log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "stdout",
            Self::Err => "stderr",
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// One rank; none: all of them.
    pub rank: Option<Rank>,
    /// The attempt; none: the newest.
    pub attempt: Option<Attempt>,
    /// One stream; none: both.
    pub stream: Option<Stream>,
}

/// Lines of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Shown above its lines when there are several.
    pub title: String,
    /// The file; `<file>.1`, if it is there, holds what came before.
    pub path: PathBuf,
    /// Keep only lines of this rank.
    pub rank: Option<Rank>,
    /// Keep only lines of this stream.
    pub stream: Option<Stream>,
}

/// Why there is nothing to show.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogsError {
    /// No world was opened yet.
    #[error("no attempt of this run has been opened yet")]
    NoAttempt,
    /// No such attempt.
    #[error("this run has no attempt {wanted}: the newest is {newest}")]
    UnknownAttempt {
        /// What was asked for.
        wanted: Attempt,
        /// The newest.
        newest: Attempt,
    },
    /// No such rank.
    #[error("attempt {attempt} has no rank {wanted}: it has {ranks} ranks, from 0")]
    UnknownRank {
        /// The attempt.
        attempt: Attempt,
        /// What was asked for.
        wanted: Rank,
        /// World size.
        ranks: u32,
    },
    /// Log files were off.
    #[error("attempt {0} wrote no log files")]
    NoFiles(Attempt),
}

impl LogsError {
    /// What the user can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoAttempt => "see what it waits for: relight status",
            Self::UnknownAttempt { .. } => "choose another --attempt",
            Self::UnknownRank { .. } => "choose another --rank",
            Self::NoFiles(_) => "give a --log-dir to the next run",
        }
    }
}

/// The nodes of an attempt, by slot.
#[must_use]
pub fn members(view: &RunView, attempt: Attempt) -> Option<&[Member]> {
    view.records.iter().rev().find_map(|r| match &r.body {
        Body::Attempt(world) if r.attempt == attempt => Some(world.members.as_slice()),
        _ => None,
    })
}

/// The combined log of one node and attempt.
#[must_use]
pub fn combined(member: &Member, attempt: Attempt) -> PathBuf {
    Path::new(&member.log_dir).join(format!("attempt_{attempt}")).join("combined.log")
}

/// Directories of nodes that are looked at most where the journal does not name them.
const MAX_NODES: usize = 4096;

/// What lies in the run directory's own `logs`, for a journal that does not say where to look.
fn found(view: &RunView, wanted: &Wanted) -> Vec<Source> {
    let names = |dir: &Path| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_NODES);
        let mut names: Vec<_> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
        names.sort();
        names
    };
    let logs = view.dir.join("logs");
    let mut files: Vec<(Attempt, String, PathBuf)> = Vec::new();
    for node in names(&logs) {
        for name in names(&logs.join(&node)) {
            let path = logs.join(&node).join(&name).join("combined.log");
            let number = name.strip_prefix("attempt_").and_then(|n| n.parse().ok()).map(Attempt);
            if let Some(attempt) = number.filter(|_| path.is_file()) {
                files.push((attempt, node.clone(), path));
            }
        }
    }
    let newest = files.iter().map(|(attempt, ..)| *attempt).max();
    let attempt = wanted.attempt.or(newest);
    let source = |(attempt, node, path): (Attempt, String, PathBuf)| Source {
        title: format!("{node}, attempt {attempt}"),
        path,
        rank: wanted.rank,
        stream: wanted.stream,
    };
    files.into_iter().filter(|(number, ..)| Some(*number) == attempt).map(source).collect()
}

/// The files that hold what is asked for, in the order in which they are shown. Where the journal is damaged, and does not
/// say, what lies in the run directory is shown.
pub fn sources(view: &RunView, wanted: &Wanted) -> Result<Vec<Source>, LogsError> {
    match named(view, wanted) {
        Err(error) if view.damage.is_some() => {
            let found = found(view, wanted);
            if found.is_empty() { Err(error) } else { Ok(found) }
        }
        result => result,
    }
}

/// As the journal says.
fn named(view: &RunView, wanted: &Wanted) -> Result<Vec<Source>, LogsError> {
    let opened = view.records.iter().rev().find(|r| matches!(r.body, Body::Attempt(_)));
    let newest = opened.map(|r| r.attempt).ok_or(LogsError::NoAttempt)?;
    let attempt = wanted.attempt.unwrap_or(newest);
    let members = members(view, attempt).ok_or(LogsError::UnknownAttempt { wanted: attempt, newest })?;
    let mut sources = Vec::new();
    let mut first = 0_u32;
    for member in members {
        let here = first..first.saturating_add(member.nproc);
        if wanted.rank.is_none_or(|r| here.contains(&r.0)) {
            sources.push((member, here.clone()));
        }
        first = here.end;
    }
    if let (Some(rank), true) = (wanted.rank, sources.is_empty()) {
        return Err(LogsError::UnknownRank { attempt, wanted: rank, ranks: first });
    }
    sources.retain(|(member, _)| !member.log_dir.is_empty());
    if sources.is_empty() {
        return Err(LogsError::NoFiles(attempt));
    }
    let source = |(member, ranks): (&Member, std::ops::Range<u32>)| Source {
        title: format!(
            "{}, attempt {attempt}, ranks {}-{}",
            member.node,
            ranks.start,
            ranks.end.saturating_sub(1)
        ),
        path: combined(member, attempt),
        rank: wanted.rank,
        stream: wanted.stream,
    };
    Ok(sources.into_iter().map(source).collect())
}

impl Source {
    /// Whether a line of the file is meant. Lines begin `[time rank stream] `; one that does not continues
    /// nothing that can be told, so it is only shown when everything is.
    #[must_use]
    pub fn keeps(&self, line: &[u8]) -> bool {
        if self.rank.is_none() && self.stream.is_none() {
            return true;
        }
        let Some(end) = line.iter().take(128).position(|b| *b == b']') else { return false };
        let head = String::from_utf8_lossy(&line[..end]);
        let mut words = head.rsplit(' ');
        let (stream, rank) = (words.next(), words.next());
        self.stream.is_none_or(|s| stream == Some(s.name()))
            && self.rank.is_none_or(|r| rank == Some(r.to_string().as_str()))
    }

    /// Where what came before lies, if the file was begun anew.
    #[must_use]
    pub fn older(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".1");
        name.into()
    }
}

/// The lines of these files, the last `tail` of each. Several files get a title each; the text is exactly what
/// the ranks wrote, with time, rank and stream before each line.
pub fn read(sources: &[Source], tail: Option<usize>) -> Result<Vec<u8>, IoTrouble> {
    let mut out = Vec::new();
    for source in sources {
        if sources.len() > 1 {
            out.extend(format!("==> {} <==\n", source.title).into_bytes());
        }
        let keep = |line: &[u8]| source.keeps(line);
        let newer = look::tail(&source.path, tail, keep)?;
        let have = newer.as_ref().map_or(0, |b| b.iter().filter(|b| **b == b'\n').count());
        let older = look::tail(&source.older(), tail.map(|n| n.saturating_sub(have)), keep)?;
        if newer.is_none() && older.is_none() {
            out.extend(format!("(no file {})\n", source.path.display()).into_bytes());
        }
        out.extend(older.unwrap_or_default());
        out.extend(newer.unwrap_or_default());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::testing::{crashed, view};

    #[test]
    fn files_of_a_rank() {
        let view = view(crashed());
        let wanted = Wanted { rank: Some(Rank(5)), attempt: Some(Attempt(0)), stream: Some(Stream::Err) };
        let found = sources(&view, &wanted).unwrap();
        let shown: Vec<_> = found.iter().map(|s| format!("{} {}", s.title, s.path.display())).collect();
        insta::assert_snapshot!(shown.join("\n"), @"n02, attempt 0, ranks 4-7 /logs/r1_n02/attempt_0/combined.log");
        assert!(found[0].keeps(b"[2026-12-01 14:03:22.120 5 stderr] boom\n"));
        assert!(!found[0].keeps(b"[2026-12-01 14:03:22.120 15 stderr] boom\n"));
        assert!(!found[0].keeps(b"[2026-12-01 14:03:22.120 5 stdout] boom\n"));
        assert!(!found[0].keeps(b"boom 5 stderr\n") && !found[0].keeps(b""));
        assert_eq!(sources(&view, &Wanted::default()).unwrap().len(), 2);
    }

    #[test]
    fn the_last_lines_reach_back_into_the_older_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("combined.log");
        std::fs::write(&path, "[t 1 stdout] c\n[t 0 stdout] d\n[t 1 stdout] e\n").unwrap();
        let source = Source { title: "n01".into(), path, rank: Some(Rank(1)), stream: None };
        std::fs::write(source.older(), "[t 1 stdout] a\n[t 1 stderr] b\n").unwrap();
        let text = |tail| String::from_utf8(read(std::slice::from_ref(&source), tail).unwrap()).unwrap();
        assert_eq!(text(Some(3)), "[t 1 stderr] b\n[t 1 stdout] c\n[t 1 stdout] e\n");
        assert_eq!(text(Some(1)), "[t 1 stdout] e\n");
        assert_eq!(text(None).lines().count(), 4);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let full = view(crashed());
        let rank = Wanted { rank: Some(Rank(8)), ..Wanted::default() };
        let attempt = Wanted { attempt: Some(Attempt(9)), ..Wanted::default() };
        let errors = [
            sources(&full, &rank).unwrap_err(),
            sources(&full, &attempt).unwrap_err(),
            sources(&view(vec![]), &Wanted::default()).unwrap_err(),
        ];
        let said = errors.map(|e| format!("{e}; {}", e.hint())).join("\n");
        insta::assert_snapshot!(said, @r"
        attempt 1 has no rank 8: it has 8 ranks, from 0; choose another --rank
        this run has no attempt 9: the newest is 1; choose another --attempt
        no attempt of this run has been opened yet; see what it waits for: relight status
        ");
    }
}
