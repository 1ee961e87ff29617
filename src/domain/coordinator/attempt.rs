//! Opening a world and running it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::super::first_failure::Seen;
use super::super::ids::{Attempt, NodeName, Rank, Slot};
use super::super::mutant::Mutant;
use super::super::note::{Note, Replaced};
use super::super::outbox::Outbox;
use super::super::record::{AttemptBody, Body, Cause, Decision, Outcome};
use super::super::rendezvous::{self, Candidate, Waiting};
use super::super::time::Now;
use super::super::wire::{AgentMsg, ExitReport, StopWhy};
use super::Effect;
use super::state::{Busy, Coordinator, Phase, Shown};

impl Coordinator {
    /// Proposes the next world as soon as it can be planned.
    pub(super) fn open(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.append.is_some() || self.breaking.as_ref().is_some_and(|b| b.open) {
            return;
        }
        // While the gate holds nobody waits for a last call.
        if let Some(want) = &mut self.want {
            want.call_until = None;
        }
        if self.want.is_some() && self.gate_holds(now, out) {
            return;
        }
        if self.holds_back(now) {
            return;
        }
        let size = self.size();
        let Some(want) = &self.want else { return };
        let full = size.max as usize;
        let early = self.still_early(now, want.since);
        let usable = self.peers.iter().filter(|(_, p)| p.usable());
        let candidates: Vec<Candidate> = usable
            .map(|(node, p)| Candidate {
                node: node.clone(),
                incarnation: p.incarnation,
                spec: p.spec.clone(),
                offer: p.offer.clone(),
            })
            .collect();
        match rendezvous::plan(&self.ledger, &candidates, size, &want.replace, self.config.mutants) {
            Err(Waiting::Offer) => {}
            Err(Waiting::Nodes { have, need }) => {
                self.call_is_over();
                if !early {
                    self.say_waiting(now, have, need, out);
                }
            }
            Ok(plan) if early && plan.members.len() == full => {}
            // One of which nothing is heard is not counted on before that is settled, one way or the other.
            Ok(plan) if plan.members.iter().any(|m| self.in_doubt(&m.node)) => {}
            Ok(plan) if !self.may_open(&plan.members, &plan.spares) => {
                let votes = u32::try_from(self.ledger.voters().len().div_ceil(2)).unwrap_or(u32::MAX);
                let have = u32::try_from(self.present().len()).unwrap_or(u32::MAX);
                self.say_waiting(now, have, votes.max(size.min), out);
            }
            Ok(plan) if self.waits_for_more(now, &plan.members, out) => {}
            Ok(plan) => {
                let Some(want) = &self.want else { return };
                let gone = self.left_out(&plan.members.iter().map(|m| m.node.clone()).collect());
                let shrinks = self.ledger.world().is_some_and(|w| plan.members.len() < w.members.len());
                let (cause, mut why) = (want.cause.clone(), want.why.clone());
                if why.is_empty() {
                    why.push("a world is wanted".to_owned());
                }
                let body = plan.body(decided(cause, gone, shrinks));
                if self.config.mutants.has(Mutant::ActBeforeWritten) {
                    self.send_starts(now, self.ledger.next_attempt(), &body, out);
                }
                self.propose(now, Body::Attempt(body), why, out);
            }
        }
    }

    fn say_waiting(&mut self, now: Now, have: u32, need: u32, out: &mut Outbox<Effect>) {
        let join = Duration::from_millis(self.config.spec.numbers.join_timeout_ms);
        let there = self.peers.iter().filter(|(_, p)| p.usable()).map(|(n, _)| n.clone()).collect();
        let missing = self.left_out(&there);
        let Some(want) = self.want.as_mut().filter(|w| !w.said_waiting) else { return };
        want.said_waiting = true;
        let patience = want.since.after(join).since(now.boot);
        out.note(Note::WaitingForNodes { have, need, patience, missing });
    }

    /// Members of the world before that are not in the next one.
    pub(super) fn left_out(&self, members: &BTreeSet<NodeName>) -> Vec<NodeName> {
        let old = self.ledger.world().map_or(&[][..], |w| &w.members);
        old.iter().map(|m| m.node.clone()).filter(|n| !members.contains(n)).collect()
    }

    /// The record of a world is written.
    pub(super) fn opened(&mut self, now: Now, out: &mut Outbox<Effect>) {
        self.ends.clear();
        self.started.clear();
        self.finished.clear();
        self.start_sent = None;
        let Some(world) = self.ledger.world().cloned() else { return };
        out.put(Effect::Voters(world.voters.clone()));
        if self.ending.is_some() {
            return;
        }
        self.say_moved(&world, out);
        self.say_resized(&world, out);
        self.phase = Phase::Starting;
        self.want = None;
        let unfit = world
            .members
            .iter()
            .find(|m| self.peers.get(&m.node).is_none_or(|p| p.incarnation != m.incarnation || !p.usable()));
        if let Some(member) = unfit {
            let lost = self.peers.get(&member.node).is_none_or(|p| p.lost);
            return self.node_gone(now, &member.node.clone(), lost, out);
        }
        self.start_if_quiet(now, out);
    }

    /// Who took whose slot, as which of the spares that there were.
    fn say_moved(&self, world: &AttemptBody, out: &mut Outbox<Effect>) {
        let Some(old) = &self.before else { return };
        // Thousands may be in both.
        let nodes: BTreeSet<&NodeName> = old.members.iter().map(|m| &m.node).collect();
        let slots: BTreeMap<Slot, &NodeName> = old.members.iter().map(|m| (m.slot, &m.node)).collect();
        let was = |node: &NodeName| nodes.contains(node);
        let new = world.members.iter().map(|m| &m.node).filter(|n| !was(n));
        let place = |n: &NodeName| self.peers.get(n).map_or(u32::MAX, |p| p.spec.order);
        let mut spares: Vec<&NodeName> = new.chain(world.spares.iter().filter(|n| !was(n))).collect();
        spares.sort_by_key(|n| (place(n), (*n).clone()));
        let number = |i: usize| u32::try_from(i).unwrap_or(u32::MAX);
        for member in &world.members {
            let Some(&before) = slots.get(&member.slot).filter(|node| ***node != member.node) else {
                continue;
            };
            let at = spares.iter().position(|n| **n == member.node).map_or(0, |i| i + 1);
            let first = rendezvous::first_rank(&world.members, &member.node).unwrap_or_default();
            out.note(Note::SlotFilled {
                slot: member.slot,
                node: member.node.clone(),
                instead_of: before.clone(),
                why: self.why_replaced(before),
                spare: (number(at), number(spares.len())),
                ranks: (first, Rank(first.0.saturating_add(member.nproc.saturating_sub(1)))),
            });
        }
    }

    fn why_replaced(&self, node: &NodeName) -> Replaced {
        match self.peers.get(node) {
            _ if self.ledger.is_evicted(node) => Replaced::Evicted,
            Some(peer) if peer.lost => Replaced::Lost,
            Some(peer) if !peer.survivors.is_empty() => Replaced::Dirty,
            Some(peer) if peer.usable() => Replaced::FailedTwice,
            _ => Replaced::Away,
        }
    }

    /// Ranks of the new world start when nobody has any of an older one.
    pub(super) fn start_if_quiet(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.start_sent.is_some() || self.phase != Phase::Starting {
            return;
        }
        let hasty = self.config.mutants.has(Mutant::StartBeforeGrantOver);
        let waits_for = |n: &NodeName| !hasty || self.peers.get(n).is_some_and(|p| !p.lost);
        if self.busy.keys().any(waits_for) {
            return self.repeat_from(now);
        }
        let (Some(attempt), Some(world)) = (self.ledger.attempt(), self.ledger.world()) else { return };
        let body = world.clone();
        self.start_sent = Some(now.boot);
        for member in &body.members {
            let busy = Busy { incarnation: member.incarnation, attempt, over_at: None };
            self.busy.insert(member.node.clone(), busy);
            if let Some(peer) = self.peers.get_mut(&member.node) {
                // It is used up by this attempt; the agent offers another.
                peer.offer = None;
            }
        }
        self.send_starts(now, attempt, &body, out);
    }

    fn send_starts(&mut self, now: Now, attempt: Attempt, body: &AttemptBody, out: &mut Outbox<Effect>) {
        let world = rendezvous::world(body);
        let hosted = Arc::new(self.hosted_world(world.clone()));
        let world = Arc::new(world);
        let lives = body.members.iter().map(|m| (m.node.clone(), m.incarnation)).collect();
        let shown = Shown { attempt, world, hosted, lives };
        for member in &body.members {
            let (life, world) = (member.incarnation, shown.world_for(&member.node));
            self.send(&member.node, AgentMsg::Start { attempt, life, world }, out);
        }
        self.seen = Some(shown);
        self.repeat_from(now);
    }

    pub(super) fn node_started(
        &mut self,
        now: Now,
        node: &NodeName,
        attempt: Attempt,
        out: &mut Outbox<Effect>,
    ) {
        if self.phase != Phase::Starting || self.ledger.attempt() != Some(attempt) {
            return;
        }
        self.started.insert(node.clone());
        let Some(world) = self.ledger.world() else { return };
        if self.started.len() < world.members.len() {
            return;
        }
        if !world.members.iter().all(|m| self.started.contains(&m.node)) {
            return;
        }
        let ranks = rendezvous::world_size(&world.members);
        let nodes = u32::try_from(world.members.len()).unwrap_or(u32::MAX);
        let spares = u32::try_from(world.spares.len()).unwrap_or(u32::MAX);
        self.phase = Phase::Running;
        let down = self.down_since.take().map(|since| now.boot.since(since));
        out.note(Note::AttemptRunning { attempt, ranks, nodes, down, spares });
        if let Some(mut broke) = self.breaking.take() {
            broke.running = Some(now.boot);
            self.settling.push(broke);
        }
    }

    pub(super) fn node_finished(
        &mut self,
        now: Now,
        node: &NodeName,
        attempt: Attempt,
        exits: Vec<ExitReport>,
        out: &mut Outbox<Effect>,
    ) {
        self.merge(now, node, attempt, exits);
        if self.busy.get(node).is_some_and(|b| b.attempt <= attempt) {
            self.busy.remove(node);
        }
        if self.ledger.attempt() != Some(attempt) || !matches!(self.phase, Phase::Starting | Phase::Running) {
            return;
        }
        self.node_started(now, node, attempt, out);
        self.finished.insert(node.clone());
        let Some(world) = self.ledger.world() else { return };
        if self.finished.len() < world.members.len() {
            return;
        }
        if world.members.iter().all(|m| self.finished.contains(&m.node)) {
            self.end(now, Outcome::Finished, 0, "every rank ended with exit code 0".to_owned(), out);
        }
    }

    /// Puts the ends that an agent reports beside those that are known.
    pub(super) fn merge(&mut self, now: Now, node: &NodeName, attempt: Attempt, exits: Vec<ExitReport>) {
        let newest = self.ledger.attempt() == Some(attempt);
        let own = *node == self.config.node
            && self.peers.get(node).is_some_and(|p| p.incarnation == self.config.incarnation);
        let (members, ends) = match (&mut self.breaking, self.ledger.world()) {
            (Some(broke), _) if broke.attempt == attempt => {
                broke.telling |= broke.open && exits.iter().any(ExitReport::may_be_first);
                (&broke.members, &mut broke.ends)
            }
            (_, Some(world)) if newest => (&world.members, &mut self.ends),
            _ => return,
        };
        if self.firsts.0 != Some(attempt) {
            self.firsts = (Some(attempt), rendezvous::first_ranks(members));
        }
        let Some(&(first, nproc)) = self.firsts.1.get(node) else { return };
        // A rank that this node does not have is another node's, of which it knows nothing.
        for report in exits.into_iter().filter(|report| report.local_rank.0 < nproc) {
            let rank = Rank(first.0.saturating_add(report.local_rank.0));
            // In one process there is one clock, and nothing ages while a thread is busy.
            let at = if own { report.at } else { now.boot.before(Duration::from_millis(report.ago_ms)) };
            let at = at.min(now.boot);
            ends.entry(rank).or_insert_with(|| Seen { rank, node: node.clone(), report, at });
        }
    }

    /// Says again what this node should be doing and has not confirmed.
    pub(super) fn orders(&mut self, now: Now, node: &NodeName, out: &mut Outbox<Effect>) {
        if let Phase::Closed { code } = self.phase {
            return self.send(node, AgentMsg::Finish { code }, out);
        }
        let Some(attempt) = self.ledger.attempt() else { return };
        let busy = self.busy.get(node).copied();
        let current = busy.is_some_and(|b| b.attempt == attempt);
        let runs = matches!(self.phase, Phase::Starting | Phase::Running) && self.broken < Some(attempt);
        match busy {
            Some(_) if current && runs => {
                if !self.started.contains(node)
                    && let Some(seen) = self.seen.as_ref().filter(|seen| seen.attempt == attempt)
                    && let Some(&life) = seen.lives.get(node)
                {
                    let world = seen.world_for(node);
                    self.send(node, AgentMsg::Start { attempt, life, world }, out);
                }
            }
            Some(busy) => {
                let why = if self.ending.is_some() { StopWhy::End } else { StopWhy::Restart };
                let order = self.stop_order();
                self.send(node, AgentMsg::Stop { attempt: busy.attempt, order, why }, out);
            }
            None => {}
        }
        self.repeat_from(now);
    }

    /// Repeats every order that is not confirmed.
    pub(super) fn repeat(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if let Phase::Closed { .. } = self.phase {
            let here: Vec<NodeName> =
                self.peers.iter().filter(|(_, p)| p.linked && !p.left).map(|(n, _)| n.clone()).collect();
            for node in here {
                self.orders(now, &node, out);
                self.repeat_from(now);
            }
            return;
        }
        let waiting =
            self.phase == Phase::Running && self.started.len() == self.busy.len() + self.finished.len();
        for node in self.busy.keys().cloned().collect::<Vec<_>>() {
            self.orders(now, &node, out);
        }
        if waiting {
            self.resend = None;
        }
    }
}

fn decided(cause: Cause, gone: Vec<NodeName>, shrinks: bool) -> Cause {
    match cause {
        Cause::Incident(mut broke) => {
            broke.decision = match gone {
                gone if gone.is_empty() => Decision::Restart,
                nodes if shrinks => Decision::Shrink { nodes },
                nodes => Decision::Replace { nodes },
            };
            Cause::Incident(broke)
        }
        Cause::Start => Cause::Start,
    }
}
