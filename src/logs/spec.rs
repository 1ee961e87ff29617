//! Which stream goes to which file and whether the console shows it; torchrun's `--redirects`, `--tee`,
//! `--local-ranks-filter` and `--log-line-prefix-template`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::wire::{Source, Stream};
use crate::domain::ids::{Attempt, LocalRank};
use crate::domain::settings::{StreamMap, Streams};

/// Above so many ranks in the world the console shows rank 0 only.
pub const CONSOLE_RANKS: u32 = 16;

/// How long the combined log gets before it becomes `combined.log.1`, in bytes.
pub const COMBINED_LIMIT: u64 = 64 << 20;

/// Is `stream` in the set?
fn has(streams: Streams, stream: Stream) -> bool {
    match stream {
        Stream::Out => streams.stdout,
        Stream::Err => streams.stderr,
    }
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
    /// The directory is made and tried at a worker's start; not where somebody else makes the one above it.
    pub try_dir: bool,
    /// Streams that go to files only.
    pub redirects: StreamMap,
    /// Streams that go to files and, behind a prefix, to the console.
    pub tee: StreamMap,
    /// Local ranks on the console; `None`: all (above 16 ranks in the world: rank 0).
    pub console: Option<BTreeSet<u32>>,
    /// `${role_name} ${local_rank} ${rank} ${hostname}`; empty: `[${role_name}${local_rank}]:`.
    pub prefix: String,
    /// Lines of standard output and of standard error that the console shows behind a prefix and that hold one of
    /// these texts go to a file of the attempt, too.
    pub filters: [Vec<String>; 2],
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
            try_dir: false,
            redirects: StreamMap::default(),
            tee: StreamMap::default(),
            console: None,
            prefix: String::new(),
            filters: [Vec::new(), Vec::new()],
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
        if !has(self.redirects.of(local_rank.0), stream) && !has(self.tee.of(local_rank.0), stream) {
            return None;
        }
        self.rank_dir(attempt, local_rank).map(|d| d.join(format!("{}.log", stream.name())))
    }

    /// Every line of every rank of this node.
    #[must_use]
    pub fn combined_file(&self, attempt: Attempt) -> Option<PathBuf> {
        self.attempt_dir(attempt).map(|d| d.join("combined.log"))
    }

    /// Where lines that match a filter go; `None`: there is no filter.
    #[must_use]
    pub fn filtered_file(&self, attempt: Attempt, stream: Stream) -> Option<PathBuf> {
        let wanted = !self.filters[stream.index()].is_empty();
        self.attempt_dir(attempt)
            .filter(|_| wanted)
            .map(|d| d.join(format!("filtered_{}.log", stream.name())))
    }

    /// Whether lines of this stream are looked at: as under torchrun those that `--tee` names.
    #[must_use]
    pub fn filters_of(&self, local_rank: LocalRank, stream: Stream) -> bool {
        has(self.tee.of(local_rank.0), stream) && !self.filters[stream.index()].is_empty()
    }

    /// Whether a line is written once more.
    #[must_use]
    pub fn matches(&self, stream: Stream, line: &[u8]) -> bool {
        let holds =
            |text: &String| text.is_empty() || line.windows(text.len()).any(|part| part == text.as_bytes());
        self.filters[stream.index()].iter().any(holds)
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
        } else if has(self.tee.of(source.local_rank.0), stream) {
            Show::Lines
        } else if has(self.redirects.of(source.local_rank.0), stream) {
            Show::Nothing
        } else {
            Show::Raw
        }
    }

    /// Whether a failure may bring a hidden stream to the console. What somebody sent to files only stays there:
    /// the report of the failure has its last words.
    #[must_use]
    pub fn may_reveal(&self, source: Source, stream: Stream) -> bool {
        let local = source.local_rank.0;
        has(self.tee.of(local), stream) || !has(self.redirects.of(local), stream)
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

    fn map(text: &str) -> StreamMap {
        crate::domain::settings::stream_map(text).unwrap()
    }

    fn filter(text: &str) -> Option<BTreeSet<u32>> {
        (!text.is_empty()).then(|| text.split(',').map(|r| r.parse().unwrap()).collect())
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
                redirects: map(r),
                tee: map(t),
                console: filter(f),
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
        let mut spec = LogSpec { dir: Some("/l/r_n".into()), redirects: map("2"), ..LogSpec::default() };
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
        let spec = LogSpec { tee: map("0:3,1:1"), ..LogSpec::default() };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<LogSpec>(&text).unwrap(), spec);
    }
}
