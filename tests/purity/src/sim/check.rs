//! The rules that hold after every event.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::node::PEER_LOST_WORDS;
use super::world::{MS, Ns, Seat, World};
use crate::domain::exit::ExitKind;
use crate::domain::guardian::NO_GRANT;
use crate::domain::ids::{Attempt, Incarnation, NodeName, Rank, Seq};
use crate::domain::ledger::Ledger;
use crate::domain::liveness::vote::HANG;
use crate::domain::record::{AttemptBody, Body, Cause, Decision, FirstFailure, Incident, Member, Record};
use crate::domain::rendezvous;
use crate::domain::time::{BootTime, Now};
use crate::domain::wire::{Ack, World as RanksWorld};

/// From the end of a grant to the death of the last rank, clocks that drift included.
const FENCE: Ns = 230 * MS;
/// What two clocks may differ over one lease.
const DRIFT: Ns = 10 * MS;

/// A rule that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// When, virtual ms.
    pub at_ms: u64,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}.{:03} s: {}", self.rule, self.at_ms / 1000, self.at_ms % 1000, self.detail)
    }
}

#[derive(Debug, Default)]
pub(super) struct Check {
    pub(super) policy: super::policy::Seen,
    pub(super) violation: Option<Violation>,
    /// Ranks that ended by themselves or could not be started.
    pub(super) failed: BTreeSet<(Attempt, Rank)>,
    /// Ranks that ended by themselves with 0.
    pub(super) done: BTreeSet<(Attempt, Rank)>,
    spawned: BTreeSet<(Attempt, Rank)>,
    worlds: BTreeMap<Attempt, RanksWorld>,
    tried: BTreeMap<(Incarnation, Seq), u64>,
    nonces: BTreeSet<u64>,
    charged: BTreeSet<Attempt>,
    incidents: BTreeSet<(Incarnation, Attempt)>,
    /// What was decided of each incident, in the record that opened a world for it.
    decisions: BTreeMap<u64, (Attempt, Decision)>,
    /// Incidents that have their report.
    reports: BTreeSet<u64>,
    /// Until when the sender of each acknowledgement had authority.
    acks: BTreeMap<(Incarnation, u64), Ns>,
    /// Until when anybody had authority.
    authority: Ns,
    told: Option<u8>,
    /// Nodes that came to the newest launch.
    came: BTreeSet<NodeName>,
    /// The first world of the newest launch is written.
    begun: bool,
    /// Attempts of which ranks were lost otherwise than by our order.
    pub(super) disturbed: BTreeSet<Attempt>,
}

impl Check {
    pub(super) fn fail(&mut self, rule: &'static str, now: Ns, detail: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { rule, at_ms: now / MS, detail });
        }
    }

    pub(super) fn launch(&mut self) {
        self.told = None;
        self.begun = false;
        self.came.clear();
    }

    /// A node was admitted.
    pub(super) fn came(&mut self, node: &NodeName) {
        self.came.insert(node.clone());
    }
}

impl World {
    fn fail(&mut self, rule: &'static str, detail: String) {
        self.check.fail(rule, self.now, detail);
    }

    /// `rank_only_under_grant`: after every event.
    pub(super) fn check_grants(&mut self) {
        for node in 0..self.nodes.len() {
            let live = self.nodes[node].ranks.values().find(|r| !r.stubborn);
            let Some((attempt, rank)) = live.map(|r| (r.attempt, r.rank)) else { continue };
            let grant = self.nodes[node].grant;
            if grant == BootTime::NEVER {
                continue;
            }
            // Between two lives of the agent the guardian sweeps, and there is no grant to compare with.
            if grant == NO_GRANT {
                continue;
            }
            let over = self.real(node, grant);
            if self.now > over + FENCE {
                self.fail("rank_only_under_grant", format!("n{node}: rank {rank} of attempt {attempt}"));
            }
            if self.now > self.check.authority + FENCE + DRIFT {
                let detail = format!("n{node}: rank {rank} of attempt {attempt} outlives authority");
                self.fail("rank_only_under_grant", detail);
            }
        }
    }

    /// A grant never outlasts the authority that it came from.
    pub(super) fn check_granted(&mut self, node: usize, until: BootTime, ack: Option<Ack>) {
        let Some(ack) = ack else { return };
        let end = self.real(node, until);
        let authority = self.check.acks.get(&(ack.leader, ack.ack)).copied().unwrap_or(0);
        if end > authority + DRIFT {
            let over = (end - authority) / MS;
            self.fail("rank_only_under_grant", format!("n{node}: a grant outlasts authority by {over} ms"));
        }
    }

    pub(super) fn check_ack(&mut self, node: usize, ack: Ack) {
        let until = self.nodes[node]
            .agent
            .as_ref()
            .and_then(|p| p.lead.as_ref())
            .and_then(|l| l.authority.until())
            .map_or(0, |until| self.real(node, until));
        self.check.acks.insert((ack.leader, ack.ack), until);
    }

    /// `authority_disjoint`: as long as it lasts, a strict majority of the voters cannot vote for another.
    pub(super) fn check_authority(&mut self, node: usize, until: BootTime) {
        let end = self.real(node, until);
        self.check.authority = self.check.authority.max(end);
        let Some(process) = &self.nodes[node].agent else { return };
        let Some(lead) = &process.lead else { return };
        let leader = process.incarnation;
        let term = self.spec().numbers.authority().as_nanos() as Ns;
        let voters = lead.voters.clone();
        let bound = voters
            .iter()
            .filter(|voter| {
                let promise = self.nodes[Self::index(voter)].promise;
                promise.is_some_and(|(to, at)| to == leader && at + term + DRIFT >= end)
            })
            .count();
        if bound * 2 <= voters.len() {
            let detail = format!("{bound} of {} voters are bound", voters.len());
            self.fail("authority_disjoint", detail);
        }
    }

    /// Who slept declares nobody lost for one lease.
    pub(super) fn check_silent(&mut self, node: usize, which: &NodeName) {
        let lease = self.spec().numbers.authority().as_nanos() as Ns;
        let Some(process) = &self.nodes[node].agent else { return };
        let woke = process.slept_until;
        if woke > 0 && self.now + DRIFT < woke + lease {
            let ago = (self.now - woke) / MS;
            self.fail("pause_loses_nobody", format!("{which} is silent, {ago} ms after a pause"));
        }
    }

    /// What must hold when a rank is spawned.
    pub(super) fn check_spawn(&mut self, node: usize, seat: &Seat) {
        let (attempt, rank) = (seat.attempt, seat.rank);
        let who = format!("n{node}: rank {rank} of attempt {attempt}");
        // Where peers come from is what the coordinator knows of their links just then, and in no record.
        let told = RanksWorld { addresses: Vec::new(), ..seat.world.clone() };
        let record = self.store.records.iter().find_map(|r| match &r.body {
            Body::Attempt(body) if r.attempt == attempt => Some(rendezvous::world(body)),
            _ => None,
        });
        match record {
            None => self.fail("spawn_only_after_written", who.clone()),
            Some(world) if world != told => self.fail("same_world", who.clone()),
            Some(_) => {}
        }
        let first = self.check.worlds.entry(attempt).or_insert_with(|| told.clone());
        if *first != told {
            self.fail("same_world", who.clone());
        }
        if !self.check.spawned.insert((attempt, rank)) {
            self.fail("slot_once", format!("{who} is spawned twice"));
        }
        let others = self.nodes.iter().flat_map(|n| n.ranks.values());
        let other =
            others.filter(|r| r.attempt != attempt && !r.stubborn).map(|r| (r.attempt, r.rank)).next();
        if let Some((attempt, rank)) = other {
            self.fail("one_attempt_alive", format!("{who} is spawned while rank {rank} of {attempt} lives"));
        }
        if self.clock(node).boot >= self.nodes[node].grant {
            self.fail("rank_only_under_grant", format!("{who} is spawned without a grant"));
        }
    }

    /// One number, one set of bytes.
    pub(super) fn check_try(&mut self, record: &Record) {
        let key = (record.writer.incarnation, record.seq);
        let first = *self.check.tried.entry(key).or_insert(record.nonce);
        if first != record.nonce {
            self.fail("journal_exactly_once", format!("other bytes under number {}", record.seq));
        }
    }

    /// What must hold for each record.
    pub(super) fn check_record(&mut self, record: &Record) {
        let seq = record.seq;
        if seq.0 != self.store.records.len() as u64 {
            self.fail("journal_exactly_once", format!("record {seq} leaves a gap"));
        }
        if !self.check.nonces.insert(record.nonce) {
            self.fail("journal_exactly_once", format!("record {seq} is written twice"));
        }
        if record.why.iter().all(String::is_empty) {
            self.fail("every_record_says_why", format!("record {seq}"));
        }
        self.check_policy(record);
        match &record.body {
            Body::Attempt(body) => {
                self.counters.attempts += 1;
                self.check_slots(record, body);
                self.check_size(record, body);
                if let Cause::Incident(broke) = &body.cause {
                    self.counters.restarts += 1;
                    if broke.charged && !self.check.charged.insert(broke.attempt) {
                        self.fail("failure_charged_once", format!("attempt {} in {seq}", broke.attempt));
                    }
                    let first = broke.first_failure.as_ref().map(|f| (f.rank, &f.exit));
                    // A world that stood still counts whoever held it up.
                    let charged = broke.charged && broke.verdict.cause != HANG;
                    self.check_blame(seq, broke.attempt, first, charged);
                    let decision = (broke.attempt, broke.decision.clone());
                    if let Some(other) = self.check.decisions.insert(broke.incident, decision) {
                        let detail =
                            format!("record {seq}: incident {} was decided: {other:?}", broke.incident);
                        self.fail("decision_once", detail);
                    }
                    self.check_victim(seq, broke.first_failure.as_ref(), &broke.lost);
                }
            }
            Body::Incident(incident) => {
                let key = (record.writer.incarnation, incident.attempt);
                if !self.check.incidents.insert(key) {
                    let detail = format!("two incidents for attempt {}", incident.attempt);
                    self.fail("failure_charged_once", detail);
                }
                self.check_report(seq, incident);
                let first = incident.first_failure.as_ref().map(|f| (f.rank, &f.exit));
                self.check_blame(seq, incident.attempt, first, first.is_some());
                self.check_victim(seq, incident.first_failure.as_ref(), &incident.lost);
            }
            Body::Membership(_) => self.counters.memberships += 1,
            Body::Snapshot(ledger) => {
                self.counters.snapshots += 1;
                let mut replayed = self.store.ledgers.last().map(Ledger::snapshot).unwrap_or_default();
                let same = replayed == **ledger;
                let resumed = Ledger::default().apply(record).is_ok() && replayed.apply(record).is_err();
                if !same || !resumed {
                    self.fail("replay_equals_live", format!("the snapshot in record {seq}"));
                }
            }
            _ => {}
        }
    }

    /// `decision_once`: one report for each incident, of the world that broke by it, with the decision that was followed.
    fn check_report(&mut self, seq: Seq, incident: &Incident) {
        let number = incident.incident;
        if !self.check.reports.insert(number) {
            self.fail("decision_once", format!("record {seq}: a second report of incident {number}"));
        }
        let Some((attempt, decided)) = self.check.decisions.get(&number) else { return };
        let stops = matches!(incident.decision, Decision::Stop { .. });
        if *attempt != incident.attempt || stops {
            let detail = format!(
                "record {seq}: incident {number} of attempt {} reports {:?}, decided was {decided:?} for attempt {attempt}",
                incident.attempt, incident.decision
            );
            self.fail("decision_once", detail);
        }
    }

    /// A rank that lost its peer together with a node is a victim.
    fn check_victim(&mut self, seq: Seq, first: Option<&FirstFailure>, lost: &[NodeName]) {
        if first.is_some_and(|f| f.summary.contains(PEER_LOST_WORDS)) && !lost.is_empty() {
            self.fail(
                "no_victim_is_blamed",
                format!("record {seq} blames {first:?}, and {lost:?} were lost"),
            );
        }
    }

    /// What we kill is no evidence.
    fn check_blame(&mut self, seq: Seq, attempt: Attempt, first: Option<(Rank, &ExitKind)>, charged: bool) {
        let Some((rank, exit)) = first else {
            if charged {
                self.fail("failure_charged_once", format!("record {seq} charges nobody's failure"));
            }
            return;
        };
        // One that did not advance lived until it was ended for it; that it was stopped is looked at elsewhere.
        if *exit != ExitKind::Hung && !self.check.failed.contains(&(attempt, rank)) {
            let detail = format!("record {seq} blames rank {rank} of attempt {attempt}, which we stopped");
            self.fail("own_kills_are_no_evidence", detail);
        }
    }

    fn check_slots(&mut self, record: &Record, body: &AttemptBody) {
        let slots: BTreeSet<_> = body.members.iter().map(|m| m.slot).collect();
        let nodes: BTreeSet<_> = body.members.iter().map(|m| &m.node).collect();
        let spare = body.spares.iter().any(|s| nodes.contains(s));
        if slots.len() != body.members.len() || nodes.len() != body.members.len() || spare {
            self.fail("slot_once", format!("record {}: {:?}", record.seq, body.members));
        }
        let earlier = self.store.records.iter().filter(|r| matches!(r.body, Body::Attempt(_))).count() as u64;
        if record.attempt.0 != earlier {
            self.fail("journal_exactly_once", format!("attempt {} after {earlier}", record.attempt));
        }
    }

    /// Something happens to the ranks of a node that we did not order.
    pub(super) fn disturb(&mut self, node: usize) {
        let attempts: Vec<Attempt> = self.nodes[node].ranks.values().map(|r| r.attempt).collect();
        self.check.disturbed.extend(attempts);
        // Ranks of the newest world that are still being started die unseen.
        // With its agent a coordinator comes back, and opens a world anew even where it has no ranks itself.
        let leads = self.nodes[node].agent.as_ref().is_none_or(|a| a.lead.is_some()) && node == 0;
        let newest = self.store.ledgers.last().filter(|l| leads || l.member(&Self::name(node)).is_some());
        self.check.disturbed.extend(newest.and_then(Ledger::attempt));
    }

    /// `never_below_min`, `no_restart_to_grow`, `last_call_is_kept`.
    fn check_size(&mut self, record: &Record, body: &AttemptBody) {
        let spec = self.spec();
        let (now, seq) = (body.members.len(), record.seq);
        if now < spec.min_nodes as usize || now > spec.max_nodes as usize {
            let detail = format!("record {seq}: {now} nodes, {} to {}", spec.min_nodes, spec.max_nodes);
            self.fail("never_below_min", detail);
        }
        let before = self.store.ledgers.last().and_then(Ledger::world).map_or(0, |w| w.members.len());
        match &body.cause {
            // Behind an end that landed late a coordinator that comes back leads on here.
            Cause::Start
                if self.check.begun && self.store.ledgers.last().is_none_or(|l| l.end().is_none()) =>
            {
                self.fail("no_restart_to_grow", format!("record {seq} begins anew"));
            }
            Cause::Start => {
                let waited = self.now.saturating_sub(self.launched_at) + DRIFT;
                let all = (0..self.nodes.len())
                    .map(Self::name)
                    .all(|n| self.check.came.contains(&n) || self.check.policy.was_out(&n));
                let full = now == spec.max_nodes as usize;
                if !full && !all && waited < self.scenario.last_call * MS {
                    let detail = format!("record {seq}: {now} nodes after {} ms", waited / MS);
                    self.fail("last_call_is_kept", detail);
                }
                self.check.begun = true;
            }
            Cause::Incident(broke) => {
                let innocent = broke.first_failure.is_none() && broke.lost.is_empty();
                // An agent may be another one before the record with the earlier life is written.
                let alive = |m: &Member| {
                    let agent = self.nodes[Self::index(&m.node)].agent.as_ref();
                    agent.is_some_and(|a| a.incarnation == m.incarnation)
                };
                let world = self.store.ledgers.last().and_then(Ledger::world);
                let same = world.is_some_and(|w| w.members.iter().all(alive));
                let ran = self.check.spawned.iter().any(|(attempt, _)| *attempt == broke.attempt);
                // Who hung may be unknown, and who asked to be taken out has left.
                let left = |m: &Member| self.check.policy.was_out(&m.node);
                let hung = self.stopped.contains_key(&broke.attempt);
                let known = hung || world.is_some_and(|w| w.members.iter().any(left));
                if innocent && same && ran && !known && !self.check.disturbed.contains(&broke.attempt) {
                    self.fail(
                        "no_restart_to_grow",
                        format!("record {seq}: nothing happened to the world before"),
                    );
                }
            }
        }
        if before > 0 && now != before {
            let count = if now < before { &mut self.counters.shrunk } else { &mut self.counters.grown };
            *count += 1;
        }
        if now < spec.max_nodes as usize {
            self.counters.smaller_worlds += 1;
        }
    }

    /// `replay_equals_live`, for the coordinator.
    pub(super) fn check_ledger(&mut self, node: usize) {
        let Some(lead) = self.nodes[node].agent.as_mut().and_then(|p| p.lead.as_mut()) else { return };
        let next = lead.coordinator.ledger().next().0;
        if next == lead.checked || next == 0 {
            return;
        }
        lead.checked = next;
        let same = self.store.ledgers.get(next as usize - 1) == Some(lead.coordinator.ledger());
        if !same {
            self.fail("replay_equals_live", format!("the coordinator's ledger after record {}", next - 1));
        }
    }

    /// `replay_equals_live`, for an agent: what it read is a part of the journal from its begin.
    pub(super) fn check_agent_ledger(&mut self, node: usize) {
        let Some(process) = &self.nodes[node].agent else { return };
        let ledger = process.agent.ledger();
        let next = ledger.next().0;
        if next > 0 && self.store.ledgers.get(next as usize - 1) != Some(ledger) {
            self.fail("replay_equals_live", format!("n{node}'s ledger after record {}", next - 1));
        }
    }

    /// The coordinator says with which code the run ends.
    pub(super) fn check_over(&mut self, code: u8) {
        self.check.told = Some(code);
        let end = self.store.ledgers.last().and_then(|l| l.end()).map(|e| e.code);
        if end.is_some_and(|end| end != code) {
            self.fail("exit_code_agrees", format!("the journal says {end:?}, the coordinator {code}"));
        }
    }

    /// A timer that is due again at once would spin.
    pub(super) fn check_deadline(&mut self, who: &str, tick: bool, now: Now, deadline: Option<BootTime>) {
        if tick && deadline.is_some_and(|at| at <= now.boot) {
            self.fail("no_tick_is_due_after_a_tick", format!("{who}: {deadline:?} at {}", now.boot));
        }
    }

    /// A guardian ends.
    pub(super) fn check_exit(&mut self, node: usize, code: u8) {
        let end = self.store.ledgers.last().and_then(|l| l.end()).map(|e| e.code);
        let signal = self.nodes[node].stop_signal.map(|no| 128 + no);
        // A node that was taken out ends by itself.
        let out = code == 0 && self.check.policy.was_out(&Self::name(node));
        let fits =
            out || code == 1 || Some(code) == signal || Some(code) == end || Some(code) == self.check.told;
        if !fits {
            let detail = format!("n{node} ends with {code}; journal {end:?}, told {:?}", self.check.told);
            self.fail("exit_code_agrees", detail);
        }
    }
}
