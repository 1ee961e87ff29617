//! When a run is ended with 93: the same program would fail again, or nothing is gained by another try.
//!
//! A false stop costs until a person comes; another try costs minutes. So a stop needs proof, or a ceiling.

use super::super::attribution::Owner;
use super::super::ledger::Ledger;
use super::super::mutant::Mutant;
use super::super::record::FirstFailure;
use super::history::Swap;
use super::progress::Progress;
use super::restore::Source;
use super::{Ask, Broken, evict, root};

/// Attempts that may make no progress.
pub const WITHOUT: u32 = 3;
/// Attempts of which it may be unknown.
pub const UNKNOWN: u32 = 10;
/// Attempts that may end before their first step or soon after.
pub const EARLY: u32 = 3;
/// An attempt of which nobody tells steps, and that ran for so long, in milliseconds, did not die at its start.
pub const LONG_MS: u64 = 120_000;
/// Before the one try after which an outage is believed to be none, in milliseconds.
pub const OUTAGE_MS: u64 = 60_000;

/// What these rules say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It ends, and why.
    Stop(Vec<String>),
    /// It depends.
    Ask(Ask),
    /// Once more, but not at once.
    Once {
        /// In milliseconds.
        wait_ms: u64,
        /// Why.
        why: String,
    },
    /// Another try.
    GoOn,
}

/// Looks at a failure.
#[must_use]
pub fn judge(
    ledger: &Ledger,
    broken: &Broken<'_>,
    first: &FirstFailure,
    progress: Progress,
    followed: Option<&Swap>,
    source: Option<Source>,
) -> Judged {
    let sentence = first.sentence();
    let stop = |why: String| Judged::Stop(vec![sentence.clone(), why]);
    if source.is_some() {
        return Judged::GoOn;
    }
    if everywhere_at_the_start(ledger, broken) {
        return at_the_start(ledger, broken, first);
    }
    if let Some(swap) = followed.filter(|_| progress != Progress::Made) {
        return stop(evict::sentence(swap, Some(first)));
    }
    if let Some(why) = again(ledger, broken, first, progress) {
        return stop(why);
    }
    let ignores = broken.mutants.has(Mutant::StopDespiteProgress);
    let progress = if ignores { Progress::None } else { progress };
    // A node that is being taken out for what its hardware did says nothing of the program.
    match ceiling(ledger, broken, progress) {
        Some(why) if !broken.found.hardware => stop(why),
        _ => Judged::GoOn,
    }
}

/// Looks at a world that stood still for no reason that anybody is known to have.
#[must_use]
pub fn of_hang(ledger: &Ledger, broken: &Broken<'_>, progress: Progress) -> Judged {
    match ceiling(ledger, broken, progress) {
        Some(why) => Judged::Stop(broken.sentence().into_iter().chain([why]).collect()),
        None => Judged::GoOn,
    }
}

/// The program fails wherever it is started, and has never got anywhere.
fn everywhere_at_the_start(ledger: &Ledger, broken: &Broken<'_>) -> bool {
    let no_step = broken.reached.most.is_none() && broken.ran_ms < LONG_MS;
    broken.found.deterministic && no_step && !ledger.history().stepped
}

fn at_the_start(ledger: &Ledger, broken: &Broken<'_>, first: &FirstFailure) -> Judged {
    let stop = || {
        let why = "the same program would fail again".to_owned();
        Judged::Stop(vec![first.sentence(), why])
    };
    let Some(probes) = broken.sought.probes else { return Judged::Ask(Ask::Probes) };
    let before = ledger.history().failures.last();
    if probes.pass() || before.is_some_and(|failure| failure.root == root(first, broken.found)) {
        return stop();
    }
    let what = match (probes.storage, probes.names) {
        (Some(false), _) => "storage does not answer",
        (_, Some(false)) => "names cannot be looked up",
        _ => "it is not known whether storage and names work",
    };
    Judged::Once { wait_ms: OUTAGE_MS, why: format!("{what}: once more in a minute") }
}

/// The same root at the same place, after it was made sure of.
fn again(ledger: &Ledger, broken: &Broken<'_>, first: &FirstFailure, progress: Progress) -> Option<String> {
    let before = ledger.history().failures.last()?;
    let found = broken.found;
    let elsewhere =
        matches!(found.owner, Owner::Hardware | Owner::Network | Owner::Storage | Owner::Preemption);
    if progress == Progress::Made || elsewhere || before.root != root(first, found) {
        return None;
    }
    if found.owner == Owner::Memory {
        return Some(
            "it ran out of memory again: ask for more (--mem), or use less, such as fewer data workers"
                .to_owned(),
        );
    }
    let step = broken.reached.at_step().filter(|step| before.step == Some(*step))?;
    Some(format!("restarted once to make sure; it failed at the same step {step}"))
}

fn ceiling(ledger: &Ledger, broken: &Broken<'_>, progress: Progress) -> Option<String> {
    let counts = ledger.history().with(progress, broken.ran_ms, &broken.reached);
    if counts.without >= WITHOUT {
        let best = ledger.history().best.max(broken.reached.at_step());
        let beyond = best.map_or_else(String::new, |step| format!(" beyond step {step}"));
        return Some(format!(
            "{WITHOUT} attempts in a row made no progress{beyond} (change: --max-restarts)"
        ));
    }
    if counts.early >= EARLY {
        return Some(format!(
            "{EARLY} attempts in a row ended before their first step or within 5 min of it, and no progress is known (change: --max-restarts)"
        ));
    }
    (counts.without.saturating_add(counts.unknown) >= UNKNOWN).then(|| {
        format!("{UNKNOWN} attempts in a row have failed, and no progress is known (change: --max-restarts)")
    })
}
