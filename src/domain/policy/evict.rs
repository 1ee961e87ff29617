//! Which nodes are taken out, and which come back.

use super::super::attribution::{Confidence, Owner};
use super::super::ids::NodeName;
use super::super::ledger::Ledger;
use super::super::mutant::{Mutant, Mutants};
use super::super::record::{Evict, FirstFailure};
use super::history::Swap;
use super::{Broken, root};

/// So many nodes may be taken out by inference within [`WINDOW_MS`], or one in twenty if that is more.
const LEAST: usize = 2;
/// In milliseconds.
const WINDOW_MS: u64 = 600_000;

/// What was chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    /// Nodes to take out.
    pub evict: Vec<Evict>,
    /// Why, and why others are kept.
    pub why: Vec<String>,
}

/// How many nodes may be taken out by inference now, of a run with so many.
#[must_use]
pub fn allowed(ledger: &Ledger, wall_ms: u64, mutants: Mutants) -> usize {
    if mutants.has(Mutant::NoBreaker) {
        return usize::MAX;
    }
    let (taken, most) = breaker(ledger, wall_ms);
    most.saturating_sub(taken)
}

/// How many nodes were taken out by inference lately, and how many may be.
#[must_use]
pub fn breaker(ledger: &Ledger, wall_ms: u64) -> (usize, usize) {
    let nodes = ledger.ever().len().max(ledger.world().map_or(0, |world| world.members.len()));
    let recent = |at: &u64| wall_ms.saturating_sub(*at) < WINDOW_MS;
    let taken = ledger.history().inferred.iter().filter(|(at, _)| recent(at)).count();
    (taken, LEAST.max(nodes / 20))
}

/// More than a fifth of a world at one time: that is a fabric, a file system or a bad check, and no node's fault.
#[must_use]
pub fn is_mass(together: usize, world: usize) -> bool {
    together > 1 && together * 5 > world
}

/// Of the nodes that failed the gate together, those that are taken out.
#[must_use]
pub fn failed_gate(
    ledger: &Ledger,
    failed: &[(NodeName, String)],
    asked: usize,
    wall_ms: u64,
    mutants: Mutants,
) -> Chosen {
    let mut chosen = Chosen::default();
    if is_mass(failed.len(), asked) {
        chosen.why.push(format!(
            "{} of {asked} nodes fail the check at one time: that blames the check, or what they share, and no node",
            failed.len()
        ));
        return chosen;
    }
    let room = allowed(ledger, wall_ms, mutants);
    for (n, (node, what)) in failed.iter().enumerate() {
        if n < room {
            chosen.evict.push(Evict {
                node: node.clone(),
                reason: what.clone(),
                inferred: true,
                ..Evict::default()
            });
        } else {
            chosen.why.push(kept(node, what));
        }
    }
    chosen
}

/// Whom the failure of a world takes out; `gone` nodes are missing already.
#[must_use]
pub fn choose(ledger: &Ledger, broken: &Broken<'_>, gone: usize) -> Chosen {
    let mut chosen = Chosen::default();
    let Some(first) = broken.first else { return chosen };
    let world = ledger.world().map_or(0, |world| world.members.len());
    let fails = root(first, broken.found);
    let followed = ledger.history().followed.contains(&fails);
    if is_mass(broken.gone.len(), world) || followed {
        return chosen;
    }
    let mut room = allowed(ledger, broken.wall_ms, broken.mutants);
    for (node, reason, hardware) in suspects(ledger, broken, first) {
        if broken.gone.contains(&node) || ledger.is_evicted(&node) {
            continue;
        }
        let spare = broken.spares > gone + chosen.evict.len();
        if node == *broken.leader {
            chosen.why.push(format!("{reason}; {node} leads this run: kept"));
        } else if !(spare || hardware && may_shrink(ledger)) {
            chosen.why.push(format!("{reason}, and no spare is left: kept"));
        } else if room == 0 {
            chosen.why.push(kept(&node, &reason));
        } else {
            room = room.saturating_sub(1);
            chosen.why.push(reason.clone());
            let slot = ledger.slot(&node);
            let root = if hardware { String::new() } else { fails.clone() };
            chosen.evict.push(Evict {
                node,
                reason,
                until_ms: None,
                back: false,
                inferred: true,
                slot,
                root,
            });
        }
    }
    chosen
}

fn may_shrink(ledger: &Ledger) -> bool {
    ledger.spec().is_some_and(|spec| spec.min_nodes < spec.max_nodes)
}

fn kept(node: &NodeName, reason: &str) -> String {
    format!(
        "{reason}; too many nodes were taken out in the last 10 min: {node} is kept (something that nodes share?)"
    )
}

/// Nodes that something speaks against, why, and whether it is evidence of a fault of theirs.
fn suspects(ledger: &Ledger, broken: &Broken<'_>, first: &FirstFailure) -> Vec<(NodeName, String, bool)> {
    let found = broken.found;
    let world = ledger.world().map_or(0, |world| world.members.len());
    if found.hardware && found.confidence == Confidence::High && !is_mass(found.nodes.len(), world) {
        let reason = |node: &NodeName| format!("{node}: {}", found.cause);
        return found.nodes.iter().map(|node| (node.clone(), reason(node), true)).collect();
    }
    // Two of the last three, this one counted.
    let failures = &ledger.history().failures;
    let recent = failures.get(failures.len().saturating_sub(2)..).unwrap_or_default();
    let twice = recent.iter().any(|failure| failure.node == first.node);
    // A program that fails alike is not mended by another node.
    let alike = recent.iter().any(|failure| failure.root == root(first, found));
    let of_user = found.owner == Owner::User && found.confidence >= Confidence::Medium && alike;
    if !twice || of_user || world < 2 {
        return Vec::new();
    }
    let reason = format!("ranks failed first on {} in two of the last three attempts", first.node);
    vec![(first.node.clone(), reason, false)]
}

/// The node that was taken out for the same failure in the same slot: it was not the node.
#[must_use]
pub fn follows_slot(ledger: &Ledger, broken: &Broken<'_>, first: &FirstFailure) -> Option<Swap> {
    let fails = root(first, broken.found);
    let slot = broken.slot?;
    let same = |swap: &&Swap| swap.slot == slot && swap.root == fails && swap.node != first.node;
    ledger.history().swaps.iter().rev().find(same).filter(|_| !broken.found.hardware).cloned()
}

/// The record that gives a node back.
#[must_use]
pub fn back(swap: &Swap) -> Evict {
    Evict {
        node: swap.node.clone(),
        reason: format!("the failure followed slot {} to another node", swap.slot),
        back: true,
        ..Evict::default()
    }
}

/// What that means, for people.
#[must_use]
pub fn sentence(swap: &Swap, first: Option<&FirstFailure>) -> String {
    let to = first.map_or_else(|| "another node".to_owned(), |first| first.node.to_string());
    format!(
        "the failure followed slot {} from {} to {to}: it is the program's or its data's, and {} is given back",
        swap.slot, swap.node, swap.node
    )
}
