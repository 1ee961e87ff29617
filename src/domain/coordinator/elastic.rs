//! Worlds of MIN to MAX nodes: how long one that is not full waits for more.
//!
//! * MAX nodes there: it opens at once. Fewer than MIN: it waits, for as long as a world may wait for its nodes.
//! * Before the first world of a launch, from MIN nodes on: the last call, unless every node of the launch has come or
//!   is known to be lost. Then there is nobody left to wait for.
//! * After a break, where the next world would be smaller than the one before: for [`REPLACEMENT`], the time in which
//!   an agent comes that is on its way, and for as long as the missing nodes may still have ranks, because new ones
//!   cannot start before that anyway. A member that is only away for a moment is waited for until that is settled.
//!   None of this is longer than the last call.
//! * A world never breaks to grow. Who comes while one runs is a spare, and has a place at the next restart.
//!
//! Where MIN is MAX none of this ever applies.

use std::time::Duration;

use super::super::ids::{Incarnation, NodeName};
use super::super::mutant::Mutant;
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::record::{AttemptBody, Body, Cause, Member};
use super::super::rendezvous::{self, Size};
use super::super::time::{BootTime, Now};
use super::Effect;
use super::state::{Coordinator, Phase, Want};

/// So long is a node waited for that takes the place of a lost one: an agent that is missed for 3 s is asked for, and
/// starts within the rest.
pub(super) const REPLACEMENT: Duration = Duration::from_secs(5);

/// Nodes of one launch come within moments of each other: so long nothing is said of the last call.
const AT_ONCE: Duration = Duration::from_secs(3);

impl Coordinator {
    /// How many nodes a world may have.
    pub(super) fn size(&self) -> Size {
        let spec = &self.config.spec;
        Size { min: spec.min_nodes.min(spec.max_nodes), max: spec.max_nodes }
    }

    /// A world may be smaller than a full one.
    pub(super) fn elastic(&self) -> bool {
        let size = self.size();
        size.min < size.max
    }

    /// Nodes wait that a world larger than the newest one has room for.
    pub(super) fn grows(&self) -> bool {
        let members = self.ledger.world().map_or(&[][..], |w| &w.members);
        let lost = |m: &super::super::record::Member| self.peers.get(&m.node).is_none_or(|p| p.lost);
        let waits = |(n, p): (&NodeName, &super::state::Peer)| {
            p.usable() && self.ledger.member(n).is_none() && !self.ledger.is_evicted(n)
        };
        self.elastic()
            && members.len() < self.size().max as usize
            && !members.iter().any(lost)
            && self.peers.iter().any(waits)
    }

    /// There are too few nodes for any world: the call begins anew when there are enough.
    pub(super) fn call_is_over(&mut self) {
        if let Some(want) = &mut self.want {
            want.call = None;
        }
    }

    /// A world of these members could open, and is held back because more nodes may come.
    pub(super) fn waits_for_more(&mut self, now: Now, members: &[Member], out: &mut Outbox<Effect>) -> bool {
        let size = self.size();
        if members.len() >= size.max as usize {
            return false;
        }
        let Some(want) = &mut self.want else { return false };
        let since = *want.call.get_or_insert(now.boot);
        let until = self.want.as_ref().map_or(now.boot, |want| self.call_until(want, since, members));
        if now.boot >= until {
            return false;
        }
        let there = members.iter().map(|m| m.node.clone()).collect();
        let missing = self.left_out(&there);
        // Until when its ranks may live is known a moment after a node is lost.
        let lost = |n: &&NodeName| self.peers.get(*n).is_some_and(|p| p.lost);
        let known = |n: &NodeName| self.busy.get(n).is_none_or(|b| b.over_at.is_some());
        let known = missing.iter().filter(lost).all(known);
        let Some(want) = &mut self.want else { return false };
        let first = want.cause == Cause::Start;
        let say_from = if first { since.after(AT_ONCE) } else { since };
        let say = now.boot >= say_from;
        want.call_until = Some(if say { until } else { until.min(say_from) });
        if say && known && !std::mem::replace(&mut want.said_call, true) {
            let have = u32::try_from(members.len()).unwrap_or(u32::MAX);
            let missing = if first { Vec::new() } else { missing };
            let left = u64::try_from(until.since(now.boot).as_millis().div_ceil(1_000)).unwrap_or(u64::MAX);
            let patience = Duration::from_secs(left);
            out.note(Note::LastCall { have, max: size.max, patience, missing });
        }
        true
    }

    /// Until when more nodes are waited for, where there are enough since `since`.
    fn call_until(&self, want: &Want, since: BootTime, members: &[Member]) -> BootTime {
        let numbers = &self.config.spec.numbers;
        let call = Duration::from_millis(numbers.last_call_ms);
        let join = want.since.after(Duration::from_millis(numbers.join_timeout_ms));
        let last = since.after(call).min(join);
        match &want.cause {
            Cause::Start if self.config.mutants.has(Mutant::NoLastCall) => since,
            Cause::Start if self.all_came() => since,
            Cause::Start => last,
            Cause::Incident(_) => self.replaced_by(since, members).min(last),
        }
    }

    /// Until when a node may come that makes up for those of the broken world that are missing among `members`.
    fn replaced_by(&self, since: BootTime, members: &[Member]) -> BootTime {
        let old = self.ledger.world().map_or(&[][..], |w| &w.members);
        if members.len() >= old.len() {
            return since;
        }
        let missing = old.iter().map(|m| &m.node).filter(|n| members.iter().all(|m| m.node != **n));
        missing.fold(since.after(REPLACEMENT), |until, node| {
            let away = self.peers.get(node).is_none_or(|p| !p.lost && !p.left && !p.linked);
            let over = match self.busy.get(node) {
                _ if away => BootTime::NEVER,
                Some(busy) => busy.over_at.unwrap_or(BootTime::NEVER),
                None => since,
            };
            until.max(over)
        })
    }

    /// Every node of the launch has come, or is known to be lost: one that was never heard may be on its way.
    fn all_came(&self) -> bool {
        let came = |n: &NodeName| {
            let peer = self.peers.get(n).filter(|p| p.incarnation != Incarnation::default());
            peer.is_some_and(|p| p.linked || p.lost || p.left)
                || self.refused.contains_key(n)
                || self.ledger.is_evicted(n)
        };
        // Somewhere else than in a job of Slurm nobody may know who belongs to it.
        self.config.voters.len() >= self.config.spec.max_nodes as usize && self.config.voters.iter().all(came)
    }

    /// Nobody waits any longer: opens what there is, a smaller world if there may be one.
    pub(super) fn opens_now(&mut self, now: Now, out: &mut Outbox<Effect>) -> bool {
        self.open(now, out);
        self.opening()
    }

    /// The record of a world is being written.
    pub(super) fn opening(&self) -> bool {
        self.append.as_ref().is_some_and(|f| matches!(f.record.body, Body::Attempt(_)))
    }

    /// Says by how much the world changed.
    pub(super) fn say_resized(&self, world: &AttemptBody, out: &mut Outbox<Effect>) {
        let size = self.size();
        // A launch that goes on with a run begins, for people, like a first one.
        let before = self.before.as_ref().filter(|_| world.cause != Cause::Start);
        let old = before.map_or(&[][..], |w| &w.members);
        let same = if before.is_some() { old.len() } else { size.max as usize };
        if !self.elastic() || world.members.len() == same {
            return;
        }
        let is_in = |list: &[Member], node: &NodeName| list.iter().any(|m| m.node == *node);
        let taken = |m: &Member| world.members.iter().any(|new| new.slot == m.slot);
        let missing = if before.is_some() {
            let left = old.iter().filter(|m| !is_in(&world.members, &m.node) && !taken(m));
            left.map(|m| m.node.clone()).collect()
        } else {
            let never = |n: &&NodeName| !is_in(&world.members, n) && !world.spares.contains(n);
            self.config.voters.iter().filter(never).cloned().collect()
        };
        let came = world.members.iter().filter(|m| !is_in(old, &m.node)).map(|m| m.node.clone());
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        out.note(Note::Resized {
            nodes: count(world.members.len()),
            max: size.max,
            ranks: rendezvous::world_size(&world.members),
            was: before.map(|_| count(old.len())),
            missing,
            came: came.collect(),
        });
    }

    /// A node came for the first time. Where a world runs that has room for it, it waits for the next restart.
    pub(super) fn came_late(&mut self, now: Now, node: &NodeName, out: &mut Outbox<Effect>) {
        let runs = matches!(self.phase, Phase::Starting | Phase::Running);
        let room = self.ledger.world().is_some_and(|w| w.members.len() < self.size().max as usize);
        if !runs || !room || self.ledger.member(node).is_some() {
            return;
        }
        out.note(Note::CameLate { node: node.clone() });
        if self.config.mutants.has(Mutant::GrowAtOnce) {
            self.agent_returned(now, out);
        }
    }

    /// What is waited for, for people who ask; none where nothing is.
    #[must_use]
    pub fn waits_for(&self) -> Option<String> {
        let want = self.want.as_ref().filter(|_| self.phase == Phase::Gathering)?;
        let (size, there) = (self.size(), self.present().len());
        if want.call_until.is_some() {
            return Some(format!(
                "more nodes than the {there} that are there; at most {} can be used",
                size.max
            ));
        }
        let few = want.said_waiting && there < size.min as usize;
        let least = if self.elastic() { "at least " } else { "" };
        few.then(|| format!("{least}{} nodes that can run ranks, {there} there", size.min))
    }
}
