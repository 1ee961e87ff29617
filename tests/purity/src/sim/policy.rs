//! Decisions about failures: what is found out for them, nodes that are taken out, and the rules that hold for both.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{MS, Task, Thread, World};
use crate::domain::board::Request;
use crate::domain::coordinator::{Event, Found, Phase};
use crate::domain::exit_code;
use crate::domain::ids::{Attempt, NodeName};
use crate::domain::policy::{Ask, JobWord, Probes};
use crate::domain::record::{AttemptBody, Body, Decision, Evict, Record};
use crate::domain::wire::CoordinatorMsg;

/// So many nodes may be taken out by inference in ten minutes: scenarios are shorter, and worlds small.
const MOST: usize = 2;

/// What the rules look back on.
#[derive(Debug, Default)]
pub(super) struct Seen {
    evicted: BTreeSet<NodeName>,
    inferred: usize,
    /// The first and the furthest step that coordinators heard of.
    pub(super) steps: BTreeMap<Attempt, (u64, u64)>,
    ever: BTreeSet<NodeName>,
}

impl Seen {
    /// It was taken out at some time.
    pub(super) fn was_out(&self, node: &NodeName) -> bool {
        self.ever.contains(node)
    }
}

impl World {
    /// Ranks of this node ask for it to be taken out.
    pub(super) fn ask_to_leave(&mut self, node: usize) {
        let attempts: Vec<Attempt> = self.nodes[node].ranks.values().map(|r| r.attempt).collect();
        self.asking.extend(attempts.into_iter().map(|attempt| (node, attempt)));
    }

    pub(super) fn request(&self, node: usize, attempt: Attempt) -> Option<Request> {
        let asks = self.asking.contains(&(node, attempt));
        asks.then(|| Request::Evict { reason: "it is slow".to_owned() })
    }

    /// Ranks say where they are, and their coordinator hears it while they run.
    pub(super) fn told(&mut self, node: usize, msg: &CoordinatorMsg) {
        let CoordinatorMsg::Progress { attempt, ranks, .. } = msg else { return };
        let Some(lead) = self.nodes[node].agent.as_ref().and_then(|p| p.lead.as_deref()) else { return };
        let runs = matches!(lead.coordinator.phase(), Phase::Starting | Phase::Running);
        if !runs || lead.coordinator.ledger().attempt() != Some(*attempt) {
            return;
        }
        for step in ranks.iter().filter_map(|rank| rank.step) {
            let (first, most) = self.check.policy.steps.entry(*attempt).or_insert((step, step));
            (*first, *most) = ((*first).min(step), (*most).max(step));
        }
    }

    /// An attempt that went beyond all before it is no reason to end a run.
    fn check_stop(&mut self, record: &Record, attempt: Attempt) {
        let steps = &self.check.policy.steps;
        let Some((first, most)) = steps.get(&attempt) else { return };
        let best = steps.range(..attempt).map(|(_, (_, most))| *most).max();
        if best.is_some_and(|best| *most > best && *first * 2 >= best && *first > 0) {
            let detail = format!("record {}: {:?}", record.seq, record.why);
            self.check.fail("progress_is_not_stopped", self.now, detail);
        }
    }

    /// What a decision depends on is found out in a while, or never.
    pub(super) fn seek(&mut self, node: usize, ask: Ask) {
        let some = |n: u64| [None, Some(false), Some(true), Some(true)][n as usize];
        let found = match ask {
            Ask::Probes => {
                let (storage, names) = (some(self.rng.below(4)), some(self.rng.below(4)));
                Found::Probes(Probes { storage, names })
            }
            Ask::Slurm => Found::Job([JobWord::Runs, JobWord::Unknown][self.rng.below(2) as usize]),
            Ask::Signals => return,
        };
        if self.rng.chance(800) {
            let took = self.rng.range(1, 3_500) * MS;
            self.task(node, took, Thread::Control, Task::Coordinator(Event::Found(found)));
        }
    }

    /// `no_eviction_beyond_the_breaker`, `evicted_stays_out`, `progress_is_not_stopped`.
    pub(super) fn check_policy(&mut self, record: &Record) {
        match &record.body {
            Body::Evict(evict) => self.check_evict(record, evict),
            Body::Attempt(body) => self.check_out(record, body),
            Body::Incident(incident) => {
                if matches!(incident.decision, Decision::Stop { code: exit_code::DO_NOT_REQUEUE }) {
                    self.check_stop(record, incident.attempt);
                }
            }
            _ => {}
        }
    }

    fn check_evict(&mut self, record: &Record, evict: &Evict) {
        let seen = &mut self.check.policy;
        if evict.back {
            if !seen.evicted.remove(&evict.node) {
                let detail = format!("record {}: {} was not out", record.seq, evict.node);
                self.check.fail("evicted_stays_out", self.now, detail);
            }
            return;
        }
        self.counters.evicted += 1;
        seen.evicted.insert(evict.node.clone());
        seen.ever.insert(evict.node.clone());
        seen.inferred += usize::from(evict.inferred);
        self.check.disturbed.insert(record.attempt);
        let seen = &self.check.policy;
        if seen.inferred > MOST {
            let detail =
                format!("record {}: {} is node {} in short time", record.seq, evict.node, seen.inferred);
            self.check.fail("no_eviction_beyond_the_breaker", self.now, detail);
        }
    }

    fn check_out(&mut self, record: &Record, body: &AttemptBody) {
        let out = &self.check.policy.evicted;
        if let Some(member) = body.members.iter().find(|m| out.contains(&m.node)) {
            let detail = format!("record {}: {} has a place", record.seq, member.node);
            self.check.fail("evicted_stays_out", self.now, detail);
        }
    }
}
