//! The driver of an agent process: control thread, beat thread, process thread.

use super::node::RankProcess;
use super::world::{Ev, MS, Ns, Seat, Task, Thread, World};
use crate::domain::agent::{self, Event};
use crate::domain::coordinator::REACH;
use crate::domain::exit::ExitKind;
use crate::domain::guardian::{self, ToGuardian};
use crate::domain::ids::{LocalRank, NodeName, Op};
use crate::domain::lease;
use crate::domain::note::{Note, Sign};
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::spec::Offer;
use crate::domain::time::BootTime;
use crate::domain::wire::{AgentMsg, RefusedWhy, Survivor, ToAgent};

/// The control thread's loop turns at least so often.
const TICK: Ns = 250 * MS;
const ECANCELED: i32 = 125;
const EAGAIN: i32 = 11;

impl World {
    pub(super) fn perform(&mut self, node: usize, task: Task) {
        match task {
            Task::Agent(event) => self.agent(node, event),
            Task::AgentWake => {
                let now = self.now;
                let process = self.nodes[node].agent.as_mut();
                if process.is_some_and(|p| p.agent_wake.take_if(|at| *at <= now).is_some()) {
                    self.agent(node, Event::Tick);
                }
            }
            Task::Lease(event) => self.lease(node, event),
            Task::LeaseWake => {
                let now = self.now;
                let Some(process) = self.nodes[node].agent.as_mut() else { return };
                let tick = process.stuck.map_or(now, |(since, _)| since) / TICK;
                if process.lease_wake.take_if(|at| *at <= now).is_some() {
                    self.lease(node, lease::Event::Tick { tick });
                }
            }
            Task::ToAgent(id, frame) => {
                // A closed session delivers nothing.
                if self.nodes[node].agent.as_ref().is_some_and(|p| p.conn == Some(id)) {
                    self.frame_for_agent(node, *frame);
                }
            }
            Task::Ack(id, ack) => {
                let conn = self.net.conns.get(&id).copied();
                let mine = self.nodes[node].agent.as_ref().map(|p| p.id);
                if let Some(link) = conn.filter(|c| Some(c.agent) == mine).and_then(|c| c.beat) {
                    self.lease(node, lease::Event::Acked { link, ack });
                }
            }
            Task::Look => self.look(node),
            Task::Dial => self.dial(node),
            Task::DialBeat(link) => self.dial_beat(node, link),
            Task::Spawn(seat) => self.spawn(node, &seat),
            Task::Signal(local_rank, signal) => self.signal_rank(node, local_rank, signal),
            Task::Sweep(op, patience) => {
                self.kill_ranks(node);
                let until = self.now + patience;
                self.task(node, 100_000, Thread::Process, Task::SweepPoll(op, until));
            }
            Task::SweepPoll(op, until) => self.sweep_poll(node, op, until),
            Task::Closed(id) => self.closed_conn(node, id),
            Task::Exit(code) => {
                if let Some(id) = self.nodes[node].guardian_id() {
                    self.guardian(node, id, guardian::Event::AgentSays(ToGuardian::Gone { code }));
                }
                self.agent_ends(node, ExitKind::Code(code));
            }
            other => self.perform_lead(node, other),
        }
    }

    pub(super) fn agent(&mut self, node: usize, event: Event) {
        if !matches!(event, Event::Tick | Event::Looked { .. }) {
            self.say(|_| format!("n{node} agent <- {event:?}"));
        }
        let now = self.clock(node);
        let Some(process) = &mut self.nodes[node].agent else { return };
        let mut out = Outbox::default();
        let tick = event == Event::Tick;
        process.agent.handle(now, event, &mut out);
        let deadline = process.agent.deadline();
        self.check_deadline("agent", tick, now, deadline);
        self.notes(node, out.take_notes());
        for effect in out.take_effects() {
            self.agent_effect(node, effect);
        }
        self.arm_agent(node);
        self.check_agent_ledger(node);
    }

    fn arm_agent(&mut self, node: usize) {
        let Some(deadline) = self.nodes[node].agent.as_ref().and_then(|p| p.agent.deadline()) else { return };
        let at = self.wake_at(node, deadline);
        let Some(process) = &mut self.nodes[node].agent else { return };
        if at < Ns::MAX && process.agent_wake.is_none_or(|wake| at < wake) {
            process.agent_wake = Some(at);
            let id = process.id;
            self.at(at, Ev::Task(node, id, Thread::Control, Task::AgentWake));
        }
    }

    /// A little after the deadline, as timers are.
    pub(super) fn wake_at(&mut self, node: usize, deadline: BootTime) -> Ns {
        let late = if self.rng.chance(20) { self.rng.below(40) * MS } else { self.rng.below(2) * MS };
        self.real(node, deadline).max(self.now).saturating_add(late + 20_000)
    }

    pub(super) fn notes(&mut self, node: usize, notes: Vec<Note>) {
        for note in notes {
            self.say(|_| format!("n{node} says {note:?}"));
            self.check_hang(&note);
            match note {
                Note::Dropped { .. } => self.counters.stale_drops += 1,
                Note::NodeLost { node: which, sign, .. } => {
                    self.counters.losses += 1;
                    match &sign {
                        Sign::Silence => {}
                        Sign::Closed => self.counters.lost_closed += 1,
                        Sign::TaskEnded => self.counters.lost_ended += 1,
                        Sign::Unreachable { .. } => self.counters.lost_unreachable += 1,
                    }
                    // Silence alone was judged by the authority, when it said so.
                    if sign != Sign::Silence {
                        self.check_silent(node, &which);
                    }
                }
                Note::InDoubt { .. } => self.counters.doubts += 1,
                Note::BeatsLate { .. } => self.counters.late_beats += 1,
                Note::NodeBack { .. } => self.counters.came_back += 1,
                Note::NodeDirty { node: which, .. } => {
                    self.counters.dirty += 1;
                    self.disturb(Self::index(&which));
                }
                Note::GrantOver { .. } => self.disturb(node),
                Note::StoodDown { .. } => self.counters.stood_down += 1,
                Note::SlotFilled { .. } => self.counters.replaced += 1,
                Note::LastCall { .. } => self.counters.last_calls += 1,
                Note::Joined { node: which, .. } => self.check.came(&which),
                Note::AppendLost { .. } => self.counters.appends_lost += 1,
                Note::GaveUp { .. } => self.counters.orphans += 1,
                _ => {}
            }
        }
    }

    fn agent_effect(&mut self, node: usize, effect: agent::Effect) {
        self.say(|_| format!("n{node} agent -> {effect:?}"));
        match effect {
            agent::Effect::Connect => {
                let Some(process) = &mut self.nodes[node].agent else { return };
                process.dialling = true;
                if let Some(old) = process.conn.take() {
                    self.close(old, true);
                }
                let delay = self.rng.range(1, 20) * MS;
                self.task(node, delay, Thread::Control, Task::Dial);
            }
            agent::Effect::Send(frame) => {
                let conn = self.nodes[node].agent.as_ref().and_then(|p| p.conn);
                let Some((id, conn)) = conn.and_then(|id| Some((id, *self.net.conns.get(&id)?))) else {
                    return;
                };
                let task = Task::ToCoordinator(id, Box::new(frame));
                self.send(node, true, Ev::Task(0, conn.lead, Thread::Control, task));
            }
            // Stores of ranks are not simulated.
            agent::Effect::StoreOver { .. } => {}
            agent::Effect::Reach { node: target, .. } => self.try_reach(node, target),
            agent::Effect::Probe { name } => {
                let won = self.probes.insert(name.clone());
                let took = self.rng.range(1, 5) * MS;
                self.task(node, took, Thread::Control, Task::Agent(Event::Probed { name, won }));
            }
            agent::Effect::Check { attempt } => {
                let results = Vec::new();
                let took = self.rng.range(1, 50) * MS;
                let event = Event::Checked { attempt: Some(attempt), results };
                self.task(node, took, Thread::Control, Task::Agent(event));
            }
            agent::Effect::Follow { term, leader, previous_dead, forever } => {
                let Some(process) = &mut self.nodes[node].agent else { return };
                process.leader = Some(leader);
                let event = lease::Event::Welcome {
                    leader,
                    term,
                    forever,
                    previous_leader_dead: previous_dead,
                    numbers: Box::new(self.spec().numbers),
                };
                self.task(node, 10_000, Thread::Beat, Task::Lease(event));
            }
            agent::Effect::Spawn { attempt, world, slot: _, seats } => {
                for seat in seats {
                    let took = self.rng.range(1, 15) * MS;
                    let (op, rank, local_rank) = (seat.op, seat.rank, seat.local_rank);
                    let seat = Seat { op, attempt, rank, local_rank, world: (*world).clone() };
                    self.process_thread(node, took, Task::Spawn(Box::new(seat)));
                }
            }
            agent::Effect::Signal { local_rank, scope: _, signal } => {
                self.process_thread(node, 50_000, Task::Signal(local_rank, signal));
            }
            agent::Effect::Sweep { op, patience_ms } => {
                self.process_thread(node, 50_000, Task::Sweep(op, patience_ms * MS));
            }
            agent::Effect::OpenOffer { op } => {
                let port = u16::try_from(self.rng.range(20_000, 30_000)).unwrap_or(0);
                let event = if self.rng.chance(20) {
                    Event::OfferFailed { op }
                } else {
                    Event::OfferReady {
                        op,
                        offer: Offer { address: format!("10.0.0.{node}"), port, hosted: true },
                    }
                };
                let delay = self.rng.range(1, 5) * MS;
                self.task(node, delay, Thread::Control, Task::Agent(event));
            }
            agent::Effect::Inspect { attempt, id, ranks } => {
                let took = self.rng.range(50, 900) * MS;
                let ranks = self.evidence(attempt, &ranks);
                self.task(
                    node,
                    took,
                    Thread::Control,
                    Task::Agent(Event::Inspected { attempt, id, ranks, whole: true }),
                );
            }
            agent::Effect::Exit(code) => {
                if let Some(process) = &mut self.nodes[node].agent {
                    process.exit = Some(code);
                }
                self.exit_if_over(node);
            }
        }
    }

    /// One node tries to connect to another: a host that lives answers, be its agent there or not.
    fn try_reach(&mut self, node: usize, target: NodeName) {
        let to = Self::index(&target);
        let whole = |n: usize, w: &Self| w.net.passes(n, true) && w.net.passes(n, false);
        // Not every way between two nodes leads past the coordinator.
        let detour = !whole(to, self) && self.rng.chance(300);
        let ok = self.nodes[to].power && (whole(to, self) || detour) && whole(node, self);
        let took = if ok { self.rng.range(1, 30) * MS } else { REACH.as_millis() as Ns * MS };
        self.task(node, took, Thread::Control, Task::Agent(Event::Reached { node: target, ok }));
    }

    /// The process that leads stays until the coordinator has seen everybody off.
    pub(super) fn exit_if_over(&mut self, node: usize) {
        let Some(process) = &self.nodes[node].agent else { return };
        let Some(code) = process.exit else { return };
        if !process.lead.as_ref().is_some_and(|lead| lead.sees_off()) {
            self.task(node, MS, Thread::Control, Task::Exit(code));
        }
    }

    /// Commands to the process thread are done one after another.
    fn process_thread(&mut self, node: usize, took: Ns, task: Task) {
        let now = self.now;
        let Some(process) = &mut self.nodes[node].agent else { return };
        process.busy_until = process.busy_until.max(now) + took;
        let delay = process.busy_until - now;
        self.task(node, delay, Thread::Process, task);
    }

    fn spawn(&mut self, node: usize, seat: &Seat) {
        let over = self.clock(node).boot >= self.nodes[node].grant;
        let fails = self.rng.chance(3);
        let op = seat.op;
        if over || fails {
            let errno = if over { ECANCELED } else { EAGAIN };
            if !over {
                self.counters.spawn_failures += 1;
                self.check.failed.insert((seat.attempt, seat.rank));
            }
            let event = Event::SpawnFailed { op, errno, what: "fork".to_owned() };
            return self.task(node, 10_000, Thread::Control, Task::Agent(event));
        }
        self.check_spawn(node, seat);
        let pid = u32::try_from(self.id()).unwrap_or(1);
        let Some(process) = &self.nodes[node].agent else { return };
        let rank = RankProcess {
            attempt: seat.attempt,
            rank: seat.rank,
            local_rank: seat.local_rank,
            agent: process.id,
            killed: false,
            stubborn: false,
            ending: false,
        };
        self.say(|_| format!("n{node} spawns rank {} of attempt {}", seat.rank, seat.attempt));
        self.nodes[node].ranks.insert(pid, rank);
        self.task(node, 10_000, Thread::Control, Task::Agent(Event::Spawned { op, pid }));
    }

    fn signal_rank(&mut self, node: usize, local_rank: LocalRank, signal: u8) {
        let mut found =
            self.nodes[node].ranks.iter().filter(|(_, r)| r.local_rank == local_rank && !r.killed);
        let Some((pid, _)) = found.next_back() else { return };
        let (pid, answers) = (*pid, self.rng.below(100));
        if signal == 9 {
            return self.kill_ranks(node);
        }
        // Most die of it, some call exit(0) in a handler, some do not care.
        let kind = match answers {
            0..75 => ExitKind::Signal { no: signal, core: false },
            75..85 => ExitKind::Code(0),
            _ => return,
        };
        let delay = self.rng.range(1, 400) * MS;
        self.after(delay, Ev::RankEnds(node, pid, kind));
    }

    fn sweep_poll(&mut self, node: usize, op: Op, until: Ns) {
        let left: Vec<u32> = self.nodes[node].ranks.keys().copied().collect();
        if !left.is_empty() && self.now < until {
            return self.task(node, 5 * MS, Thread::Process, Task::SweepPoll(op, until));
        }
        let survivors = left.into_iter().map(|pid| Survivor { pid, state: 'D' }).collect();
        self.task(node, 200_000, Thread::Control, Task::Agent(Event::Swept { op, survivors }));
    }

    fn frame_for_agent(&mut self, node: usize, frame: ToAgent) {
        let Some(process) = &mut self.nodes[node].agent else { return };
        let stale =
            process.seen.is_some_and(|(term, n)| frame.term < term || (frame.term == term && frame.n <= n));
        if stale {
            return self.stale_to_agent(node, frame);
        }
        process.seen = Some((frame.term, frame.n));
        match &frame.msg {
            AgentMsg::Finish { code } | AgentMsg::Refused(RefusedWhy::Ended(code)) => {
                process.told.get_or_insert(*code);
            }
            _ => {}
        }
        self.agent(node, Event::Recv(frame));
    }

    /// A stale frame changes nothing: compared after a tick, so that time itself has had its say.
    fn stale_to_agent(&mut self, node: usize, frame: ToAgent) {
        self.agent(node, Event::Tick);
        let now = self.clock(node);
        let Some(process) = &mut self.nodes[node].agent else { return };
        let before = format!("{:?}", process.agent);
        let mut out = Outbox::default();
        let text = format!("{frame:?}");
        process.agent.handle(now, Event::Recv(frame), &mut out);
        let changed = format!("{:?}", process.agent) != before;
        let effects = out.take_effects();
        self.notes(node, out.take_notes());
        if changed || !effects.is_empty() {
            self.check.fail("stale_changes_nothing", self.now, format!("n{node}: {text}: {effects:?}"));
        }
    }

    pub(super) fn lease(&mut self, node: usize, event: lease::Event) {
        let now = self.clock(node);
        let (at, acked) = match &event {
            lease::Event::Acked { ack, .. } => (self.now, Some(*ack)),
            _ => (self.now, None),
        };
        if !matches!(event, lease::Event::Tick { .. } | lease::Event::Acked { .. }) {
            self.say(|_| format!("n{node} lease <- {event:?}"));
        }
        let Some(process) = &mut self.nodes[node].agent else { return };
        let mut out = Outbox::default();
        let tick = matches!(event, lease::Event::Tick { .. });
        process.lease.handle(now, event, &mut out);
        let deadline = process.lease.deadline();
        self.check_deadline("lease", tick, now, deadline);
        let Some(process) = &self.nodes[node].agent else { return };
        if let Some(ack) = acked.filter(|a| process.leader == Some(a.leader)) {
            self.nodes[node].promise = Some((ack.leader, at));
        }
        let mut dials = 0;
        for effect in out.take_effects() {
            match effect {
                lease::Effect::Dial(link) => {
                    dials += 1;
                    let delay = self.rng.range(1, 5) * MS;
                    self.task(node, delay, Thread::Beat, Task::DialBeat(link));
                }
                lease::Effect::CloseLink(link) => {
                    let mine = self.nodes[node].agent.as_ref().map(|p| p.id);
                    let ids: Vec<u64> = self
                        .net
                        .conns
                        .iter()
                        .filter(|(_, c)| c.beat == Some(link) && Some(c.agent) == mine)
                        .map(|(id, _)| *id)
                        .collect();
                    for id in ids {
                        if let Some(conn) = self.net.conns.get_mut(&id) {
                            conn.open = false;
                        }
                    }
                }
                lease::Effect::SendBeat { link, beat } => {
                    let mine = self.nodes[node].agent.as_ref().map(|p| p.id);
                    let found = self
                        .net
                        .conns
                        .iter()
                        .find(|(_, c)| c.beat == Some(link) && Some(c.agent) == mine && c.open);
                    if let Some((id, conn)) = found.map(|(id, c)| (*id, *c)) {
                        let task = Task::Beat(id, beat);
                        self.send(node, true, Ev::Task(0, conn.lead, Thread::Beat, task));
                    }
                }
                lease::Effect::LeaderSilent { since } => {
                    self.counters.silent_leaders += 1;
                    self.task(node, 10_000, Thread::Control, Task::Agent(Event::LeaderSilent { since }));
                }
                lease::Effect::Granted(until) => {
                    self.say(|_| format!("n{node} granted until {until}"));
                    self.check_granted(node, until, acked);
                    self.nodes[node].grant = until;
                    self.task(node, 10_000, Thread::Control, Task::Agent(Event::Granted(until)));
                }
            }
        }
        if dials > 0 && acked.is_none() {
            self.counters.second_links += dials;
        }
        self.arm_lease(node);
    }

    fn arm_lease(&mut self, node: usize) {
        let Some(deadline) = self.nodes[node].agent.as_ref().and_then(|p| p.lease.deadline()) else { return };
        let at = self.wake_at(node, deadline);
        let Some(process) = &mut self.nodes[node].agent else { return };
        if at < Ns::MAX && process.lease_wake.is_none_or(|wake| at < wake) {
            process.lease_wake = Some(at);
            let id = process.id;
            self.at(at, Ev::Task(node, id, Thread::Beat, Task::LeaseWake));
        }
    }
}
