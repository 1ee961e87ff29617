//! The driver of the process that leads: coordinator, authority, and the append to the journal.

use std::collections::BTreeMap;

use super::world::{Ev, MS, Ns, Task, Thread, World};
use crate::domain::append::{Append, AppendEffect, AppendEvent, Outcome};
use crate::domain::authority::{self, Authority};
use crate::domain::coordinator::{Appended, Coordinator, CoordinatorConfig, Effect, Event, Phase};
use crate::domain::ids::{Incarnation, NodeName, Op};
use crate::domain::lease::Link;
use crate::domain::ledger::Ledger;
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::record::{Body, Ground, Outcome as RunOutcome, Record};
use crate::domain::spec::JobRef;
use crate::domain::wire::{AgentMsg, CoordinatorMsg, FromSupervisor, ToCoordinator, ToSupervisor};

/// The machines of a process that leads.
#[derive(Debug)]
pub(super) struct Lead {
    pub(super) coordinator: Coordinator,
    pub(super) authority: Authority,
    pub(super) append: Append,
    /// The append in flight.
    pub(super) flight: Option<(Op, Box<Record>)>,
    /// The record that was read back last.
    pub(super) read: Option<Box<Record>>,
    pub(super) ground: Ground,
    /// The current control connection of each node.
    pub(super) conns: BTreeMap<NodeName, u64>,
    pub(super) over: bool,
    pub(super) held: bool,
    pub(super) coordinator_wake: Option<Ns>,
    pub(super) authority_wake: Option<Ns>,
    pub(super) append_wake: Option<Ns>,
    /// The admitted life of each node and the newest frame of it that was delivered.
    pub(super) admitted: BTreeMap<NodeName, (Incarnation, Option<u64>)>,
    pub(super) term: Option<crate::domain::ids::Term>,
    pub(super) checked: u64,
    /// What came and is taken in with what comes next.
    pub(super) waits: Vec<Event>,
    /// Who votes, as the authority has been told.
    pub(super) voters: Vec<NodeName>,
}

impl Lead {
    /// The run is over and not everybody has gone.
    pub(super) fn sees_off(&self) -> bool {
        !self.over && matches!(self.coordinator.phase(), Phase::Closed { .. })
    }

    pub(super) fn brief(&self) -> String {
        format!(
            "{:?} attempt {:?} held {} in flight {:?} present {:?}",
            self.coordinator.phase(),
            self.coordinator.ledger().attempt(),
            self.held,
            self.append.in_flight(),
            self.coordinator.present()
        )
    }
}

impl World {
    fn lead_mut(&mut self, node: usize) -> Option<&mut Lead> {
        self.nodes[node].agent.as_mut()?.lead.as_deref_mut()
    }

    /// A wake that is still wanted.
    fn woken(&mut self, node: usize, which: fn(&mut Lead) -> &mut Option<Ns>) -> bool {
        let now = self.now;
        self.lead_mut(node).is_some_and(|l| which(l).take_if(|at| *at <= now).is_some())
    }

    pub(super) fn perform_lead(&mut self, node: usize, task: Task) {
        match task {
            Task::Coordinator(event) => self.coordinator(node, event),
            Task::CoordinatorWake if self.woken(node, |l| &mut l.coordinator_wake) => {
                self.coordinator(node, Event::Tick);
            }
            Task::Authority(event) => self.authority(node, event),
            Task::AuthorityWake if self.woken(node, |l| &mut l.authority_wake) => {
                self.authority(node, authority::Event::Tick);
            }
            Task::Append(event) => self.append(node, event),
            Task::AppendWake if self.woken(node, |l| &mut l.append_wake) => {
                self.append(node, AppendEvent::Tick);
            }
            Task::ToCoordinator(id, frame) => self.frame_for_coordinator(node, id, *frame),
            Task::Beat(id, beat) => {
                let mine = self.nodes[node].agent.as_ref().map(|p| p.id);
                if let Some(conn) = self.net.conns.get(&id).filter(|c| Some(c.lead) == mine) {
                    let event = authority::Event::Beat { node: Self::name(conn.node), link: Link(id), beat };
                    self.authority(node, event);
                }
            }
            Task::ReadJournal => self.read_journal(node),
            Task::StoreCreate(op, nonce) => self.store_create(node, op, nonce),
            Task::StoreRead(op, seq) => self.store_read(node, op, seq),
            _ => {}
        }
    }

    /// Reads the journal to its tail and begins to lead.
    fn read_journal(&mut self, node: usize) {
        let records = self.store.records.clone();
        let Ok(ledger) = Ledger::replay(&records) else { return };
        let job = JobRef { id: "7".to_owned(), restart: self.launch };
        let same = ledger.leader().is_some_and(|(lead, _)| lead.job.as_ref() == Some(&job));
        let ground = if same { Ground::Returned } else { Ground::First };
        if same {
            self.counters.returns += 1;
        }
        let seed = self.rng.next();
        let (spec, mutants) = (self.spec(), self.mutants);
        let voters = (0..self.nodes.len()).map(Self::name).collect();
        let Some(process) = &mut self.nodes[node].agent else { return };
        let config = CoordinatorConfig {
            node: Self::name(node),
            incarnation: process.incarnation,
            clean_of: process.clean_of.clone(),
            spec,
            job: Some(job),
            launch: String::new(),
            voters,
            addresses: vec!["10.0.0.0:29400".to_owned()],
            ground,
            store: None,
            proof: None,
            distinct: false,
            snapshot_every: 8,
            seed,
            mutants,
        };
        process.lead = Some(Box::new(Lead {
            coordinator: Coordinator::new(config, ledger),
            authority: Authority::new(mutants),
            append: Append::new(mutants),
            flight: None,
            read: None,
            ground,
            conns: BTreeMap::new(),
            over: false,
            held: false,
            coordinator_wake: None,
            authority_wake: None,
            append_wake: None,
            admitted: BTreeMap::new(),
            term: None,
            checked: 0,
            waits: Vec::new(),
            voters: Vec::new(),
        }));
        // What it had heard of the newest attempt went with the one before.
        let newest = self.store.ledgers.last().and_then(|l| l.attempt());
        self.check.policy.steps.retain(|attempt, _| Some(*attempt) < newest);
        self.coordinator(node, Event::Begin);
        if self.scenario.supervised {
            let delay = self.rng.range(1, 300) * MS;
            self.after(delay, Ev::FromSupervisor(FromSupervisor::Attach));
        }
    }

    fn frame_for_coordinator(&mut self, node: usize, id: u64, frame: ToCoordinator) {
        let Some(conn) = self.net.conns.get(&id).copied() else { return };
        let from = Self::name(conn.node);
        let join = matches!(frame.msg, CoordinatorMsg::Join { .. });
        let Some(lead) = self.lead_mut(node) else { return };
        let known = lead.admitted.get(&from).copied();
        let stale = !join
            && match (known, lead.term) {
                (Some((incarnation, n)), Some(term)) => {
                    frame.incarnation != incarnation
                        || frame.term != Some(term)
                        || n.is_some_and(|n| frame.n <= n)
                }
                _ => false,
            };
        if stale {
            return self.stale_to_coordinator(node, from, frame);
        }
        self.told(node, &frame.msg);
        let Some(lead) = self.lead_mut(node) else { return };
        let (incarnation, n) = (frame.incarnation, frame.n);
        if let Some(entry) = lead.admitted.get_mut(&from)
            && entry.0 == incarnation
        {
            // A refused join leaves no trace.
            let refused = matches!(lead.coordinator.phase(), Phase::Closed { .. })
                || lead.coordinator.ledger().is_evicted(&from);
            if !join || !refused {
                entry.1 = Some(entry.1.map_or(n, |old| old.max(n)));
            }
        } else if join && lead.term.is_some() {
            // Taken back when no welcome follows.
            lead.admitted.insert(from.clone(), (incarnation, Some(n)));
            self.coordinator(node, Event::Recv { from: from.clone(), frame });
            let welcomed = self.lead_mut(node).is_some_and(|l| l.coordinator.admits(&from, incarnation));
            if let (false, Some(old), Some(lead)) = (welcomed, known, self.lead_mut(node)) {
                lead.admitted.insert(from, old);
            }
            return;
        }
        let event = Event::Recv { from, frame };
        // Frames may come so close together that the driver hands them over as one.
        if !join && self.rng.chance(200) {
            if let Some(lead) = self.lead_mut(node) {
                lead.waits.push(event);
            }
            return;
        }
        self.coordinator(node, event);
    }

    fn stale_to_coordinator(&mut self, node: usize, from: NodeName, frame: ToCoordinator) {
        // What waits is handed over with the first; what a large world runs by is told at the second.
        self.coordinator(node, Event::Tick);
        self.coordinator(node, Event::Tick);
        let now = self.clock(node);
        let Some(lead) = self.lead_mut(node) else { return };
        let before = format!("{:?}", lead.coordinator);
        let text = format!("{from}: {frame:?}");
        let mut out = Outbox::default();
        lead.coordinator.handle(now, Event::Recv { from, frame }, &mut out);
        let after = format!("{:?}", lead.coordinator);
        let effects = out.take_effects();
        self.notes(node, out.take_notes());
        if after != before || !effects.is_empty() {
            // From a little before the first place where they differ.
            let same = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
            let part = |text: &str| text.chars().skip(same.saturating_sub(60)).take(160).collect::<String>();
            let text = format!("{text}: {} -> {}", part(&before), part(&after));
            self.check.fail("stale_changes_nothing", self.now, format!("{text}: {effects:?}"));
        }
    }

    pub(super) fn coordinator(&mut self, node: usize, event: Event) {
        if event != Event::Tick {
            self.say(|_| format!("coordinator <- {event:?}"));
        }
        let now = self.clock(node);
        let Some(lead) = self.lead_mut(node) else { return };
        let mut out = Outbox::default();
        let tick = event == Event::Tick && lead.waits.is_empty();
        let mut waits = std::mem::take(&mut lead.waits);
        let event = if waits.is_empty() {
            event
        } else {
            waits.push(event);
            Event::Burst(waits)
        };
        lead.coordinator.handle(now, event, &mut out);
        let deadline = lead.coordinator.deadline();
        self.check_deadline("coordinator", tick, now, deadline);
        self.notes(node, out.take_notes());
        for effect in out.take_effects() {
            self.coordinator_effect(node, effect);
        }
        self.check_ledger(node);
        let Some(deadline) = self.lead_mut(node).and_then(|l| l.coordinator.deadline()) else { return };
        let at = self.wake_at(node, deadline);
        let wake = self.lead_mut(node).map(|l| &mut l.coordinator_wake);
        if let Some(wake) = wake.filter(|w| at < Ns::MAX && w.is_none_or(|w| at < w)) {
            *wake = Some(at);
            self.lead_task(node, at, Thread::Control, Task::CoordinatorWake);
        }
    }

    fn lead_task(&mut self, node: usize, at: Ns, thread: Thread, task: Task) {
        if let Some(process) = &self.nodes[node].agent {
            let id = process.id;
            self.at(at, Ev::Task(node, id, thread, task));
        }
    }

    fn coordinator_effect(&mut self, node: usize, effect: Effect) {
        self.say(|_| format!("coordinator -> {effect:?}"));
        match effect {
            Effect::Send { to, incarnation, frame } => {
                let Some(lead) = self.lead_mut(node) else { return };
                if let AgentMsg::Welcome { .. } = frame.msg {
                    let entry = lead.admitted.entry(to.clone()).or_insert((incarnation, None));
                    if entry.0 != incarnation {
                        *entry = (incarnation, None);
                    }
                }
                let conn = lead.conns.get(&to).copied();
                if let AgentMsg::Finish { code } = frame.msg {
                    self.check_over(code);
                }
                let Some(id) = conn else { return };
                let Some(conn) = self.net.conns.get(&id).copied() else { return };
                // The session's proven life must be the one that is meant.
                if self.nodes[conn.node].lives.get(&conn.agent) != Some(&incarnation) {
                    return;
                }
                let task = Task::ToAgent(id, Box::new((self.wire)(frame)));
                self.send(conn.node, false, Ev::Task(conn.node, conn.agent, Thread::Control, task));
            }
            Effect::Append { op, record } => {
                let Some(lead) = self.lead_mut(node) else { return };
                let (seq, nonce) = (record.seq, record.nonce);
                lead.flight = Some((op, record));
                let begin = AppendEvent::Begin { seq, nonce, again: false };
                self.task(node, 50_000, Thread::Process, Task::Append(begin));
            }
            Effect::Lead { term, voters } => {
                let numbers = Box::new(self.spec().numbers);
                let Some(process) = &mut self.nodes[node].agent else { return };
                let leader = process.incarnation;
                let Some(lead) = &mut process.lead else { return };
                lead.term = Some(term);
                let earlier = lead.ground == Ground::Returned;
                let own = Self::name(node);
                let event = authority::Event::Lead { term, leader, own, voters, numbers, earlier };
                self.task(node, 0, Thread::Beat, Task::Authority(event));
            }
            Effect::Voters(voters) => {
                self.task(node, 0, Thread::Beat, Task::Authority(authority::Event::Voters(voters)));
            }
            Effect::CloseGrants { node: which } => {
                let event = authority::Event::CloseGrants { node: which };
                self.task(node, 0, Thread::Beat, Task::Authority(event));
            }
            Effect::Admit { node: which, incarnation } => {
                let event = authority::Event::Admit { node: which, incarnation };
                self.task(node, 0, Thread::Beat, Task::Authority(event));
            }
            Effect::Disconnect { node: which } => self.drop_node(node, &which),
            Effect::Supervisor(ToSupervisor::StartAgent { node: which }) => {
                let delay = self.rng.range(100, 2_000) * MS;
                self.after(delay, Ev::Start(Self::index(&which)));
            }
            Effect::Probe { name } => {
                let won = self.probes.insert(name.clone());
                let took = self.rng.range(1, 5) * MS;
                self.task(node, took, Thread::Control, Task::Coordinator(Event::Probed { name, won }));
            }
            Effect::Seek(ask) => self.seek(node, ask),
            Effect::Report(_)
            | Effect::Answer { .. }
            | Effect::Collected(_)
            | Effect::Supervisor(ToSupervisor::Finish { .. } | ToSupervisor::AskJob) => {}
            Effect::Over { code } => {
                if let Some(lead) = self.lead_mut(node) {
                    lead.over = true;
                }
                self.check_over(code);
                self.exit_if_over(node);
            }
            Effect::StandDown { .. } => {
                let Some(process) = &mut self.nodes[node].agent else { return };
                process.lead = None;
                let id = process.id;
                let led: Vec<u64> = self
                    .net
                    .conns
                    .iter()
                    .filter(|(_, c)| c.open && c.lead == id)
                    .map(|(id, _)| *id)
                    .collect();
                for id in led {
                    self.close(id, false);
                }
                self.exit_if_over(node);
            }
        }
    }

    pub(super) fn authority(&mut self, node: usize, event: authority::Event) {
        if !matches!(event, authority::Event::Tick | authority::Event::Beat { .. }) {
            self.say(|_| format!("authority <- {event:?}"));
        }
        let now = self.clock(node);
        let Some(lead) = self.lead_mut(node) else { return };
        if let authority::Event::Lead { voters, .. } | authority::Event::Voters(voters) = &event {
            lead.voters.clone_from(voters);
        }
        let mut out = Outbox::default();
        let tick = event == authority::Event::Tick;
        lead.authority.handle(now, event, &mut out);
        let deadline = lead.authority.deadline();
        self.check_deadline("authority", tick, now, deadline);
        for effect in out.take_effects() {
            self.authority_effect(node, effect);
        }
        let Some(deadline) = self.lead_mut(node).and_then(|l| l.authority.deadline()) else { return };
        let at = self.wake_at(node, deadline);
        let wake = self.lead_mut(node).map(|l| &mut l.authority_wake);
        if let Some(wake) = wake.filter(|w| at < Ns::MAX && w.is_none_or(|w| at < w)) {
            *wake = Some(at);
            self.lead_task(node, at, Thread::Beat, Task::AuthorityWake);
        }
    }

    fn authority_effect(&mut self, node: usize, effect: authority::Effect) {
        let event = match effect {
            authority::Effect::SendAck { node: to, link, ack } => {
                self.check_ack(node, ack);
                let Some(conn) = self.net.conns.get(&link.0).copied().filter(|c| c.open) else { return };
                debug_assert_eq!(Self::name(conn.node), to);
                let task = Task::Ack(link.0, ack);
                return self.send(conn.node, false, Ev::Task(conn.node, conn.agent, Thread::Beat, task));
            }
            authority::Effect::Silent { node: which, since } => {
                self.check_silent(node, &which);
                Event::Silent { node: which, silent: self.clock(node).boot.since(since) }
            }
            authority::Effect::Quiet { node: which, since } => {
                Event::Quiet { node: which, silent: self.clock(node).boot.since(since) }
            }
            authority::Effect::Late { node, silent } => Event::Late { node, silent },
            authority::Effect::Back { node } => {
                self.counters.backs += 1;
                Event::Back { node }
            }
            authority::Effect::Until(until) => {
                self.check_authority(node, until);
                let Some(lead) = self.lead_mut(node) else { return };
                if std::mem::replace(&mut lead.held, true) {
                    return;
                }
                Event::AuthorityHeld
            }
            authority::Effect::Over => {
                self.counters.authority_over += 1;
                let Some(lead) = self.lead_mut(node) else { return };
                lead.held = false;
                Event::AuthorityOver
            }
            authority::Effect::GrantsClosed { node, over_at } => Event::GrantsClosed { node, over_at },
        };
        self.task(node, 0, Thread::Control, Task::Coordinator(event));
    }

    /// Nothing more is expected from the connections of a silent node: it is to dial and join anew.
    fn drop_node(&mut self, node: usize, which: &NodeName) {
        let Some(lead) = self.nodes[node].agent.as_ref().map(|p| p.id) else { return };
        let which = Self::index(which);
        let theirs = |c: &super::net::Conn| c.open && c.node == which && c.lead == lead;
        let ids: Vec<u64> = self.net.conns.iter().filter(|(_, c)| theirs(c)).map(|(id, _)| *id).collect();
        for id in ids {
            self.close(id, false);
        }
    }

    fn append(&mut self, node: usize, event: AppendEvent) {
        self.say(|_| format!("append <- {event:?}"));
        let now = self.clock(node);
        let Some(lead) = self.lead_mut(node) else { return };
        let mut out = Outbox::default();
        let tick = event == AppendEvent::Tick;
        lead.append.handle(now, event, &mut out);
        let deadline = lead.append.deadline();
        self.check_deadline("append", tick, now, deadline);
        for effect in out.take_effects() {
            self.append_effect(node, effect);
        }
        let Some(deadline) = self.lead_mut(node).and_then(|l| l.append.deadline()) else { return };
        let at = self.wake_at(node, deadline);
        let wake = self.lead_mut(node).map(|l| &mut l.append_wake);
        if let Some(wake) = wake.filter(|w| at < Ns::MAX && w.is_none_or(|w| at < w)) {
            *wake = Some(at);
            self.lead_task(node, at, Thread::Process, Task::AppendWake);
        }
    }

    fn append_effect(&mut self, node: usize, effect: AppendEffect) {
        match effect {
            AppendEffect::TryCreate { op, seq: _, nonce } => {
                self.task(node, 20_000, Thread::Process, Task::StoreCreate(op, nonce));
            }
            AppendEffect::ReadBack { op, seq } => {
                self.task(node, 20_000, Thread::Process, Task::StoreRead(op, seq));
            }
            AppendEffect::Ended { seq: _, outcome } => {
                let Some(lead) = self.lead_mut(node) else { return };
                let Some((op, _)) = lead.flight.take() else { return };
                let outcome = match (outcome, lead.read.take()) {
                    (Outcome::Written, _) => Appended::Written,
                    (Outcome::Lost, Some(other)) => Appended::Lost(other),
                    // A seeded bug: nobody hears of it.
                    _ => return,
                };
                let event = Event::Appended { op, outcome };
                self.task(node, 50_000, Thread::Control, Task::Coordinator(event));
            }
            AppendEffect::Trouble { kind, .. } => {
                let event = Event::StoreTrouble { text: format!("{kind:?}") };
                self.task(node, MS, Thread::Control, Task::Coordinator(event));
            }
        }
    }

    /// Counts what the record of the end says.
    pub(super) fn count_end(&mut self, record: &Record) {
        if let Body::End(end) = &record.body {
            match end.outcome {
                RunOutcome::Finished => self.counters.finished += 1,
                RunOutcome::Failed => self.counters.failed += 1,
                RunOutcome::Stopped => self.counters.stopped += 1,
            }
        }
    }
}
