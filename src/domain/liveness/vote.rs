//! Who holds up the others? What was collected of all ranks becomes a verdict.
//!
//! Facts of the kernel decide: a rank that is stopped, or one in uninterruptible sleep while others are not. Else ranks
//! are grouped by what their stacks say. Those in a collective wait; a few outside it are what they wait for.

use std::collections::{BTreeMap, BTreeSet};

use super::super::attribution::{Confidence, Owner, Verdict};
use super::super::board::Phase;
use super::super::ids::{NodeName, Rank};
use super::evidence::{Frame, RankEvidence, Seen};
use super::limits::phase_name;

/// The cause in a verdict about ranks that do not advance.
pub const HANG: &str = "hang";

/// What is known of one rank of the world.
#[derive(Clone, Copy, Debug)]
pub struct Vote<'a> {
    /// The rank.
    pub rank: Rank,
    /// Its node.
    pub node: &'a NodeName,
    /// What was collected.
    pub evidence: &'a RankEvidence,
}

/// What the evidence says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finding {
    /// The verdict: culprits, owner, reasons; the first reason is the sentence that people read.
    pub verdict: Verdict,
    /// A fact that no other answer could change: nobody else has to be waited for.
    pub decisive: bool,
    /// It is enough to end the world before its last limit.
    pub corroborated: bool,
    /// Nothing may be ended but by an explicit limit; why.
    pub spared: Option<String>,
    /// What the first culprit does, after its name.
    pub does: String,
}

/// What a rank does, by what was collected of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// SIGSTOP or a like signal.
    Stopped,
    /// Uninterruptible sleep, in this function of the kernel.
    Uninterruptible(String),
    /// It burns CPU in user code, if that is known where.
    Spinning(Option<Place>),
    /// It burns CPU and its interpreter does not answer.
    HoldsInterpreter,
    /// It waits for data.
    Starved(Place),
    /// It reads or writes.
    InputOutput(Place),
    /// It is in a collective, called there.
    Collective(String, Option<Place>),
    /// It is somewhere else.
    Outside(Place),
    /// Nothing is known.
    Unknown,
}

/// Somewhere in the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    file: String,
    line: u32,
    function: String,
}

impl Place {
    fn of(frame: &Frame) -> Self {
        let file = frame.file.rsplit('/').next().unwrap_or_default().to_owned();
        Self { file, line: frame.line, function: frame.function.clone() }
    }

    /// `dataset.py:88 parse()`
    fn text(&self) -> String {
        match (self.file.as_str(), self.line) {
            ("", _) => format!("{}()", self.function),
            (file, 0) => format!("{file} {}()", self.function),
            (file, line) => format!("{file}:{line} {}()", self.function),
        }
    }

    /// The same after a line was put in before it.
    fn stable(&self) -> String {
        format!("{}:{}", self.file, self.function)
    }
}

/// A rank and what it does.
struct Judged<'a> {
    vote: Vote<'a>,
    doing: Doing,
}

/// CPU time of so many hundredths of the time between two looks burns.
const BURNS: u64 = 75;
/// One that is found running twice burns it, too, if it gets so many hundredths.
const GETS: u64 = 5;
/// More bytes between two looks are traffic; stacks that are written for us are less.
const TRAFFIC: u64 = 256 << 10;
/// Two looks that are closer tell nothing of CPU time, in milliseconds.
const SHORT: u64 = 20;

/// What these votes of `world` ranks say. With `all`, every rank that lives has voted, or nobody waits any longer.
#[must_use]
pub fn judge(votes: &[Vote<'_>], all: bool) -> Finding {
    let judged: Vec<Judged<'_>> =
        votes.iter().map(|vote| Judged { vote: *vote, doing: doing(vote.evidence) }).collect();
    let of = |wanted: fn(&Doing) -> bool| -> Vec<&Judged<'_>> {
        judged.iter().filter(|j| wanted(&j.doing)).collect()
    };
    let stopped = of(|doing| matches!(doing, Doing::Stopped));
    let stuck = of(|doing| matches!(doing, Doing::Uninterruptible(_)));
    // Where all read, one that is met in the middle of it is no other than the rest.
    let others = judged.iter().any(|j| !reads(&j.doing));
    let is_stuck = !stuck.is_empty() && others;
    let mut finding = if !stopped.is_empty() {
        blamed(&judged, &stopped, Class::Stopped, Confidence::High)
    } else if is_stuck {
        blamed(&judged, &stuck, Class::Stuck, Confidence::High)
    } else if !all {
        return Finding::default();
    } else {
        by_stacks(&judged)
    };
    finding.decisive = !stopped.is_empty() || is_stuck;
    finding.corroborated |= finding.decisive;
    finding.spared = spared(votes);
    finding
}

/// What speaks against ending a world by a limit that nobody gave.
fn spared(votes: &[Vote<'_>]) -> Option<String> {
    for Vote { rank, node, evidence } in votes {
        if evidence.before.traced || evidence.after.traced {
            return Some(format!("rank {rank} ({node}) is in the hands of a debugger"));
        }
        if evidence.after.reads_terminal() {
            return Some(format!("rank {rank} ({node}) waits for input from {}", evidence.after.reads));
        }
        let bytes = evidence.after.io_bytes.saturating_sub(evidence.before.io_bytes);
        if bytes > TRAFFIC {
            return Some(format!("rank {rank} ({node}) reads or writes"));
        }
    }
    None
}

fn doing(evidence: &RankEvidence) -> Doing {
    let (before, after) = (&evidence.before, &evidence.after);
    if after.state == Some('T') && !after.traced {
        return Doing::Stopped;
    }
    // One look may meet a rank in the middle of a read.
    if after.state == Some('D') && (before.state == Some('D') || before.state.is_none()) {
        return Doing::Uninterruptible(after.wchan.clone());
    }
    // What the kernel has of a stack says no more than where it waits.
    let stack = evidence.stack.as_ref().filter(|stack| stack.seen != Seen::Kernel);
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    let user = frames.iter().find(|frame| is_of_user(frame)).map(Place::of);
    if let Some(collective) = frames.iter().find(|frame| is_collective(frame)) {
        return Doing::Collective(collective_name(frames, collective), user);
    }
    let cpu = after.cpu_ms.saturating_sub(before.cpu_ms);
    let share = cpu.saturating_mul(100).checked_div(evidence.between_ms).unwrap_or(0);
    // On a busy machine it may get little, but it always wants more.
    let wants = before.state == Some('R') && after.state == Some('R') && share >= GETS;
    let burns = evidence.between_ms >= SHORT && (share >= BURNS || wants);
    let asked = evidence.sample.as_ref().is_some_and(|sample| sample.stack_signal.is_some());
    if burns && frames.is_empty() && asked {
        return Doing::HoldsInterpreter;
    }
    if burns {
        return Doing::Spinning(user.or_else(|| frames.first().map(Place::of)));
    }
    let data = evidence.sample.as_ref().is_some_and(|sample| sample.phase == Phase::Data);
    let Some(top) = user.or_else(|| frames.first().map(Place::of)) else {
        let kernel = |function: &str| Place { file: String::new(), line: 0, function: function.to_owned() };
        return if data {
            Doing::Starved(kernel("data"))
        } else if is_io(&after.wchan) {
            Doing::InputOutput(kernel(&after.wchan))
        } else {
            Doing::Unknown
        };
    };
    if frames.iter().take(6).any(is_loader) {
        return Doing::Starved(top);
    }
    if is_io(&after.wchan) || frames.first().is_some_and(|frame| IO_CALLS.contains(&frame.function.as_str()))
    {
        return Doing::InputOutput(top);
    }
    Doing::Outside(top)
}

const IO_CALLS: [&str; 9] =
    ["read", "readline", "readinto", "write", "open", "stat", "fsync", "listdir", "flush"];

/// Words of collectives in the names of files and functions.
const COLLECTIVES: [&str; 20] = [
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "broadcast",
    "barrier",
    "all_to_all",
    "alltoall",
    "scatter",
    "gather",
    "reduce",
    "send",
    "recv",
    "irecv",
    "isend",
    "batch_isend_irecv",
    "monitored_barrier",
    "all_reduce_coalesced",
    "wait",
];

fn is_collective(frame: &Frame) -> bool {
    let file = frame.file.replace('\\', "/");
    let library = [
        "torch/distributed/distributed_c10d",
        "torch/distributed/c10d",
        "torch/nn/parallel",
        "torch/distributed/",
    ];
    if library.iter().any(|part| file.contains(part)) {
        // Launchers and stores live there, too.
        return !file.contains("torch/distributed/checkpoint") && !file.contains("torch/distributed/elastic");
    }
    let function = frame.function.to_ascii_lowercase();
    let native = ["c10d::", "nccl", "gloo::"];
    if native.iter().any(|part| function.contains(part) || file.contains(part)) {
        return true;
    }
    // A program's own functions by these names; a condition or a process that is waited for is none.
    let plain = function.rsplit(['.', ':']).next().unwrap_or_default();
    COLLECTIVES.contains(&plain)
        && !["threading.py", "subprocess.py", "selectors.py", "connection.py", "queues.py", "popen_fork.py"]
            .iter()
            .any(|name| file.ends_with(name))
}

/// The name that people know: the outermost frame of the library is what the program called.
fn collective_name(frames: &[Frame], inner: &Frame) -> String {
    let known = |frame: &&Frame| is_collective(frame) && COLLECTIVES.contains(&frame.function.as_str());
    frames.iter().rfind(known).unwrap_or(inner).function.clone()
}

/// A frame of the program, not of a library.
fn is_of_user(frame: &Frame) -> bool {
    let library = ["site-packages/", "dist-packages/", "/lib/python", "<frozen", "<string>"];
    !frame.file.is_empty() && !library.iter().any(|part| frame.file.contains(part)) && !is_collective(frame)
}

fn is_loader(frame: &Frame) -> bool {
    frame.file.contains("torch/utils/data") || frame.file.ends_with("dataloader.py")
}

/// The kernel waits for a file system or for the other end of a pipe.
fn is_io(wchan: &str) -> bool {
    const PARTS: [&str; 14] = [
        "nfs",
        "fuse",
        "lustre",
        "ll_",
        "cl_",
        "ptlrpc",
        "folio_wait",
        "wait_on_page",
        "wait_for_partner",
        "pipe_read",
        "ext4",
        "xfs",
        "blk",
        "rpc_wait",
    ];
    PARTS.iter().any(|part| wchan.contains(part))
}

/// What kind of hang it is, for its fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Stopped,
    Stuck,
    Outside,
    Mismatch,
    Behind,
    Storage,
    Unknown,
}

impl Class {
    fn word(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Stuck => "stuck",
            Self::Outside => "outside",
            Self::Mismatch => "mismatch",
            Self::Behind => "behind",
            Self::Storage => "storage",
            Self::Unknown => "unknown",
        }
    }
}

/// It waits for a file system, or for the other end of a pipe.
fn reads(doing: &Doing) -> bool {
    matches!(doing, Doing::InputOutput(_) | Doing::Uninterruptible(_))
}

fn by_stacks(judged: &[Judged<'_>]) -> Finding {
    let waits = |j: &&Judged<'_>| matches!(j.doing, Doing::Collective(..));
    let waiting: Vec<&Judged<'_>> = judged.iter().filter(waits).collect();
    let outside: Vec<&Judged<'_>> = judged.iter().filter(|j| !waits(j)).collect();
    if judged.len() > 1 && judged.iter().all(|j| reads(&j.doing)) {
        return storage(judged);
    }
    if !waiting.is_empty() && !outside.is_empty() && outside.len() <= waiting.len() {
        let known = outside.iter().all(|j| j.doing != Doing::Unknown);
        let confidence = if known { Confidence::Medium } else { Confidence::Low };
        return Finding { corroborated: known, ..blamed(judged, &outside, Class::Outside, confidence) };
    }
    if outside.is_empty() && !waiting.is_empty() {
        return mismatch(judged).or_else(|| behind(judged)).unwrap_or_else(|| nobody(judged));
    }
    let busy: Vec<&Judged<'_>> =
        judged.iter().filter(|j| matches!(j.doing, Doing::Spinning(_) | Doing::HoldsInterpreter)).collect();
    if !busy.is_empty() && (busy.len() * 2 <= judged.len() || judged.len() == 1) {
        return Finding { corroborated: true, ..blamed(judged, &busy, Class::Outside, Confidence::Medium) };
    }
    behind(judged).or_else(|| minority(judged)).unwrap_or_else(|| nobody(judged))
}

/// All wait, and not for the same: those of the smaller groups, or everybody.
fn mismatch(judged: &[Judged<'_>]) -> Option<Finding> {
    let mut groups: BTreeMap<&Doing, Vec<&Judged<'_>>> = BTreeMap::new();
    for one in judged {
        groups.entry(&one.doing).or_default().push(one);
    }
    if groups.len() < 2 {
        return None;
    }
    let most = groups.values().map(Vec::len).max().unwrap_or(0);
    let alone = groups.values().filter(|group| group.len() == most).count() == 1;
    let few: Vec<&Judged<'_>> =
        groups.values().filter(|group| !alone || group.len() < most).flatten().copied().collect();
    let mut few = few;
    few.sort_by_key(|j| j.vote.rank);
    let finding = blamed(judged, &few, Class::Mismatch, Confidence::Medium);
    Some(Finding { corroborated: true, ..finding })
}

/// By steps and phases: who is behind all others.
fn behind(judged: &[Judged<'_>]) -> Option<Finding> {
    let place = |j: &Judged<'_>| j.vote.evidence.sample.as_ref().map(|s| (s.step, s.phase));
    let least = judged.iter().filter_map(place).min()?;
    let last: Vec<&Judged<'_>> = judged.iter().filter(|j| place(j) == Some(least)).collect();
    let others = judged.len() - last.len();
    if others == 0 || last.len() > others {
        return None;
    }
    let finding = blamed(judged, &last, Class::Behind, Confidence::Low);
    // One step apart may be two looks apart.
    Some(Finding { corroborated: false, ..finding })
}

/// Few stand where nobody else does.
fn minority(judged: &[Judged<'_>]) -> Option<Finding> {
    let mut groups: BTreeMap<&Doing, Vec<&Judged<'_>>> = BTreeMap::new();
    for one in judged {
        groups.entry(&one.doing).or_default().push(one);
    }
    let most = groups.values().map(Vec::len).max()?;
    let few: Vec<&Judged<'_>> = groups.values().filter(|g| g.len() < most).flatten().copied().collect();
    (!few.is_empty() && few.len() * 2 < judged.len())
        .then(|| blamed(judged, &few, Class::Outside, Confidence::Low))
}

fn storage(judged: &[Judged<'_>]) -> Finding {
    let place = judged.iter().find_map(|j| match &j.doing {
        Doing::InputOutput(place) => Some(place.text()),
        Doing::Uninterruptible(wchan) if !wchan.is_empty() => Some(wchan.clone()),
        _ => None,
    });
    let place = place.map_or(String::new(), |place| format!(", in {place}"));
    let sentence = format!("all {} ranks wait for a file system{place}; no node is to blame", judged.len());
    let verdict = Verdict {
        owner: Owner::Storage,
        cause: HANG.to_owned(),
        confidence: Confidence::Medium,
        fingerprint: format!("hang {}", Class::Storage.word()),
        reasons: vec![sentence],
        ..Verdict::default()
    };
    Finding { verdict, ..Finding::default() }
}

fn nobody(judged: &[Judged<'_>]) -> Finding {
    let doing: BTreeSet<&Doing> = judged.iter().map(|j| &j.doing).collect();
    let same = doing.first().filter(|_| doing.len() == 1).and_then(|doing| does(doing));
    let sentence = match (same, judged.len()) {
        (Some(does), 1) => format!("the rank {does}"),
        (Some(does), n) => {
            format!("each of the {n} ranks {does}; nothing tells which one holds up the others")
        }
        (None, 1) => "nothing tells what the rank waits for".to_owned(),
        (None, n) => format!("nothing tells which of the {n} ranks holds up the others"),
    };
    let verdict = Verdict {
        cause: HANG.to_owned(),
        fingerprint: format!("hang {}", Class::Unknown.word()),
        reasons: vec![sentence],
        ..Verdict::default()
    };
    // The only rank of a world is the culprit of what it does.
    match judged {
        [only] => Finding {
            does: does(&only.doing).unwrap_or_else(|| "did not advance".to_owned()),
            verdict: Verdict {
                culprits: vec![(only.vote.rank, only.vote.node.clone())],
                owner: owner(&only.doing),
                ..verdict
            },
            ..Finding::default()
        },
        _ => Finding { verdict, ..Finding::default() },
    }
}

/// What a rank of which this was collected does, after its name; empty: nothing tells.
#[must_use]
pub fn does_of(evidence: &RankEvidence) -> String {
    does(&doing(evidence)).unwrap_or_default()
}

/// Its innermost frame, the program's own where there is one: `dataset.py:88 parse()`; empty: no stack is known.
#[must_use]
pub fn innermost(evidence: &RankEvidence) -> String {
    let frames = evidence.stack.as_ref().map_or(&[][..], |stack| &stack.frames);
    let frame = frames.iter().find(|frame| is_of_user(frame)).or_else(|| frames.first());
    frame.map(|frame| Place::of(frame).text()).unwrap_or_default()
}

fn owner(doing: &Doing) -> Owner {
    match doing {
        Doing::Uninterruptible(_) | Doing::InputOutput(_) => Owner::Storage,
        Doing::Spinning(_) | Doing::HoldsInterpreter | Doing::Starved(_) | Doing::Outside(_) => Owner::User,
        Doing::Stopped | Doing::Collective(..) | Doing::Unknown => Owner::Unknown,
    }
}

/// What a rank does, after its name.
fn does(doing: &Doing) -> Option<String> {
    Some(match doing {
        Doing::Stopped => "is stopped by a signal (state T)".to_owned(),
        Doing::Uninterruptible(wchan) if wchan.is_empty() => {
            "is in uninterruptible sleep (state D)".to_owned()
        }
        Doing::Uninterruptible(wchan) => format!("is in uninterruptible sleep (state D), in {wchan}"),
        Doing::Spinning(Some(place)) => format!("burns CPU in {}", place.text()),
        Doing::Spinning(None) => "burns CPU".to_owned(),
        Doing::HoldsInterpreter => "burns CPU and holds its interpreter: it does not answer".to_owned(),
        Doing::Starved(place) => format!("waits for data, in {}", place.text()),
        Doing::InputOutput(place) => format!("reads or writes, in {}", place.text()),
        Doing::Collective(name, Some(place)) => format!("waits in {name}, called in {}", place.text()),
        Doing::Collective(name, None) => format!("waits in {name}"),
        Doing::Outside(place) => format!("is in {}", place.text()),
        Doing::Unknown => return None,
    })
}

/// These are the culprits, all others are victims.
fn blamed(judged: &[Judged<'_>], culprits: &[&Judged<'_>], class: Class, confidence: Confidence) -> Finding {
    let named: BTreeSet<Rank> = culprits.iter().map(|j| j.vote.rank).collect();
    let waiting: Vec<&str> = judged
        .iter()
        .filter(|j| !named.contains(&j.vote.rank))
        .filter_map(|j| match &j.doing {
            Doing::Collective(name, _) => Some(name.as_str()),
            _ => None,
        })
        .collect();
    let first = culprits.first();
    let (owner, place) = first.map_or((Owner::Unknown, String::new()), |j| {
        let stable = match &j.doing {
            Doing::Spinning(Some(place))
            | Doing::Starved(place)
            | Doing::InputOutput(place)
            | Doing::Outside(place) => place.stable(),
            Doing::Collective(name, place) => {
                place.as_ref().map_or_else(|| name.clone(), |place| format!("{name} {}", place.stable()))
            }
            _ => String::new(),
        };
        let owner = match (class, owner(&j.doing)) {
            (Class::Mismatch, _) => Owner::User,
            (_, owner) => owner,
        };
        (owner, stable)
    });
    let mut reasons = vec![sentence(&waiting, culprits, class)];
    for one in culprits.iter().take(8) {
        reasons.extend(reason(one));
    }
    let does = first.map_or_else(String::new, |j| {
        let alone = does(&j.doing).unwrap_or_else(|| "says nothing of itself".to_owned());
        let waits = if waiting.len() == 1 { "rank waits" } else { "ranks wait" };
        most(&waiting)
            .map_or(alone.clone(), |name| format!("{alone}, and {} {waits} in {name}", waiting.len()))
    });
    let verdict = Verdict {
        owner,
        cause: HANG.to_owned(),
        culprits: culprits.iter().map(|j| (j.vote.rank, j.vote.node.clone())).collect(),
        confidence,
        fingerprint: format!("hang {} {place}", class.word()).trim_end().to_owned(),
        reasons,
        ..Verdict::default()
    };
    Finding { verdict, does, ..Finding::default() }
}

/// What one culprit does, with what tells that it is one.
fn doing_of(one: &Judged<'_>, class: Class, waiting: &[&str]) -> String {
    let sample = one.vote.evidence.sample.as_ref();
    if class == Class::Behind
        && let Some(sample) = sample
    {
        let step =
            sample.step.map_or_else(|| "before its first step".to_owned(), |step| format!("at step {step}"));
        let does = does(&one.doing).map_or_else(String::new, |does| format!("; it {does}"));
        return format!("is behind the others, {step}, {}{does}", phase_name(sample.phase));
    }
    match (&one.doing, most(waiting)) {
        (Doing::Outside(place) | Doing::InputOutput(place), Some(_)) => {
            format!("is outside it, in {}", place.text())
        }
        (Doing::Unknown, Some(_)) => "is outside it".to_owned(),
        (Doing::Unknown, None) => "stands alone".to_owned(),
        (doing, _) => does(doing).unwrap_or_default(),
    }
}

/// `31 ranks wait in all_reduce; rank 11 (n02) is outside it, in dataset.py:88 parse()`
fn sentence(waiting: &[&str], culprits: &[&Judged<'_>], class: Class) -> String {
    let waits = most(waiting).map_or_else(String::new, |name| {
        let (count, plural) = (waiting.len(), if waiting.len() == 1 { "rank waits" } else { "ranks wait" });
        format!("{count} {plural} in {name}; ")
    });
    let name = |j: &Judged<'_>| format!("rank {} ({})", j.vote.rank, j.vote.node);
    match culprits {
        [] => waits.trim_end_matches("; ").to_owned(),
        [one] => format!("{waits}{} {}", name(one), doing_of(one, class, waiting)),
        [one, other] if one.doing != other.doing => format!(
            "{waits}{} {}, {} {}",
            name(one),
            doing_of(one, class, waiting),
            name(other),
            doing_of(other, class, waiting)
        ),
        [one, rest @ ..] => {
            let more = if rest.len() == 1 {
                format!(" and {}", name(rest[0]))
            } else {
                format!(" and {} more", rest.len())
            };
            format!("{waits}{} {}{more}", name(one), doing_of(one, class, waiting))
        }
    }
}

/// The name that most of them say.
fn most<'a>(names: &[&'a str]) -> Option<&'a str> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let most = counts.values().max().copied()?;
    names.iter().find(|name| counts.get(*name) == Some(&most)).copied()
}

/// What was measured of a culprit.
fn reason(one: &Judged<'_>) -> Option<String> {
    let evidence = one.vote.evidence;
    let state = evidence.after.state?;
    let cpu = evidence.after.cpu_ms.saturating_sub(evidence.before.cpu_ms);
    let percent = cpu.saturating_mul(100).checked_div(evidence.between_ms).unwrap_or(0);
    let wchan =
        if evidence.after.wchan.is_empty() { String::new() } else { format!(" in {}", evidence.after.wchan) };
    let place = evidence.sample.as_ref().map_or_else(
        || "its page was never claimed".to_owned(),
        |sample| {
            let step = sample.step.map_or_else(|| "no step".to_owned(), |step| format!("step {step}"));
            format!("{step}, {}", phase_name(sample.phase))
        },
    );
    let silent = super::super::time::human(std::time::Duration::from_millis(evidence.silent_ms));
    Some(format!(
        "rank {} ({}): {place}, silent for {silent}; state {state}{wchan}, {percent} % of a CPU",
        one.vote.rank, one.vote.node
    ))
}

#[cfg(test)]
#[path = "vote_tests.rs"]
mod tests;
