//! The recovery policy: what is done about a world that broke, and why.
//!
//! ```text
//! restart in place -> a spare -> a smaller world -> requeue -> stop
//! ```
//! * A run goes on as long as there is [progress]. Without it [three rules](stop) end it with 93. `--max-restarts` takes
//!   the place of those rules, whatever it is.
//! * A node is taken out for [decisive evidence, or when ranks failed first there twice](evict); never more of them at one
//!   time than the breaker allows, and none when the failure follows the slot.
//! * A node that is *lost* is a state, and comes back as a spare; one that is *evicted* is a verdict.
//! * Deaths by a signal that agents saw, too, are preemption and nobody's fault. Slurm is asked before anything starts.
//! * From the second failure at one point on it [waits](wait).
//!
//! Everything here is a function of the ledger and of what is known of the world that broke. What is not known yet is
//! asked for ([`Verdict::ask`]), and the decision is made again with the answer.

pub mod budget;
pub mod evict;
pub mod history;
mod job_word;
pub mod progress;
pub mod restore;
pub mod stop;
pub mod wait;

#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::attribution;
use super::exit::ExitKind;
use super::exit_code;
use super::ids::{NodeName, Slot};
use super::ledger::Ledger;
use super::mutant::Mutants;
use super::port_conflict;
use super::record::{Decision, Evict, FirstFailure};
pub use job_word::JobWord;
use progress::{Progress, Reached};
use restore::{Restore, Source};

/// What is known of a world that broke.
#[derive(Clone, Debug)]
pub struct Broken<'a> {
    /// Who failed first; none when nodes or agents were lost.
    pub first: Option<&'a FirstFailure>,
    /// It did not advance, whoever held it up.
    pub hung: bool,
    /// Nodes that cannot be in the next world.
    pub gone: &'a [NodeName],
    /// A node with a process that survived SIGKILL, for whose sake the world never began.
    pub dirty: Option<&'a NodeName>,
    /// Every rank that was heard of could not start its program, on every node of the world.
    pub unstartable: bool,
    /// How long its ranks ran, in milliseconds.
    pub ran_ms: u64,
    /// Nodes that wait.
    pub spares: usize,
    /// Whose fault it was, as far as it can be told.
    pub found: &'a attribution::Verdict,
    /// How far its ranks came.
    pub reached: Reached,
    /// The slot of the node of the first failure.
    pub slot: Option<Slot>,
    /// The node that leads: it cannot be taken out.
    pub leader: &'a NodeName,
    /// Why it was broken, where nothing failed: somebody's order.
    pub because: Option<&'a str>,
    /// What was found out for this decision.
    pub sought: Sought,
    /// Agents heard a signal that was not ours, at about the time.
    pub signalled: bool,
    /// What it was restored from.
    pub restore: Restore,
    /// Unix milliseconds.
    pub wall_ms: u64,
    /// A random number.
    pub random: u64,
    /// Rules that are switched off.
    pub mutants: Mutants,
}

impl Broken<'_> {
    /// It counts: somebody failed, or nobody did and it stood still all the same.
    fn counts(&self) -> bool {
        self.first.is_some() || self.hung
    }

    /// What broke it, where that counts.
    fn sentence(&self) -> Option<String> {
        let hang = || self.found.reasons.first().cloned().unwrap_or_else(|| "it did not advance".to_owned());
        self.first.map(FirstFailure::sentence).or_else(|| self.hung.then(hang))
    }
}

/// Something to find out before it can be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Whether storage and names work.
    Probes,
    /// Whether agents hear a signal, too: they are told in the same moment.
    Signals,
    /// What Slurm means to do with the job.
    Slurm,
}

/// What was found out. A question that was asked and not answered in time is `Some` of what is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sought {
    /// Storage and names.
    pub probes: Option<Probes>,
    /// It was waited for signals.
    pub signals: bool,
    /// The job.
    pub job: Option<JobWord>,
}

/// Whether what every program needs works. None: it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// The directories of the run and of the program answer.
    pub storage: Option<bool>,
    /// Names that could be looked up before still can.
    pub names: Option<bool>,
}

impl Probes {
    fn pass(self) -> bool {
        self.storage == Some(true) && self.names == Some(true)
    }
}

/// A decision and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// It counts against `--max-restarts`.
    pub charged: bool,
    /// Why, for people.
    pub why: Vec<String>,
    /// Nodes to take out or to give back before anything starts.
    pub evict: Vec<Evict>,
    /// Nothing starts for so long, in milliseconds.
    pub wait_ms: u64,
    /// From where to restore, where that changes.
    pub source: Option<Source>,
    /// Find this out, and decide again: what stands here is for the case that nobody answers.
    pub ask: Option<Ask>,
    /// The progress of the attempt that broke.
    pub progress: Progress,
    /// The failure followed its slot to another node: what it is known by.
    pub followed: Option<String>,
}

impl Verdict {
    fn new(decision: Decision, charged: bool, why: Vec<String>) -> Self {
        Self {
            decision,
            charged,
            why,
            evict: Vec::new(),
            wait_ms: 0,
            source: None,
            ask: None,
            progress: Progress::Unknown,
            followed: None,
        }
    }

    fn asking(mut self, ask: Ask) -> Self {
        self.ask = Some(ask);
        self
    }
}

/// What a failure is known by: the fingerprint of its root cause, else how it ended and what it said.
#[must_use]
pub fn root(first: &FirstFailure, found: &attribution::Verdict) -> String {
    if found.fingerprint.is_empty() {
        format!("{} {}", first.exit, first.summary).trim_end().to_owned()
    } else {
        found.fingerprint.clone()
    }
}

/// Decides what is done about a world that broke.
pub fn decide(ledger: &Ledger, broken: &Broken<'_>) -> Verdict {
    if let Some(verdict) = preempted(broken) {
        return verdict;
    }
    if let (Some(first), [], None) = (broken.first, broken.gone, broken.dirty)
        && let Some(excuse) = port_conflict::excuse(ledger, first)
    {
        return Verdict::new(Decision::Restart, false, vec![excuse, first.sentence()]);
    }
    let progress = progress::of(ledger.history(), &broken.reached);
    let mut verdict = judge(ledger, broken, progress);
    verdict.progress = progress;
    verdict
}

fn judge(ledger: &Ledger, broken: &Broken<'_>, progress: Progress) -> Verdict {
    let charged = broken.counts();
    let followed = broken.first.and_then(|first| evict::follows_slot(ledger, broken, first));
    if let Some(why) = exhausted(ledger, broken) {
        return Verdict::new(Decision::Stop { code: exit_code::FAILED }, charged, why);
    }
    let limited = ledger.spec().and_then(|s| s.max_restarts).is_some();
    let source = restore::change(broken);
    let stop = match broken.first {
        Some(first) if !limited => stop::judge(ledger, broken, first, progress, followed.as_ref(), source),
        None if broken.hung && !limited => stop::of_hang(ledger, broken, progress),
        _ => stop::Judged::GoOn,
    };
    let mut verdict = match stop {
        stop::Judged::Stop(why) => {
            let code = exit_code::DO_NOT_REQUEUE;
            let mut verdict = Verdict::new(Decision::Stop { code }, charged, why);
            verdict.evict = followed.iter().map(evict::back).collect();
            verdict.followed = followed.map(|swap| swap.root);
            return verdict;
        }
        stop::Judged::Ask(ask) => return go_on(ledger, broken, None, source).asking(ask),
        stop::Judged::GoOn => go_on(ledger, broken, followed.as_ref(), source),
        stop::Judged::Once { wait_ms, why } => {
            let mut verdict = go_on(ledger, broken, followed.as_ref(), source);
            verdict.wait_ms = verdict.wait_ms.max(wait_ms);
            verdict.why.push(why);
            verdict
        }
    };
    verdict.followed = followed.map(|swap| swap.root);
    verdict
}

/// Something is started again: on which nodes, and when.
fn go_on(
    ledger: &Ledger,
    broken: &Broken<'_>,
    followed: Option<&history::Swap>,
    source: Option<Source>,
) -> Verdict {
    let charged = broken.counts();
    let mut why: Vec<String> = broken.because.iter().map(|&because| because.to_owned()).collect();
    let mut nodes: Vec<NodeName> = broken.gone.to_vec();
    why.extend(nodes.iter().filter(|node| !ledger.is_evicted(node)).map(|node| format!("{node} was lost")));
    if let Some(node) = broken.dirty {
        why.push(dirty(node));
        nodes.push(node.clone());
    }
    let mut out = Vec::new();
    if let Some(swap) = followed {
        why.push(evict::sentence(swap, broken.first));
        out.push(evict::back(swap));
    } else {
        let chosen = evict::choose(ledger, broken, nodes.len());
        why.extend(chosen.why);
        for evict in chosen.evict {
            nodes.push(evict.node.clone());
            out.push(evict);
        }
    }
    why.extend(broken.sentence());
    if why.is_empty() {
        why.push("ranks are gone with their agent or their grant; none failed by itself".to_owned());
    }
    why.extend(source.map(Source::sentence));
    let decision = if nodes.is_empty() {
        Decision::Restart
    } else if shrinks(ledger, nodes.len(), broken.spares) {
        why.push("no spare is left, and the world may be smaller".to_owned());
        Decision::Shrink { nodes: nodes.clone() }
    } else {
        Decision::Replace { nodes: nodes.clone() }
    };
    let mut verdict = Verdict::new(decision, charged, why);
    (verdict.evict, verdict.source) = (out, source);
    if charged && nodes.is_empty() {
        let progress = progress::of(ledger.history(), &broken.reached);
        verdict.wait_ms = wait::before(ledger, progress, broken.random);
    }
    verdict
}

/// The signals by which jobs are ended and warned.
const OUTER: [u8; 5] = [1, 2, 10, 12, 15];

/// It died of a signal of those that come from outside.
fn by_outer_signal(exit: &ExitKind) -> bool {
    match exit {
        ExitKind::Signal { no, .. } => OUTER.contains(no),
        ExitKind::Code(code) => code.checked_sub(128).is_some_and(|no| OUTER.contains(&no)),
        _ => false,
    }
}

/// Deaths around a signal that agents saw, too, are nobody's fault.
fn preempted(broken: &Broken<'_>) -> Option<Verdict> {
    let first = broken.first.filter(|first| by_outer_signal(&first.exit) && broken.because.is_none())?;
    let verdict = |decision, why: &str| Verdict::new(decision, false, vec![first.sentence(), why.to_owned()]);
    if !broken.signalled {
        let waits = !broken.sought.signals;
        return waits.then(|| verdict(Decision::Restart, "it is waited for signals").asking(Ask::Signals));
    }
    Some(match broken.sought.job {
        None => verdict(Decision::Restart, "Slurm is asked").asking(Ask::Slurm),
        Some(JobWord::Ends) => {
            let code = exit_code::SIGNAL_BASE + 15;
            verdict(Decision::Stop { code }, "Slurm is ending this job: nothing is started again")
        }
        Some(JobWord::Runs) => verdict(
            Decision::Restart,
            "a signal from outside is no fault of the program, and the job goes on",
        ),
        Some(JobWord::Unknown) => verdict(
            Decision::Restart,
            "a signal from outside is no fault of the program, and nobody ended the job",
        ),
    })
}

/// What the verdict on a preempted world is.
#[must_use]
pub fn preemption(broken: &Broken<'_>) -> bool {
    broken.signalled && broken.first.is_some_and(|first| by_outer_signal(&first.exit))
}

/// Fewer spares than nodes that are gone, and with what is left the world is not too small.
fn shrinks(ledger: &Ledger, gone: usize, spares: usize) -> bool {
    let (Some(spec), Some(world)) = (ledger.spec(), ledger.world()) else { return false };
    let left = world.members.len().saturating_sub(gone).saturating_add(spares);
    spec.min_nodes < spec.max_nodes && spares < gone && left >= spec.min_nodes as usize
}

/// Why a node can have no ranks for now.
pub(super) fn dirty(node: &NodeName) -> String {
    format!("{node} has a process that survived SIGKILL")
}

/// The program is missing, is not executable, or is none: nothing that passes by itself.
pub(super) fn cannot_be_started(exit: &ExitKind) -> bool {
    const ENOENT: i32 = 2;
    const ENOEXEC: i32 = 8;
    const EACCES: i32 = 13;
    matches!(exit, ExitKind::NeverStarted { errno: ENOENT | ENOEXEC | EACCES, what } if what.starts_with("exec "))
}

/// The world before ended by the same.
fn failed_so_before(ledger: &Ledger, exit: &ExitKind) -> bool {
    match ledger.world().map(|world| &world.cause) {
        Some(super::record::Cause::Incident(broke)) => {
            broke.first_failure.as_ref().is_some_and(|f| f.exit == *exit)
        }
        _ => false,
    }
}

fn used_up(max: u32) -> String {
    match max {
        1 => "the one restart that was allowed is used".to_owned(),
        max => format!("all {max} restarts that were allowed are used"),
    }
}

fn exhausted(ledger: &Ledger, broken: &Broken<'_>) -> Option<Vec<String>> {
    let root = broken.sentence()?;
    let missing = |exit| cannot_be_started(exit) && failed_so_before(ledger, exit);
    // What is not there on any node will not be there in a moment.
    if broken.unstartable || broken.first.is_some_and(|first| missing(&first.exit)) {
        return Some(vec![
            root,
            "the program cannot be started, and another try would change nothing".to_owned(),
        ]);
    }
    match ledger.spec().and_then(|s| s.max_restarts) {
        Some(0) => Some(vec![root, "no restarts were asked for".to_owned()]),
        Some(max) if ledger.charged() >= max => Some(vec![root, used_up(max)]),
        Some(_) | None => None,
    }
}
