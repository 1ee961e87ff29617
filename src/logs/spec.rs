//! Which stream goes to which file and whether the console shows it; torchrun's `--redirects`, `--tee`,
//! `--local-ranks-filter` and `--log-line-prefix-template`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::wire::{Source, Stream};
use crate::domain::ids::{Attempt, LocalRank};

/// Above so many ranks in the world the console shows rank 0 only.
pub const CONSOLE_RANKS: u32 = 16;

/// How long the combined log gets before it becomes `combined.log.1`, in bytes.
pub const COMBINED_LIMIT: u64 = 64 << 20;

/// A set of the two output streams: torchrun's 0, 1 (stdout), 2 (stderr), 3 (both).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Streams(u8);

impl Streams {
    /// Neither.
    pub const NONE: Self = Self(0);
    /// Standard output.
    pub const OUT: Self = Self(1);
    /// Standard error.
    pub const ERR: Self = Self(2);
    /// Both.
    pub const BOTH: Self = Self(3);

    /// Is `stream` in the set?
    #[must_use]
    pub fn has(self, stream: Stream) -> bool {
        self.0 & (1 << stream.index()) != 0
    }
}

impl TryFrom<u8> for Streams {
    type Error = StreamMapError;

    fn try_from(value: u8) -> Result<Self, StreamMapError> {
        if value <= 3 { Ok(Self(value)) } else { Err(StreamMapError::Value { value: value.to_string() }) }
    }
}

impl From<Streams> for u8 {
    fn from(s: Streams) -> Self {
        s.0
    }
}

impl FromStr for Streams {
    type Err = StreamMapError;

    fn from_str(s: &str) -> Result<Self, StreamMapError> {
        match s {
            "0" => Ok(Self::NONE),
            "1" => Ok(Self::OUT),
            "2" => Ok(Self::ERR),
            "3" => Ok(Self::BOTH),
            _ => Err(StreamMapError::Value { value: s.into() }),
        }
    }
}

/// Why a value of `--redirects` or `--tee` is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamMapError {
    /// Nothing given.
    #[error("an empty value: give 0, 1 (stdout), 2 (stderr) or 3 (both), or a map such as 0:3,1:1")]
    Empty,
    /// Not one of the four sets.
    #[error("`{value}` is not 0 (none), 1 (stdout), 2 (stderr) or 3 (both)")]
    Value {
        /// As given.
        value: String,
    },
    /// An entry of a map that is not `local rank:value`.
    #[error("`{entry}` is not LOCAL_RANK:VALUE (a map is written as 0:3,1:1)")]
    Entry {
        /// As given.
        entry: String,
    },
}

/// A set of streams for every local rank: one value for all, or a map in which a rank that is not
/// mentioned has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMap {
    /// For ranks without an entry.
    pub others: Streams,
    /// By local rank.
    pub ranks: BTreeMap<u32, Streams>,
}

impl StreamMap {
    /// The same for every rank.
    #[must_use]
    pub fn all(streams: Streams) -> Self {
        Self { others: streams, ranks: BTreeMap::new() }
    }

    /// The set for one local rank.
    #[must_use]
    pub fn of(&self, local_rank: LocalRank) -> Streams {
        self.ranks.get(&local_rank.0).copied().unwrap_or(self.others)
    }
}

impl FromStr for StreamMap {
    type Err = StreamMapError;

    /// torchrun's syntax; local ranks of several digits are accepted too. An entry given twice: the later.
    fn from_str(s: &str) -> Result<Self, StreamMapError> {
        if s.is_empty() {
            return Err(StreamMapError::Empty);
        }
        if !s.contains([':', ',']) {
            return Ok(Self::all(s.parse()?));
        }
        let mut ranks = BTreeMap::new();
        for entry in s.split(',') {
            let bad = || StreamMapError::Entry { entry: entry.into() };
            let (rank, value) = entry.split_once(':').ok_or_else(bad)?;
            if rank.is_empty() || !rank.bytes().all(|b| b.is_ascii_digit()) {
                return Err(bad());
            }
            ranks.insert(rank.parse().map_err(|_| bad())?, value.parse()?);
        }
        Ok(Self { others: Streams::NONE, ranks })
    }
}

/// Why a value of `--local-ranks-filter` is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{entry}` is no local rank: give a comma-separated list of integers, e.g. 0,1,2")]
pub struct FilterError {
    /// The entry as given.
    pub entry: String,
}

/// Reads `--local-ranks-filter`; an empty text is no filter.
///
/// # Errors
/// An entry that is no integer.
pub fn parse_filter(s: &str) -> Result<Option<BTreeSet<u32>>, FilterError> {
    if s.trim().is_empty() {
        return Ok(None);
    }
    let read = |e: &str| e.trim().parse().map_err(|_| FilterError { entry: e.trim().into() });
    s.split(',').map(read).collect::<Result<_, _>>().map(Some)
}

/// How the console shows a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Not at all.
    Nothing,
    /// Byte for byte.
    Raw,
    /// Line by line behind the prefix.
    Lines,
}

/// Everything the logs worker has to know about where output goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSpec {
    /// `<log_dir>/<run_id>_<node>`; without one there are no files. Must be UTF-8.
    pub dir: Option<PathBuf>,
    /// Streams that go to files only.
    pub redirects: StreamMap,
    /// Streams that go to files and, behind a prefix, to the console.
    pub tee: StreamMap,
    /// Local ranks on the console; `None`: all (above 16 ranks in the world: rank 0).
    pub console: Option<BTreeSet<u32>>,
    /// `${role_name} ${local_rank} ${rank} ${hostname}`; empty: `[${role_name}${local_rank}]:`.
    pub prefix: String,
    /// For the prefix.
    pub role: String,
    /// Short host name, for the prefix.
    pub host: String,
    /// The combined log is begun anew at this length in bytes; one older one is kept.
    pub combined_limit: u64,
}

impl Default for LogSpec {
    fn default() -> Self {
        Self {
            dir: None,
            redirects: StreamMap::default(),
            tee: StreamMap::default(),
            console: None,
            prefix: String::new(),
            role: "default".into(),
            host: String::new(),
            combined_limit: COMBINED_LIMIT,
        }
    }
}

impl LogSpec {
    /// `attempt_<n>`.
    #[must_use]
    pub fn attempt_dir(&self, attempt: Attempt) -> Option<PathBuf> {
        self.dir.as_ref().map(|d| d.join(format!("attempt_{attempt}")))
    }

    /// `attempt_<n>/<local_rank>`. Exists once the worker has seen the rank.
    #[must_use]
    pub fn rank_dir(&self, attempt: Attempt, local_rank: LocalRank) -> Option<PathBuf> {
        self.attempt_dir(attempt).map(|d| d.join(local_rank.to_string()))
    }

    /// Where the rank's `TORCHELASTIC_ERROR_FILE` goes.
    #[must_use]
    pub fn error_file(&self, attempt: Attempt, local_rank: LocalRank) -> Option<PathBuf> {
        self.rank_dir(attempt, local_rank).map(|d| d.join("error.json"))
    }

    /// The file of one stream; only redirected and tee'd ones have one.
    #[must_use]
    pub fn stream_file(&self, attempt: Attempt, local_rank: LocalRank, stream: Stream) -> Option<PathBuf> {
        if !self.redirects.of(local_rank).has(stream) && !self.tee.of(local_rank).has(stream) {
            return None;
        }
        self.rank_dir(attempt, local_rank).map(|d| d.join(format!("{}.log", stream.name())))
    }

    /// Every line of every rank of this node.
    #[must_use]
    pub fn combined_file(&self, attempt: Attempt) -> Option<PathBuf> {
        self.attempt_dir(attempt).map(|d| d.join("combined.log"))
    }

    /// What the console does with a stream.
    #[must_use]
    pub fn show(&self, source: Source, stream: Stream) -> Show {
        let wanted = match &self.console {
            Some(ranks) => ranks.contains(&source.local_rank.0),
            None => source.world_size <= CONSOLE_RANKS || source.rank.0 == 0,
        };
        if !wanted {
            Show::Nothing
        } else if self.tee.of(source.local_rank).has(stream) {
            Show::Lines
        } else if self.redirects.of(source.local_rank).has(stream) {
            Show::Nothing
        } else {
            Show::Raw
        }
    }

    /// What stands before a line of this rank on the console. As Python's `Template.safe_substitute`: what
    /// is unknown stays, `$$` is a dollar sign.
    #[must_use]
    pub fn line_prefix(&self, source: Source) -> String {
        let template = if self.prefix.is_empty() { "[${role_name}${local_rank}]:" } else { &self.prefix };
        let mut out = String::new();
        let mut rest = template;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
                continue;
            }
            let braced = rest.strip_prefix('{');
            let text = braced.unwrap_or(rest);
            let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
            let (name, after) = text.split_at(end);
            let after = if braced.is_some() { after.strip_prefix('}') } else { Some(after) };
            let Some(after) = after else {
                out.push('$');
                continue;
            };
            // Writing into a String cannot fail.
            let _ = match name {
                "role_name" => write!(out, "{}", self.role),
                "local_rank" => write!(out, "{}", source.local_rank),
                "rank" => write!(out, "{}", source.rank),
                "hostname" => write!(out, "{}", self.host),
                _ => {
                    out.push('$');
                    continue;
                }
            };
            rest = after;
        }
        out.push_str(rest);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Rank;

    fn source(local: u32, rank: u32, world_size: u32) -> Source {
        Source { attempt: Attempt(2), local_rank: LocalRank(local), rank: Rank(rank), world_size }
    }

    #[test]
    fn stream_maps() {
        let all = |s| Ok(StreamMap::all(s));
        assert_eq!("0".parse(), all(Streams::NONE));
        assert_eq!("3".parse(), all(Streams::BOTH));
        let map: StreamMap = "0:3,1:1,12:2".parse().unwrap();
        assert_eq!(map.of(LocalRank(0)), Streams::BOTH);
        assert_eq!(map.of(LocalRank(1)), Streams::OUT);
        assert_eq!(map.of(LocalRank(12)), Streams::ERR);
        assert_eq!(map.of(LocalRank(2)), Streams::NONE);
        assert_eq!("0:1,0:2".parse::<StreamMap>().unwrap().of(LocalRank(0)), Streams::ERR);
        for (bad, says) in [
            ("", "empty value"),
            ("4", "`4` is not 0 (none)"),
            ("33", "`33`"),
            ("x", "`x`"),
            ("0:4", "`4`"),
            ("0:", "`` is not"),
            (":1", "`:1` is not LOCAL_RANK:VALUE"),
            ("0:1,", "`` is not LOCAL_RANK"),
            ("+1:1", "`+1:1`"),
            ("0:1,3", "`3` is not LOCAL_RANK"),
            ("99999999999:1", "`99999999999:1`"),
        ] {
            let e = bad.parse::<StreamMap>().unwrap_err().to_string();
            assert!(e.contains(says), "{bad}: {e}");
        }
    }

    #[test]
    fn filters() {
        assert_eq!(parse_filter(""), Ok(None));
        assert_eq!(parse_filter("0, 2,10"), Ok(Some(BTreeSet::from([0, 2, 10]))));
        assert!(parse_filter("0,a").unwrap_err().to_string().contains("`a`"));
        assert!(parse_filter("0,").is_err());
    }

    #[test]
    fn prefixes() {
        let mut spec = LogSpec { host: "n7".into(), ..LogSpec::default() };
        let s = source(3, 11, 16);
        for (template, want) in [
            ("", "[default3]:"),
            ("${hostname}/${rank} ", "n7/11 "),
            ("$role_name-$local_rank|", "default-3|"),
            ("$$ ${nope} $nope ${rank $ €", "$ ${nope} $nope ${rank $ €"),
            ("${rank}", "11"),
            ("$", "$"),
        ] {
            spec.prefix = template.into();
            assert_eq!(spec.line_prefix(s), want, "{template}");
        }
        spec.prefix.clear();
        spec.role = "n1:".into();
        assert_eq!(spec.line_prefix(s), "[n1:3]:");
    }

    #[test]
    fn console_and_files() {
        use Show::{Lines, Nothing, Raw};
        // redirects, tee, filter, (local, rank, world), shown stdout, has file
        type Row = (&'static str, &'static str, &'static str, (u32, u32, u32), Show, bool);
        let table: &[Row] = &[
            ("0", "0", "", (1, 1, 4), Raw, false),
            ("1", "0", "", (1, 1, 4), Nothing, true),
            ("2", "0", "", (1, 1, 4), Raw, false),
            ("0", "3", "", (1, 1, 4), Lines, true),
            ("3", "1", "", (1, 1, 4), Lines, true),
            ("1:3", "0", "", (0, 0, 4), Raw, false),
            ("1:3", "0", "", (1, 1, 4), Nothing, true),
            ("0", "0", "0,2", (1, 1, 4), Nothing, false),
            ("0", "3", "0,2", (1, 1, 4), Nothing, true),
            ("0", "3", "0,2", (2, 2, 4), Lines, true),
            ("0", "0", "", (0, 0, 16), Raw, false),
            ("0", "0", "", (7, 15, 16), Raw, false),
            ("0", "0", "", (0, 0, 17), Raw, false),
            ("0", "0", "", (0, 8, 17), Nothing, false),
            ("0", "3", "", (1, 1, 17), Nothing, true),
            ("0", "0", "0", (0, 8, 32), Raw, false),
            ("0", "3", "1", (0, 0, 32), Nothing, true),
        ];
        for (r, t, f, (local, rank, world), show, file) in table {
            let spec = LogSpec {
                dir: Some("/logs/run_n1".into()),
                redirects: r.parse().unwrap(),
                tee: t.parse().unwrap(),
                console: parse_filter(f).unwrap(),
                ..LogSpec::default()
            };
            let s = source(*local, *rank, *world);
            assert_eq!(spec.show(s, Stream::Out), *show, "{r} {t} {f} {s:?}");
            assert_eq!(
                spec.stream_file(s.attempt, s.local_rank, Stream::Out).is_some(),
                *file,
                "{r} {t} {f} {s:?}"
            );
        }
    }

    #[test]
    fn paths() {
        let mut spec = LogSpec {
            dir: Some("/l/r_n".into()),
            redirects: StreamMap::all(Streams::ERR),
            ..LogSpec::default()
        };
        let (a, l) = (Attempt(3), LocalRank(12));
        let text = |p: Option<PathBuf>| p.map(|p| p.display().to_string());
        assert_eq!(text(spec.stream_file(a, l, Stream::Err)).unwrap(), "/l/r_n/attempt_3/12/stderr.log");
        assert_eq!(text(spec.stream_file(a, l, Stream::Out)), None);
        assert_eq!(text(spec.error_file(a, l)).unwrap(), "/l/r_n/attempt_3/12/error.json");
        assert_eq!(text(spec.combined_file(a)).unwrap(), "/l/r_n/attempt_3/combined.log");
        spec.dir = None;
        assert_eq!((text(spec.error_file(a, l)), text(spec.combined_file(a))), (None, None));
    }

    #[test]
    fn spec_is_plain_data() {
        let spec = LogSpec { tee: "0:3,1:1".parse().unwrap(), ..LogSpec::default() };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<LogSpec>(&text).unwrap(), spec);
        assert!(serde_json::from_str::<Streams>("4").is_err());
    }
}
