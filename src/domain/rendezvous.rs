//! Rendezvous: functions over the ledger. May a world open, and who gets which slot?
//!
//! Slots are stable: a member keeps its slot as long as it is healthy, a free slot goes to the first spare in
//! order, nobody else moves. A world of fewer nodes than it may have leaves slots empty, wherever they are; ranks are
//! counted over those that are taken.

use std::collections::{BTreeMap, BTreeSet};

use super::ids::{Incarnation, NodeName, Rank, Slot};
use super::ledger::Ledger;
use super::mutant::{Mutant, Mutants};
use super::record::{AttemptBody, Cause, Member};
use super::spec::{NodeSpec, Offer};
use super::wire::World;

/// A node that could be in the next world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The node.
    pub node: NodeName,
    /// The admitted life of its agent.
    pub incarnation: Incarnation,
    /// What it brings.
    pub spec: NodeSpec,
    /// Where its rank 0 could host the store.
    pub offer: Option<Offer>,
}

/// The next world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its nodes, by slot.
    pub members: Vec<Member>,
    /// The nodes that wait, in order.
    pub spares: Vec<NodeName>,
    /// Where rank 0 hosts the store.
    pub master: Offer,
}

/// Why no world can open yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// Too few nodes.
    Nodes {
        /// How many are there.
        have: u32,
        /// How many it takes.
        need: u32,
    },
    /// The node of rank 0 has no port yet.
    Offer,
}

/// How many nodes a world has: the same number twice where it is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// At least.
    pub min: u32,
    /// At most, and so many slots there are.
    pub max: u32,
}

/// Plans the next world, as large as it can be. `replace` are nodes that are taken only if nobody else can take their
/// slot and the world would be smaller without them (they failed first twice).
pub fn plan(
    ledger: &Ledger,
    candidates: &[Candidate],
    size: Size,
    replace: &BTreeSet<NodeName>,
    mutants: Mutants,
) -> Result<Plan, Waiting> {
    let mut free: Vec<&Candidate> = candidates
        .iter()
        .filter(|c| !ledger.is_evicted(&c.node) || mutants.has(Mutant::EvictedReturns))
        .collect();
    free.sort_by(|a, b| (a.spec.order, &a.node).cmp(&(b.spec.order, &b.node)));
    let have = u32::try_from(free.len()).unwrap_or(u32::MAX);
    if have < size.min && !(mutants.has(Mutant::BelowMin) && have > 0) {
        return Err(Waiting::Nodes { have, need: size.min });
    }
    let old = ledger.world().map_or(&[][..], |w| &w.members);
    let mut seats: Vec<Option<&Candidate>> = vec![None; size.max as usize];
    for member in old {
        let Some(seat) = seats.get_mut(member.slot.0 as usize) else { continue };
        let at = free.iter().position(|c| c.node == member.node && !replace.contains(&c.node));
        if let (None, Some(at)) = (*seat, at) {
            *seat = Some(free.remove(at));
        }
    }
    // Fresh nodes first: a node that failed twice comes back only where nobody else is left.
    free.sort_by_key(|c| replace.contains(&c.node));
    let enough = old.len().max(size.min as usize);
    let taken = seats.iter().flatten().count();
    for (taken, seat) in (taken..).zip(seats.iter_mut().filter(|s| s.is_none())) {
        let Some(next) = free.first() else { break };
        if taken >= enough && replace.contains(&next.node) {
            break;
        }
        *seat = Some(free.remove(0));
    }
    let mut members: Vec<Member> =
        seats.iter().zip(0..).filter_map(|(c, slot)| c.map(|c| member(c, Slot(slot)))).collect();
    if mutants.has(Mutant::SlotTwice)
        && let [.., a, b] = members.as_mut_slice()
    {
        b.slot = a.slot;
    }
    let first = seats.iter().flatten().next();
    let Some(master) = first.and_then(|c| c.offer.clone()) else { return Err(Waiting::Offer) };
    free.sort_by(|a, b| (a.spec.order, &a.node).cmp(&(b.spec.order, &b.node)));
    Ok(Plan { members, spares: free.into_iter().map(|c| c.node.clone()).collect(), master })
}

fn member(c: &Candidate, slot: Slot) -> Member {
    Member {
        slot,
        node: c.node.clone(),
        incarnation: c.incarnation,
        nproc: c.spec.nproc,
        log_dir: c.spec.log_dir.clone(),
        role: c.spec.role.clone(),
    }
}

impl Plan {
    /// The record body that opens this world. The voters are its nodes and its spares, in the order of
    /// slots, then of spares.
    #[must_use]
    pub fn body(self, cause: Cause) -> AttemptBody {
        let voters = self.members.iter().map(|m| m.node.clone()).chain(self.spares.iter().cloned()).collect();
        AttemptBody {
            members: self.members,
            spares: self.spares,
            voters,
            master: self.master,
            resume: None,
            cause,
        }
    }
}

/// All ranks of these nodes.
#[must_use]
pub fn world_size(members: &[Member]) -> u32 {
    members.iter().fold(0, |sum, m| sum.saturating_add(m.nproc))
}

/// The first rank of a node: the ranks of all nodes in the slots before it.
#[must_use]
pub fn first_rank(members: &[Member], node: &NodeName) -> Option<Rank> {
    let at = members.iter().position(|m| &m.node == node)?;
    Some(Rank(world_size(members.get(..at)?)))
}

/// [`first_rank`] of every node, and how many ranks it has.
#[must_use]
pub fn first_ranks(members: &[Member]) -> BTreeMap<NodeName, (Rank, u32)> {
    let mut first = Rank(0);
    let mut all = BTreeMap::new();
    for member in members {
        // A name that came twice would be found where it came first.
        all.entry(member.node.clone()).or_insert((first, member.nproc));
        first = Rank(first.0.saturating_add(member.nproc));
    }
    all
}

/// The world that a written record opens, as every rank of it sees it: no rank needs the lives of agents, nor where the
/// logs of others lie.
#[must_use]
pub fn world(body: &AttemptBody) -> World {
    let seen =
        |m: &Member| Member { incarnation: Incarnation::default(), log_dir: String::new(), ..m.clone() };
    World {
        members: body.members.iter().map(seen).collect(),
        master: body.master.clone(),
        resume: body.resume,
        addresses: Vec::new(),
    }
}

#[cfg(test)]
#[path = "rendezvous_tests.rs"]
mod tests;
