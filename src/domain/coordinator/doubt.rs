//! Nodes in doubt: silent for a while, not yet for long enough to be lost by silence alone.
//!
//! A node of which nothing was heard for [`QUIET`](super::super::authority::QUIET) is lost at once when one
//! more thing confirms it:
//!
//! * its control connection was closed and not opened again within [`REDIAL`]: a host that lives and loses
//!   its agent says so, and beats have a connection of their own, so one that merely broke would still beat;
//! * the supervisor says that its task ended;
//! * two other nodes, which themselves are heard, cannot reach it either within [`REACH`]. One that can, or
//!   that is refused, speaks against it: an agent that is stopped is no lost node. So is a node that only
//!   this coordinator cannot hear. With fewer than two to ask only silence counts.
//!
//! None of these alone is enough. It costs nothing: a node that is left out is waited for until its grant is
//! surely over, however early it is known to be lost, and that is later than this. What is won is that the
//! ranks of the others are stopped by then. Who slept himself believes none of it for one lease.

use std::time::Duration;

use super::super::ids::NodeName;
use super::super::note::{Note, Sign};
use super::super::outbox::Outbox;
use super::super::time::{BootTime, Now, earlier};
use super::super::wire::AgentMsg;
use super::state::{Coordinator, Phase};
use super::{Effect, REACH};

/// A closed connection is opened again within this by an agent that lives.
pub(super) const REDIAL: Duration = Duration::from_secs(1);
/// Between two rounds of questions about one node.
const ROUND: Duration = Duration::from_secs(1);
/// For a question and its answer on their way.
const WAY: Duration = Duration::from_millis(500);
/// How many must fail to reach it.
const WITNESSES: usize = 2;
/// The machine wants to be woken so often, to notice that it slept.
const WAKE: Duration = Duration::from_millis(500);
/// An event so much later than it means that this process slept.
const SLEPT: Duration = Duration::from_secs(1);

/// What is known of a node in doubt.
#[derive(Clone, Debug)]
pub(super) struct Doubt {
    /// Its last sign of life.
    since: BootTime,
    /// When the next round begins, at the latest.
    next: BootTime,
    asked_at: Option<BootTime>,
    /// Who was asked in this round, and what it said.
    asked: Vec<(NodeName, Option<bool>)>,
}

impl Coordinator {
    /// Nothing was heard of an admitted node for a while.
    pub(super) fn quiet(&mut self, now: Now, node: NodeName, silent: Duration, out: &mut Outbox<Effect>) {
        if self.is_closed() || self.ledger.is_evicted(&node) || self.peers.get(&node).is_none_or(|p| p.lost) {
            return;
        }
        out.note(Note::InDoubt { node: node.clone(), silent });
        let since = now.boot.before(silent);
        let doubt = Doubt { since, next: now.boot, asked_at: None, asked: Vec::new() };
        self.doubts.insert(node, doubt);
    }

    /// It beats again.
    pub(super) fn late(&mut self, node: NodeName, silent: Duration, out: &mut Outbox<Effect>) {
        self.doubts.remove(&node);
        self.ended_tasks.remove(&node);
        out.note(Note::BeatsLate { node, silent });
    }

    /// Somebody tried to reach a node.
    pub(super) fn reach(&mut self, from: &NodeName, node: &NodeName, ok: bool) {
        let Some(doubt) = self.doubts.get_mut(node) else { return };
        if let Some((_, answer)) = doubt.asked.iter_mut().find(|(who, _)| who == from) {
            answer.get_or_insert(ok);
        }
    }

    /// Who slept knows nothing about others, whatever he was told before.
    pub(super) fn notice_pause(&mut self, now: Now) {
        if self.wake.is_some_and(|at| now.boot > at.after(SLEPT)) {
            self.believe_from = now.boot.after(self.config.spec.numbers.authority());
            for doubt in self.doubts.values_mut() {
                (doubt.next, doubt.asked_at) = (self.believe_from, None);
                doubt.asked.clear();
            }
        }
    }

    /// Plans the next look at the clock. Where nobody can be lost nobody has to be awake for it.
    pub(super) fn awake(&mut self, now: Now) {
        let alone = self.forever() || self.is_closed();
        self.wake = (!alone).then(|| now.boot.after(WAKE));
    }

    /// Declares lost whoever is confirmed, and asks about the others.
    pub(super) fn look_into_doubts(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.is_closed() || self.phase == Phase::Electing {
            return self.doubts.clear();
        }
        self.doubts.retain(|node, _| self.peers.get(node).is_some_and(|p| !p.lost));
        if now.boot < self.believe_from {
            return;
        }
        for node in self.doubts.keys().cloned().collect::<Vec<_>>() {
            let Some(doubt) = self.doubts.get(&node) else { continue };
            let silent = now.boot.since(doubt.since);
            match self.confirmed(now, &node, doubt) {
                Some(sign) => self.lose(now, &node, silent, sign, out),
                None if now.boot >= self.round_at(&node) => self.ask_about(now, &node, out),
                None => {}
            }
        }
    }

    fn confirmed(&self, now: Now, node: &NodeName, doubt: &Doubt) -> Option<Sign> {
        let peer = self.peers.get(node)?;
        // One that ended while its node went on beating was a second task.
        if self.ended_tasks.get(node).is_some_and(|ended| ended.after(REDIAL) >= doubt.since) {
            return Some(Sign::TaskEnded);
        }
        if peer.unlinked.is_some_and(|at| now.boot.since(at) >= REDIAL) {
            return Some(Sign::Closed);
        }
        let cannot = doubt.asked.iter().filter(|(_, answer)| *answer == Some(false));
        let from: Vec<NodeName> = cannot.map(|(who, _)| who.clone()).collect();
        (from.len() >= WITNESSES).then_some(Sign::Unreachable { from })
    }

    /// When the next round about this node is due: not before this one is answered or too old to be.
    fn round_at(&self, node: &NodeName) -> BootTime {
        let Some(doubt) = self.doubts.get(node) else { return BootTime::NEVER };
        let answered = doubt.asked.iter().all(|(_, answer)| answer.is_some());
        match doubt.asked_at {
            Some(at) if answered => at.after(ROUND),
            _ => doubt.next,
        }
    }

    fn ask_about(&mut self, now: Now, node: &NodeName, out: &mut Outbox<Effect>) {
        let witnesses = self.witnesses(node);
        let address = self.address_of(node);
        let Some(doubt) = self.doubts.get_mut(node) else { return };
        doubt.asked.clear();
        (doubt.asked_at, doubt.next) = (None, now.boot.after(ROUND));
        let (Some(address), true) = (address, witnesses.len() >= WITNESSES) else { return };
        (doubt.asked_at, doubt.next) = (Some(now.boot), now.boot.after(REACH + WAY));
        doubt.asked = witnesses.iter().map(|who| (who.clone(), None)).collect();
        for who in witnesses {
            self.send(&who, AgentMsg::TryReach { node: node.clone(), address: address.clone() }, out);
        }
    }

    fn address_of(&self, node: &NodeName) -> Option<String> {
        let spec = &self.peers.get(node)?.spec;
        let host = &spec.address;
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        (spec.port != 0 && !spec.address.is_empty()).then(|| format!("{host}:{}", spec.port))
    }

    /// The two nodes that stand next to it in order, of those that are heard. This one's own view is known.
    fn witnesses(&self, node: &NodeName) -> Vec<NodeName> {
        let place = |n: &NodeName| self.peers.get(n).map_or(0, |p| p.spec.order);
        let key = (place(node), node.clone());
        let heard = self.peers.iter().filter(|(n, p)| {
            *n != node && **n != self.config.node && p.heard() && !self.doubts.contains_key(*n)
        });
        let mut all: Vec<(u32, NodeName)> = heard.map(|(n, _)| (place(n), n.clone())).collect();
        all.sort();
        let at = all.partition_point(|other| *other < key);
        let mut two: Vec<NodeName> = Vec::new();
        let around =
            all.get(..at).unwrap_or_default().iter().rev().take(1).chain(all.iter().skip(at).take(1));
        two.extend(around.map(|(_, n)| n.clone()));
        let rest = all.iter().rev().map(|(_, n)| n.clone());
        for other in rest {
            if two.len() < WITNESSES && !two.contains(&other) {
                two.push(other);
            }
        }
        two.sort_by_key(|n| (place(n), n.clone()));
        two
    }

    /// When doubts are looked into again.
    pub(super) fn doubts_at(&self) -> Option<BootTime> {
        let when = self.doubts.keys().map(|node| {
            let closed = self.peers.get(node).and_then(|p| p.unlinked).map(|at| at.after(REDIAL));
            let round = self.round_at(node);
            closed.map_or(round, |at| at.min(round)).max(self.believe_from)
        });
        when.map(Some).fold(None, earlier)
    }

    /// Somebody about whom nothing is settled could be in the next world.
    pub(super) fn in_doubt(&self, node: &NodeName) -> bool {
        self.doubts.contains_key(node)
    }
}
