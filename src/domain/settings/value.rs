//! Values: how each kind of setting is written, and where a value came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::file::Line;
use crate::domain::numa::NumaBinding;
use crate::domain::spec::{GrantMode, StoreHost};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Typed.
    CommandLine,
    /// A variable.
    Env(&'static str),
    /// A configuration file.
    File(PathBuf, Line),
    /// Nobody said anything; why this default.
    Default(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CommandLine => f.write_str("command line"),
            Self::Env(name) => f.write_str(name),
            Self::File(path, line) => write!(f, "{}:{}", path.display(), line.0),
            Self::Default("") => f.write_str("default"),
            Self::Default(why) => write!(f, "default: {why}"),
        }
    }
}

/// A value with its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value<T> {
    /// The value.
    pub value: T,
    /// Where it came from.
    pub origin: Origin,
}

/// Why a text is no value of its setting.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueProblem {
    /// An integer is wanted.
    #[error("is not a whole number")]
    NotANumber,
    /// Less than zero.
    #[error("is negative")]
    Negative,
    /// Zero where at least one is needed.
    #[error("must be at least 1")]
    Zero,
    /// Beyond every limit.
    #[error("is too large (at most {0})")]
    TooLarge(u64),
    /// Neither N nor MIN:MAX.
    #[error("is neither N nor MIN:MAX")]
    NotNodes,
    /// MIN > MAX.
    #[error("says more nodes at least than at most")]
    NodesOrder,
    /// More than one node.
    #[error("asks for several nodes, and this is no Slurm job (or --standalone was given)")]
    SeveralNodes,
    /// Several machines, and nothing that says who belongs to them.
    #[error("asks for several machines outside Slurm, and nothing tells them from strangers")]
    NoSecret,
    /// A number beyond the others.
    #[error("is beyond the last one, {}: --nnodes and --spares say how many machines there are", most.saturating_sub(1))]
    NodeRank {
        /// So many there are.
        most: u32,
    },
    /// No port.
    #[error("is no port: a whole number from 0 to 65535")]
    Port,
    /// Any port, where all must know it.
    #[error("leaves the port open, and every machine must know it")]
    SharedPort,
    /// More than there are.
    #[error("asks for more nodes than the {there} that are there")]
    TooFewNodes {
        /// Nodes of the allocation.
        there: u32,
    },
    /// A name, or nothing at all.
    #[error("is no IP address")]
    NotAnAddress,
    /// No kind of count.
    #[error("is neither a number nor one of auto, gpu, cpu, xpu")]
    NotNproc,
    /// GPUs are asked for.
    #[error("needs a GPU, and none is visible on this machine")]
    NoGpu,
    /// GPUs of Intel are asked for.
    #[error("needs a GPU of Intel, and none is visible on this machine")]
    NoXpu,
    /// A store that relight does not talk to.
    #[error("needs an etcd server, and relight needs none: leave the option out, or say c10d")]
    Etcd,
    /// A plug-in of torchrun's.
    #[error("is no rendezvous backend: relight knows static and c10d, and cannot load a plug-in of torchrun")]
    NotBackend,
    /// The port of an endpoint.
    #[error("has no port that can be: it must be a whole number from 0 to 65535 behind the last colon")]
    EndpointPort,
    /// The host of an endpoint.
    #[error("has no host that can be: write a name, an IPv4 address, or an IPv6 address in brackets")]
    EndpointHost,
    /// Not `key=value`.
    #[error("is not of the form key=value,key=value")]
    ConfPair,
    /// A key without its value.
    #[error("gives no value for {0}")]
    ConfValue(String),
    /// A timeout that is none.
    #[error("gives {0} a value that is no whole number of seconds from 1 up")]
    ConfSeconds(String),
    /// Seconds, with a fraction.
    #[error("is not a number of seconds")]
    NotSeconds,
    /// Zero or less.
    #[error("must be above 0")]
    NotPositive,
    /// No start method of Python's.
    #[error("is none of spawn, fork, forkserver")]
    NotStartMethod,
    /// A plug-in of torchrun's.
    #[error("is a Python plug-in of torchrun, which relight cannot load: leave it out, or say default")]
    LogsPlugin,
    /// A plug-in of torchrun's.
    #[error("is neither null nor console, and relight cannot load a plug-in of torchrun")]
    NotHandler,
    /// No way to bind.
    #[error("is none of node, socket, exclusive, core-complex")]
    NotNuma,
    /// No stream selection.
    #[error("selects no streams: write 0 (none), 1 (stdout), 2 (stderr), 3 (both), or a map such as 0:3,1:1")]
    NotStreams,
    /// A map names a local rank twice.
    #[error("names local rank {0} twice")]
    RankTwice(u32),
    /// No truth value.
    #[error("is neither 0 nor 1")]
    NotAFlag,
    /// No duration.
    #[error("is not a duration: write seconds, or a number with ms, s, min or h")]
    NotADuration,
    /// No list of ranks.
    #[error("is not a list of local ranks, such as 0,1,2")]
    NotRanks,
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// A run id is also the name of a directory.
    #[error("cannot name a run: '{}' is not allowed in it", .0.escape_default())]
    RunIdChar(char),
    /// A name that hides or looks like an option.
    #[error("cannot name a run: it starts with '{0}'")]
    RunIdStart(char),
    /// Too long for a directory with suffixes.
    #[error("cannot name a run: it is longer than {0} bytes")]
    RunIdLong(usize),
    /// No grant mode.
    #[error("is neither auto nor lease")]
    NotGrant,
    /// Nobody who could host the store.
    #[error("is neither agent nor rank0")]
    NotStoreHost,
    /// Not one of the words of the setting.
    #[error("is none of {0}")]
    NotOneOf(&'static str),
    /// No name with a time.
    #[error("is no NAME=TIME")]
    NotPhaseTime,
    /// No absolute path could be made of it.
    #[error("contains a NUL byte")]
    Nul,
}

/// Nodes of the world, at least and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{}:{}", self.min, self.max) }
    }
}

/// How many ranks a node gets, as asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nproc {
    /// So many.
    Count(u32),
    /// One for each GPU, else for each CPU.
    Auto,
    /// One for each GPU.
    Gpu,
    /// One for each CPU.
    Cpu,
    /// One for each GPU of Intel.
    Xpu,
}

/// Which of the two output streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

/// torchrun's stream selection: one mask for all local ranks, or a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamMap {
    /// For ranks that the map does not name.
    pub others: Streams,
    /// By local rank.
    pub ranks: BTreeMap<u32, Streams>,
}

impl Streams {
    /// Standard output and standard error.
    pub const BOTH: Self = Self { stdout: true, stderr: true };
}

impl StreamMap {
    /// The same for every rank.
    #[must_use]
    pub fn all(streams: Streams) -> Self {
        Self { others: streams, ranks: BTreeMap::new() }
    }

    /// What holds for one local rank.
    #[must_use]
    pub fn of(&self, local_rank: u32) -> Streams {
        self.ranks.get(&local_rank).copied().unwrap_or(self.others)
    }
}

impl fmt::Display for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", u8::from(self.stdout) + 2 * u8::from(self.stderr))
    }
}

impl fmt::Display for StreamMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ranks.is_empty() {
            return self.others.fmt(f);
        }
        for (i, (rank, streams)) in self.ranks.iter().enumerate() {
            write!(f, "{}{rank}:{streams}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Where the ranks' log files go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogDir {
    /// Into the run directory.
    #[default]
    InRunDir,
    /// Here.
    At(PathBuf),
    /// Nowhere (`/dev/null`).
    Off,
}

/// A whole number in a range; blanks around it do not count, as for Python.
pub(super) fn number(text: &str, max: u32) -> Result<u32, ValueProblem> {
    let text = text.trim();
    let digits = text.strip_prefix('+').unwrap_or(text);
    if let Some(rest) = text.strip_prefix('-')
        && !rest.is_empty()
        && rest.bytes().all(|b| b.is_ascii_digit())
    {
        return Err(ValueProblem::Negative);
    }
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ValueProblem::NotANumber);
    }
    match digits.parse::<u32>() {
        Ok(n) if n <= max => Ok(n),
        Ok(_) | Err(_) => Err(ValueProblem::TooLarge(u64::from(max))),
    }
}

pub(super) fn flag(text: &str) -> Result<bool, ValueProblem> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        // torchrun takes any whole number.
        text => text.trim().parse::<i64>().map(|n| n != 0).map_err(|_| ValueProblem::NotAFlag),
    }
}

/// A flag's text that says yes.
#[must_use]
pub fn is_on(text: &str) -> bool {
    flag(text) == Ok(true)
}

/// More than any cluster has.
pub(super) const MOST_NODES: u32 = 100_000;

pub(super) fn nodes(text: &str) -> Result<Nodes, ValueProblem> {
    let one = |text: &str| match number(text, MOST_NODES) {
        Ok(0) => Err(ValueProblem::Zero),
        Err(ValueProblem::NotANumber) => Err(ValueProblem::NotNodes),
        other => other,
    };
    let (min, max) = match text.split_once(':') {
        Some((min, max)) => (one(min)?, one(max)?),
        None => (one(text)?, one(text)?),
    };
    if min > max {
        return Err(ValueProblem::NodesOrder);
    }
    Ok(Nodes { min, max })
}

/// Ranks of one node: each costs a process, four descriptors and a look now and then. More is a typing error.
const MOST_RANKS: u32 = 4096;

pub(super) fn nproc(text: &str) -> Result<Nproc, ValueProblem> {
    match text {
        "auto" => Ok(Nproc::Auto),
        "gpu" => Ok(Nproc::Gpu),
        "cpu" => Ok(Nproc::Cpu),
        "xpu" => Ok(Nproc::Xpu),
        _ => match number(text, MOST_RANKS) {
            Ok(0) => Err(ValueProblem::Zero),
            Ok(n) => Ok(Nproc::Count(n)),
            Err(ValueProblem::NotANumber) => Err(ValueProblem::NotNproc),
            Err(other) => Err(other),
        },
    }
}

/// `None`: no limit.
pub(super) fn max_restarts(text: &str) -> Result<Option<u32>, ValueProblem> {
    if text == "unlimited" { Ok(None) } else { number(text, i32::MAX as u32).map(Some) }
}

pub fn stream_map(text: &str) -> Result<StreamMap, ValueProblem> {
    let mask = |text: &str| match text {
        "0" => Ok(Streams::default()),
        "1" => Ok(Streams { stdout: true, stderr: false }),
        "2" => Ok(Streams { stdout: false, stderr: true }),
        "3" => Ok(Streams { stdout: true, stderr: true }),
        _ => Err(ValueProblem::NotStreams),
    };
    if !text.contains(':') {
        return Ok(StreamMap { others: mask(text)?, ranks: BTreeMap::new() });
    }
    let mut map = StreamMap::default();
    for pair in text.split(',') {
        let (rank, streams) = pair.split_once(':').ok_or(ValueProblem::NotStreams)?;
        let rank = number(rank, 65_535).map_err(|_| ValueProblem::NotStreams)?;
        if map.ranks.insert(rank, mask(streams)?).is_some() {
            return Err(ValueProblem::RankTwice(rank));
        }
    }
    Ok(map)
}

/// Empty: all of them.
pub(super) fn ranks(text: &str) -> Result<Option<Vec<u32>>, ValueProblem> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut list = text
        .split(',')
        .map(|one| number(one.trim(), 65_535).map_err(|_| ValueProblem::NotRanks))
        .collect::<Result<Vec<u32>, _>>()?;
    list.sort_unstable();
    list.dedup();
    Ok(Some(list))
}

/// A duration in milliseconds: `6`, `0.5`, `1500ms`, `2min`, `1h`; a bare number counts seconds. At most a year.
///
/// # Errors
/// It is negative, no number, or too large.
pub fn duration_ms(text: &str) -> Result<u64, ValueProblem> {
    const MOST_MS: u64 = 365 * 24 * 3_600_000;
    let text = text.trim();
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (figure, unit) = text.split_at(split);
    let factor = match unit {
        "ms" => 1.0,
        "" | "s" | "sec" => 1_000.0,
        "m" | "min" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return Err(ValueProblem::NotADuration),
    };
    let figure: f64 = figure.trim().parse().map_err(|_| ValueProblem::NotADuration)?;
    if figure < 0.0 {
        return Err(ValueProblem::Negative);
    }
    let seconds = figure * factor / 1_000.0;
    let ms = Duration::try_from_secs_f64(seconds).map_err(|_| ValueProblem::TooLarge(MOST_MS / 1000))?;
    match u64::try_from(ms.as_millis()) {
        Ok(ms) if ms <= MOST_MS => Ok(ms),
        Ok(_) | Err(_) => Err(ValueProblem::TooLarge(MOST_MS / 1000)),
    }
}

pub(super) fn duration_at_least_1ms(text: &str) -> Result<u64, ValueProblem> {
    match duration_ms(text)? {
        0 => Err(ValueProblem::NotADuration),
        ms => Ok(ms),
    }
}

pub(super) fn run_id(text: &str) -> Result<String, ValueProblem> {
    const LONGEST: usize = 128;
    let first = text.chars().next().ok_or(ValueProblem::Empty)?;
    if matches!(first, '.' | '-') {
        return Err(ValueProblem::RunIdStart(first));
    }
    if text.len() > LONGEST {
        return Err(ValueProblem::RunIdLong(LONGEST));
    }
    match text.chars().find(|c| *c == '/' || c.is_control() || c.is_whitespace()) {
        Some(c) => Err(ValueProblem::RunIdChar(c)),
        None => Ok(text.to_owned()),
    }
}

pub(super) fn grant(text: &str) -> Result<GrantMode, ValueProblem> {
    match text {
        "auto" => Ok(GrantMode::Auto),
        "lease" => Ok(GrantMode::Lease),
        _ => Err(ValueProblem::NotGrant),
    }
}

pub(super) fn store_host(text: &str) -> Result<StoreHost, ValueProblem> {
    match text {
        "agent" => Ok(StoreHost::Agent),
        "rank0" => Ok(StoreHost::Rank0),
        _ => Err(ValueProblem::NotStoreHost),
    }
}

pub(super) fn numa(text: &str) -> Result<Option<NumaBinding>, ValueProblem> {
    NumaBinding::named(text).map(Some).ok_or(ValueProblem::NotNuma)
}

pub(super) fn path(text: &str) -> Result<PathBuf, ValueProblem> {
    match text {
        "" => Err(ValueProblem::Empty),
        _ if text.contains('\0') => Err(ValueProblem::Nul),
        _ => Ok(PathBuf::from(text)),
    }
}

pub(super) fn log_dir(text: &str) -> Result<LogDir, ValueProblem> {
    match path(text)? {
        path if path.as_os_str() == "/dev/null" => Ok(LogDir::Off),
        path => Ok(LogDir::At(path)),
    }
}

pub(super) fn role(text: &str) -> Result<String, ValueProblem> {
    if text.contains('\0') { Err(ValueProblem::Nul) } else { Ok(text.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, want) in [
            ("6", Ok(6_000)),
            ("0", Ok(0)),
            ("0.25", Ok(250)),
            ("1500ms", Ok(1_500)),
            ("2 min", Ok(120_000)),
            ("1h", Ok(3_600_000)),
            ("-1", Err(ValueProblem::Negative)),
            ("", Err(ValueProblem::NotADuration)),
            ("s", Err(ValueProblem::NotADuration)),
            ("6x", Err(ValueProblem::NotADuration)),
            ("NaN", Err(ValueProblem::NotADuration)),
            ("inf", Err(ValueProblem::NotADuration)),
            ("1e300", Err(ValueProblem::NotADuration)),
            ("99999999999", Err(ValueProblem::TooLarge(31_536_000))),
        ] {
            assert_eq!(duration_ms(text), want, "{text}");
        }
    }

    #[test]
    fn stream_maps() {
        for (text, shown) in [
            ("0", Ok("0")),
            ("3", Ok("3")),
            ("1:3,0:1", Ok("0:1,1:3")),
            ("10:2", Ok("10:2")),
            ("4", Err(ValueProblem::NotStreams)),
            ("", Err(ValueProblem::NotStreams)),
            ("0:1,", Err(ValueProblem::NotStreams)),
            ("x:1", Err(ValueProblem::NotStreams)),
            ("0:1,0:2", Err(ValueProblem::RankTwice(0))),
        ] {
            assert_eq!(stream_map(text).map(|map| map.to_string()), shown.map(str::to_owned), "{text}");
        }
        let map = stream_map("1:3").unwrap();
        assert_eq!(map.of(0), Streams::default());
        assert_eq!(map.of(1), Streams { stdout: true, stderr: true });
    }

    #[test]
    fn numbers_of_nodes_and_ranks() {
        for (text, want) in [
            ("1", Ok(Nodes { min: 1, max: 1 })),
            ("1:4", Ok(Nodes { min: 1, max: 4 })),
            ("0", Err(ValueProblem::Zero)),
            ("4:1", Err(ValueProblem::NodesOrder)),
            ("1:2:3", Err(ValueProblem::NotNodes)),
            ("x", Err(ValueProblem::NotNodes)),
            ("-1", Err(ValueProblem::Negative)),
            ("99999999999999999999", Err(ValueProblem::TooLarge(100_000))),
        ] {
            assert_eq!(nodes(text), want, "{text}");
        }
        for (text, want) in [
            ("8", Ok(Nproc::Count(8))),
            ("auto", Ok(Nproc::Auto)),
            ("0", Err(ValueProblem::Zero)),
            ("-2", Err(ValueProblem::Negative)),
            ("xpu", Ok(Nproc::Xpu)),
            ("tpu", Err(ValueProblem::NotNproc)),
        ] {
            assert_eq!(nproc(text), want, "{text}");
        }
        assert_eq!(max_restarts("unlimited"), Ok(None));
        assert_eq!(max_restarts("0"), Ok(Some(0)));
        assert_eq!(ranks("2, 0,2"), Ok(Some(vec![0, 2])));
        assert_eq!(ranks("a"), Err(ValueProblem::NotRanks));
    }

    #[test]
    fn names_of_runs() {
        for (text, want) in [
            ("48213.0", None),
            ("exp-7@node:1", None),
            ("", Some(ValueProblem::Empty)),
            ("..", Some(ValueProblem::RunIdStart('.'))),
            ("-x", Some(ValueProblem::RunIdStart('-'))),
            ("a/b", Some(ValueProblem::RunIdChar('/'))),
            ("a b", Some(ValueProblem::RunIdChar(' '))),
            ("a\nb", Some(ValueProblem::RunIdChar('\n'))),
        ] {
            assert_eq!(run_id(text).err(), want, "{text}");
        }
    }
}
