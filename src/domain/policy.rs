//! The first policy: restart in place while it makes sense.
//!
//! `--max-restarts` counts failures only; without one, three attempts in a row that are too short end the
//! run. A lost or dirty node, or one that failed first in two attempts running, is replaced by a spare;
//! without a spare it is kept (failed twice) or waited for (lost, dirty), unless the world may go on smaller. Where the
//! port was taken that the ranks were given, they get another one, once.

use super::attribution;
use super::exit::ExitKind;
use super::ids::NodeName;
use super::ledger::Ledger;
use super::port_conflict;
use super::record::{Cause, Decision, FirstFailure};
use super::time::human;

/// Attempts in a row that may be too short.
pub const SHORT_ATTEMPTS: u32 = 3;

/// What is known of a world that broke.
#[derive(Clone, Debug)]
pub struct Broken<'a> {
    /// Who failed first; none when nodes or agents were lost.
    pub first: Option<&'a FirstFailure>,
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
}

/// Decides what is done about a world that broke.
pub fn decide(ledger: &Ledger, broken: &Broken<'_>) -> Verdict {
    if let (Some(first), [], None) = (broken.first, broken.gone, broken.dirty)
        && let Some(excuse) = port_conflict::excuse(ledger, first)
    {
        let why = vec![excuse, first.sentence()];
        return Verdict { decision: Decision::Restart, charged: false, why };
    }
    let charged = broken.first.is_some();
    if let Some(why) = exhausted(ledger, broken) {
        return Verdict { decision: Decision::Stop { code: 1 }, charged, why };
    }
    let mut why = Vec::new();
    let mut nodes: Vec<NodeName> = broken.gone.to_vec();
    for node in &nodes {
        why.push(format!("{node} was lost"));
    }
    if let Some(node) = broken.dirty {
        why.push(dirty(node));
        nodes.push(node.clone());
    }
    if let Some(first) = broken.first
        && ledger.blamed() == Some(&first.node)
        && !nodes.contains(&first.node)
    {
        if broken.spares > nodes.len() {
            why.push(format!("{} failed first in two attempts running", first.node));
            nodes.push(first.node.clone());
        } else {
            why.push(format!(
                "{} failed first in two attempts running, and no spare is left: kept",
                first.node
            ));
        }
    }
    if let Some(first) = broken.first {
        why.push(first.sentence());
    }
    if why.is_empty() {
        why.push("ranks are gone with their agent or their grant; none failed by itself".to_owned());
    }
    let decision = if nodes.is_empty() {
        Decision::Restart
    } else if shrinks(ledger, nodes.len(), broken.spares) {
        why.push("no spare is left, and the world may be smaller".to_owned());
        Decision::Shrink { nodes }
    } else {
        Decision::Replace { nodes }
    };
    Verdict { decision, charged, why }
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
        Some(Cause::Incident(broke)) => broke.first_failure.as_ref().is_some_and(|f| f.exit == *exit),
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
    let first = broken.first?;
    let root = first.sentence();
    // What is not there on any node will not be there in a moment.
    if broken.unstartable || (cannot_be_started(&first.exit) && failed_so_before(ledger, &first.exit)) {
        return Some(vec![
            root,
            "the program cannot be started, and another try would change nothing".to_owned(),
        ]);
    }
    match ledger.spec().and_then(|s| s.max_restarts) {
        Some(0) => Some(vec![root, "no restarts were asked for".to_owned()]),
        Some(max) if ledger.charged() >= max => Some(vec![root, used_up(max)]),
        Some(_) => None,
        None if ledger.streak_with(broken.ran_ms) >= SHORT_ATTEMPTS => {
            let short = ledger.spec().map_or(0, |s| s.numbers.short_attempt_ms);
            let limit = human(std::time::Duration::from_millis(short));
            Some(vec![root, format!("{SHORT_ATTEMPTS} attempts in a row were shorter than {limit}")])
        }
        None => None,
    }
}
