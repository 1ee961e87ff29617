//! What follows from a decision before a world is opened: nodes are taken out, each by a record of its own; things are
//! found out on which a decision depends; and it is waited.

use std::time::Duration;

use super::super::board::Feeder;
use super::super::ids::{Attempt, NodeName, Rank};
use super::super::liveness::watch::RankProgress;
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::policy::progress::Reached;
use super::super::policy::{self, Ask, JobWord, Probes, Verdict, evict};
use super::super::record::{Body, Cause, Decision, Evict, Ordered};
use super::super::time::{BootTime, Now, earlier};
use super::super::wire::AgentMsg;
use super::breaking::What;
use super::state::{Coordinator, Phase};
use super::{Effect, Found};

/// Signals of one moment: agents hear of what struck ranks within this.
const MOMENT: Duration = Duration::from_millis(500);
/// An answer that is not there by then is none.
const PATIENCE: Duration = Duration::from_secs(3);

/// What is being found out.
#[derive(Clone, Debug)]
struct Held {
    ask: Ask,
    until: BootTime,
    what: What,
}

/// Everything about it that the journal does not say.
#[derive(Clone, Debug, Default)]
pub(super) struct Acting {
    /// Nodes to take out or give back before a world is opened, as the policy has it.
    pub(super) evicts: Vec<Evict>,
    /// Nodes that somebody asked to take out.
    pub(super) asked: Vec<Evict>,
    /// Orders of people that are not written yet, and whom to answer.
    pub(super) orders: Vec<(u64, Ordered)>,
    held: Option<Held>,
    /// When an agent last heard a signal from outside.
    signal: Option<BootTime>,
    /// It was said that a world is held back.
    said_held: bool,
    attempt: Option<Attempt>,
    reached: Reached,
    /// When the first step was told.
    first_step: Option<BootTime>,
}

impl Acting {
    /// Something is being found out, and the verdict waits for it.
    pub(super) fn seeks(&self) -> bool {
        self.held.is_some()
    }

    /// What was being found out was about a world that another one has followed.
    pub(super) fn forget(&mut self) {
        self.held = None;
    }

    /// How far the ranks of this attempt came; forgotten here.
    pub(super) fn take_reached(&mut self, attempt: Attempt, now: Now) -> Reached {
        let mut reached = std::mem::take(&mut self.reached);
        let since = self.first_step.take();
        if self.attempt != Some(attempt) {
            return Reached::default();
        }
        let ms = |since: BootTime| u64::try_from(now.boot.since(since).as_millis()).unwrap_or(u64::MAX);
        reached.stepping_ms = since.map(ms);
        reached
    }
}

impl Coordinator {
    /// Ranks of the newest attempt say where they are.
    pub(super) fn ranks_reach(&mut self, now: Now, attempt: Attempt, ranks: &[(Rank, RankProgress)]) {
        let acting = &mut self.acting;
        if acting.attempt != Some(attempt) {
            (acting.attempt, acting.reached, acting.first_step) = (Some(attempt), Reached::default(), None);
        }
        for (_, rank) in ranks {
            acting.reached.hear(rank.step, rank.feeder);
            if rank.step.is_some() {
                acting.first_step.get_or_insert(now.boot);
            }
        }
    }

    /// The furthest step of the newest attempt that the program itself has told.
    #[must_use]
    pub fn client_step(&self) -> Option<u64> {
        self.acting.reached.most.filter(|_| self.acting.reached.feeder == Some(Feeder::Client))
    }

    pub(super) fn heard_signal(&mut self, now: Now, _signal: u8) {
        self.acting.signal = Some(now.boot);
    }

    /// Agents heard a signal from outside at about that time, or since.
    pub(super) fn signalled(&self, failed: BootTime) -> bool {
        self.acting.signal.is_some_and(|at| at.after(PATIENCE) >= failed)
    }

    /// A decision depends on something that is not known yet: nothing is decided until it is, or until it is too late.
    pub(super) fn seeks(
        &mut self,
        now: Now,
        what: &What,
        verdict: &Verdict,
        out: &mut Outbox<Effect>,
    ) -> bool {
        let Some(ask) = verdict.ask.filter(|_| self.ending.is_none()) else {
            self.acting.held = None;
            return false;
        };
        if self.acting.held.as_ref().is_some_and(|held| held.ask == ask) {
            return true;
        }
        let patience = if ask == Ask::Signals { MOMENT } else { PATIENCE };
        self.acting.held = Some(Held { ask, until: now.boot.after(patience), what: what.clone() });
        if ask == Ask::Slurm && self.config.job.is_none() {
            self.found(Found::Job(JobWord::Unknown));
        } else if ask != Ask::Signals {
            out.put(Effect::Seek(ask));
        }
        true
    }

    /// Something was found out.
    pub(super) fn found(&mut self, found: Found) {
        let Some(broke) = &mut self.breaking else { return };
        match found {
            Found::Probes(probes) => broke.sought.probes = Some(probes),
            Found::Job(job) => broke.sought.job = Some(job),
        }
    }

    /// What was waited for is there, or does not come.
    pub(super) fn seek_on(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let signalled = self.breaking.as_ref().is_some_and(|broke| self.signalled(broke.since));
        let (Some(held), Some(broke)) = (&self.acting.held, &mut self.breaking) else { return };
        if self.ending.is_some() || self.phase != Phase::Gathering {
            self.acting.held = None;
            return;
        }
        let late = now.boot >= held.until;
        let sought = &mut broke.sought;
        let there = match held.ask {
            Ask::Probes => sought.probes.is_some(),
            Ask::Signals => signalled,
            Ask::Slurm => sought.job.is_some(),
        };
        if !there && !late {
            return;
        }
        match held.ask {
            Ask::Probes => drop(sought.probes.get_or_insert(Probes::default())),
            Ask::Signals => sought.signals = true,
            Ask::Slurm => drop(sought.job.get_or_insert(JobWord::Unknown)),
        }
        let Some(held) = self.acting.held.take() else { return };
        self.decide(now, &held.what, out);
    }

    /// When it goes on, whatever comes.
    pub(super) fn acting_at(&self) -> Option<BootTime> {
        let held = self.acting.held.as_ref().map(|held| held.until);
        let wait = self.want.as_ref().and_then(|want| want.not_before);
        let gathers = self.phase == Phase::Gathering && self.append.is_none() && !self.ledger.paused();
        earlier(held, wait.filter(|_| gathers))
    }

    /// A world is not opened yet: a person paused the run, nodes are taken out first, or it is waited.
    pub(super) fn holds_back(&self, now: Now) -> bool {
        let incident = |cause: &Cause| matches!(cause, Cause::Incident(_));
        let Some(want) = &self.want else { return false };
        (self.ledger.paused() && incident(&want.cause))
            || !self.acting.evicts.is_empty()
            || self.waits_for_words()
            || want.not_before.is_some_and(|at| now.boot < at)
    }

    /// A program that fails at its start may fail everywhere: that is known when everybody has said how its ranks ended,
    /// for which new ranks wait anyway.
    pub(super) fn may_be_hopeless(&self, reached: &Reached, ran_ms: u64) -> bool {
        let judged = self.config.spec.max_restarts.is_none() && !self.ledger.history().stepped;
        judged && reached.most.is_none() && ran_ms < policy::stop::LONG_MS
    }

    /// It broke at its start, and not everybody is heard.
    fn waits_for_words(&self) -> bool {
        let broke =
            self.breaking.as_ref().filter(|broke| broke.at_start && broke.first.is_some() && !broke.heard);
        broke.is_some_and(|broke| !self.unheard(broke.attempt).is_empty())
    }

    /// Writes what is to be written before anything else: orders, and who is taken out.
    pub(super) fn act(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if !matches!(self.phase, Phase::Gathering | Phase::Starting | Phase::Running | Phase::Ending) {
            return;
        }
        self.say_held_back(out);
        if let Some(want) = self.want.as_mut().filter(|want| want.not_before.is_some_and(|at| now.boot >= at))
        {
            want.not_before = None;
        }
        if self.append.is_some() {
            return;
        }
        if let Some((_, ordered)) = self.acting.orders.first().cloned() {
            let why = vec![format!("{} asked for it: {}", ordered.by, ordered.reason)];
            return self.propose(now, Body::Order(ordered), why, out);
        }
        let decided = self.phase != Phase::Starting && self.breaking.as_ref().is_none_or(|b| !b.open);
        let next = self.acting.asked.first().or(self.acting.evicts.first().filter(|_| decided));
        if let Some(evict) = next.cloned() {
            let why = vec![evict.reason.clone()];
            self.propose(now, Body::Evict(evict), why, out);
        }
    }

    fn say_held_back(&mut self, out: &mut Outbox<Effect>) {
        let held =
            self.ledger.paused() && matches!(self.want.as_ref().map(|w| &w.cause), Some(Cause::Incident(_)));
        if held && !std::mem::replace(&mut self.acting.said_held, true) {
            out.note(Note::HeldBack);
        }
        self.acting.said_held &= held;
    }

    /// The record of an eviction is written, or of its end.
    pub(super) fn evicted(&mut self, now: Now, evict: &Evict, out: &mut Outbox<Effect>) {
        let others = |e: &Evict| e.node != evict.node || e.back != evict.back;
        self.acting.evicts.retain(others);
        self.acting.asked.retain(others);
        let (node, reason, back) = (evict.node.clone(), evict.reason.clone(), evict.back);
        out.note(Note::Evicted { node: node.clone(), reason: reason.clone(), back });
        if back {
            self.refused.remove(&node);
            return;
        }
        // Who leads stays for that.
        if node != self.config.node {
            self.send(&node, AgentMsg::Evicted { why: reason.clone() }, out);
        }
        self.doubts.remove(&node);
        let member = self.ledger.member(&node).is_some();
        let runs = matches!(self.phase, Phase::Starting | Phase::Running);
        if let Some(attempt) = self.ledger.attempt().filter(|_| member && runs)
            && self.may_break(attempt)
        {
            return self.break_world(now, What::Asked(format!("{node} was taken out: {reason}")), out);
        }
        self.leave_out(&node);
    }

    /// A world that is wanted already is wanted without this node.
    fn leave_out(&mut self, node: &NodeName) {
        let Some(want) = self.want.as_mut() else { return };
        want.replace.insert(node.clone());
        if let Cause::Incident(broke) = &mut want.cause {
            match &mut broke.decision {
                Decision::Restart => broke.decision = Decision::Replace { nodes: vec![node.clone()] },
                Decision::Replace { nodes } | Decision::Shrink { nodes } if !nodes.contains(node) => {
                    nodes.push(node.clone());
                }
                _ => {}
            }
        }
    }

    /// A rank asks to take its own node out.
    pub(super) fn rank_evicts(
        &mut self,
        now: Now,
        rank: Rank,
        node: &NodeName,
        reason: &str,
        out: &mut Outbox<Effect>,
    ) {
        let refuse = |why: &str| Note::KeptIn { node: node.clone(), why: why.to_owned() };
        if *node == self.config.node {
            return out.note(refuse("it leads this run"));
        }
        if evict::allowed(&self.ledger, now.wall_ms, self.config.mutants) <= self.acting.asked.len() {
            return out.note(refuse("too many nodes were taken out in the last 10 min"));
        }
        let known = |e: &Evict| e.node == *node;
        if self.ledger.is_evicted(node) || self.acting.asked.iter().any(known) {
            return;
        }
        let reason = format!("rank {rank} asked for it: {reason}");
        let slot = self.ledger.slot(node);
        self.acting.asked.push(Evict {
            node: node.clone(),
            reason,
            inferred: true,
            slot,
            ..Evict::default()
        });
    }
}
