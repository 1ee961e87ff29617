//! The queue of events, the clocks, and who gets which event.

use std::collections::{BTreeMap, VecDeque};

use super::check::Check;
use super::counters::Counters;
use super::faults::{Scenario, StoreFault, What};
use super::net::Net;
use super::node::{AgentProcess, Node};
use super::rng::Rng;
use super::store::Store;
use crate::domain::append::AppendEvent;
use crate::domain::exit::ExitKind;
use crate::domain::guardian::{self, SignalInfo};
use crate::domain::ids::{Attempt, LocalRank, NodeName, Op, Rank, Seq};
use crate::domain::mutant::Mutants;
use crate::domain::record::Record;
use crate::domain::rendezvous;
use crate::domain::spec::{Numbers, RunSpec};
use crate::domain::time::{BootTime, Now};
use crate::domain::wire::{Ack, Beat, FromSupervisor, ToAgent, ToCoordinator, World as RanksWorld};
use crate::domain::{agent, authority, coordinator, lease};

/// Virtual time, ns.
pub(super) type Ns = u64;
pub(super) const MS: Ns = 1_000_000;
/// More events than this in one scenario is a loop; in a large one, for each [`SMALL`] of its nodes.
const TOO_MANY: u64 = 400_000;
const SMALL: u64 = 8;
/// A scenario has at least so many events and so much time.
const AT_LEAST: (u64, Ns) = (1_500, 60_000 * MS);
/// After the last fault the run must run or be closed within this.
const SETTLE: Ns = 60_000 * MS;

/// Which thread of an agent process handles an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thread {
    Control,
    Beat,
    Process,
}

/// What a process has to do.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Agent(agent::Event),
    AgentWake,
    Lease(lease::Event),
    LeaseWake,
    Coordinator(coordinator::Event),
    CoordinatorWake,
    Authority(authority::Event),
    AuthorityWake,
    Append(AppendEvent),
    AppendWake,
    /// A frame of this connection for the agent.
    ToAgent(u64, Box<ToAgent>),
    /// A frame of this connection for the coordinator.
    ToCoordinator(u64, Box<ToCoordinator>),
    Beat(u64, Beat),
    Ack(u64, Ack),
    Dial,
    DialBeat(lease::Link),
    Spawn(Box<Seat>),
    Signal(LocalRank, u8),
    Sweep(Op, Ns),
    SweepPoll(Op, Ns),
    ReadJournal,
    StoreCreate(Op, u64),
    StoreRead(Op, Seq),
    /// The other end closed.
    Closed(u64),
    Exit(u8),
    /// At the pages of the ranks.
    Look,
}

#[derive(Clone, Debug)]
pub(super) struct Seat {
    pub(super) op: Op,
    pub(super) attempt: Attempt,
    pub(super) rank: Rank,
    pub(super) local_rank: LocalRank,
    pub(super) world: RanksWorld,
}

/// One event.
#[derive(Clone, Debug)]
pub(super) enum Ev {
    Begin(usize),
    End(usize),
    Launch(usize),
    Guardian(usize, u64, guardian::Event),
    GuardianWake(usize, u64),
    Forked(usize, u64, guardian::Start),
    Task(usize, u64, Thread, Task),
    RankEnds(usize, u32, ExitKind),
    Land(Box<Record>),
    ConnCheck(usize),
    /// The supervisor starts an agent on this node.
    Start(usize),
    /// The supervisor says something to the process that leads.
    FromSupervisor(FromSupervisor),
}

pub(super) struct World {
    pub(super) scenario: Scenario,
    pub(super) mutants: Mutants,
    pub(super) now: Ns,
    pub(super) events: u64,
    queue: BTreeMap<(Ns, u64), Ev>,
    next: u64,
    pub(super) rng: Rng,
    pub(super) nodes: Vec<Node>,
    pub(super) net: Net,
    pub(super) store: Store,
    pub(super) check: Check,
    /// Nodes whose ranks ask to be taken out.
    pub(super) asking: std::collections::BTreeSet<(usize, Attempt)>,
    /// Probes that were made.
    pub(super) probes: std::collections::BTreeSet<String>,
    pub(super) counters: Counters,
    pub(super) trace: Vec<String>,
    pub(super) traced: bool,
    pub(super) wire: super::Wire,
    pub(super) ids: u64,
    pub(super) launch: u32,
    pub(super) launched_at: Ns,
    pub(super) stopped: super::hang::Stopped,
    settled: bool,
}

/// From this seed on nodes are lost after 20 s, as by default: grants are so long there that beats echo later.
const LONG_GRANTS: u64 = 100_000;

impl World {
    pub(super) fn new(scenario: Scenario, mutants: Mutants, traced: bool) -> Self {
        let nodes = scenario.nodes.iter().map(|setup| Node::new(*setup)).collect();
        let mut world = Self {
            rng: Rng::new(scenario.seed),
            net: Net::new(scenario.nodes.len()),
            store: Store::default(),
            check: Check::default(),
            asking: std::collections::BTreeSet::new(),
            probes: std::collections::BTreeSet::new(),
            counters: Counters::default(),
            nodes,
            scenario,
            mutants,
            now: 0,
            events: 0,
            queue: BTreeMap::new(),
            next: 0,
            trace: Vec::new(),
            traced,
            wire: |frame| frame,
            ids: 0,
            launch: 0,
            launched_at: 0,
            stopped: super::hang::Stopped::new(),
            settled: false,
        };
        for i in 0..world.scenario.faults.len() {
            let fault = world.scenario.faults[i];
            world.at(fault.at * MS, Ev::Begin(i));
            if fault.end() > fault.at {
                world.at(fault.end() * MS, Ev::End(i));
            }
        }
        world.launch();
        world
    }

    /// What is run: short timers, as in tests.
    pub(super) fn spec(&self) -> RunSpec {
        let nodes = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        let full = nodes - self.scenario.spares;
        RunSpec {
            min_nodes: full.saturating_sub(self.scenario.fewer).max(1),
            max_nodes: full,
            spares: self.scenario.spares,
            max_restarts: self.scenario.max_restarts,
            numbers: Numbers {
                lost_ms: if self.scenario.seed < LONG_GRANTS { 6_000 } else { 20_000 },
                join_timeout_ms: 30_000,
                leave_ms: 5_000,
                last_call_ms: self.scenario.last_call,
                backoff_ms: 200,
                ..Numbers::default()
            },
            hang: self.hang_spec(),
            ..RunSpec::default()
        }
    }

    pub(super) fn name(i: usize) -> NodeName {
        NodeName::new(format!("n{i}"))
    }

    pub(super) fn index(node: &NodeName) -> usize {
        node.as_str().get(1..).and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    pub(super) fn id(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    pub(super) fn say(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.traced {
            let line = format!("{:>9.3} {}", self.now as f64 / 1e9, text(self));
            self.trace.push(line);
        }
    }

    /// This node's clocks.
    pub(super) fn clock(&self, node: usize) -> Now {
        let setup = self.nodes[node].setup;
        let boot = self.nodes[node].offset() + drifted(self.now, setup.ppm);
        let wall_ms = 1_700_000_000_000 + self.now / MS + (setup.offset % 997);
        Now { boot: BootTime(boot), wall_ms }
    }

    /// When this node's clock shows `at`; never before now.
    pub(super) fn real(&self, node: usize, at: BootTime) -> Ns {
        if at == BootTime::NEVER {
            return Ns::MAX;
        }
        let setup = self.nodes[node].setup;
        let since = i128::from(at.0) - i128::from(self.nodes[node].offset());
        let real = since * 1_000_000 / (1_000_000 + i128::from(setup.ppm)) + 1;
        u64::try_from(real.max(0)).unwrap_or(Ns::MAX)
    }

    pub(super) fn at(&mut self, at: Ns, ev: Ev) {
        self.next += 1;
        self.queue.insert((at.max(self.now), self.next), ev);
    }

    pub(super) fn after(&mut self, delay: Ns, ev: Ev) {
        self.at(self.now + delay, ev);
    }

    /// A task for the agent process that runs on this node now.
    pub(super) fn task(&mut self, node: usize, delay: Ns, thread: Thread, task: Task) {
        if let Some(process) = &self.nodes[node].agent {
            let id = process.id;
            self.after(delay, Ev::Task(node, id, thread, task));
        }
    }

    /// All nodes start.
    fn launch(&mut self) {
        self.launch += 1;
        self.launched_at = self.now;
        self.counters.launches += 1;
        self.check.launch();
        for i in 0..self.nodes.len() {
            let late = if self.launch == 1 { self.scenario.nodes[i].late } else { self.rng.below(500) };
            self.after(late * MS, Ev::Launch(i));
            self.nodes[i].will_start = true;
            self.nodes[i].exit = None;
        }
    }

    pub(super) fn run(&mut self) {
        let quiet = self.scenario.quiet_from() * MS;
        loop {
            let done = self.events >= AT_LEAST.0 && self.now >= AT_LEAST.1.max(quiet + 2_000 * MS);
            if done && self.settled {
                return;
            }
            if self.closed() && self.now >= self.launched_at + 1_000 * MS {
                if done {
                    return;
                }
                self.now += 1_000 * MS;
                self.launch();
            }
            if self.now > quiet.max(self.launched_at) + SETTLE && !self.settled {
                let state = self.state();
                self.check.fail("running_or_closed_in_60_s", self.now, state);
            }
            if self.events > TOO_MANY * (self.nodes.len() as u64).div_ceil(SMALL) {
                let state = self.state();
                self.check.fail("too_many_events", self.now, state);
            }
            if self.check.violation.is_some() {
                return;
            }
            let Some(((at, _), ev)) = self.queue.pop_first() else {
                // Nobody is left to do anything: the next launch goes on from here.
                self.now += 1_000 * MS;
                continue;
            };
            self.now = self.now.max(at);
            self.events += 1;
            self.handle(ev);
            self.check_grants();
            if self.now > quiet.max(self.launched_at) + 2_000 * MS && (self.running() || self.closed()) {
                self.settled = true;
            } else if self.now < quiet.max(self.launched_at) + 2_000 * MS {
                self.settled = false;
            }
        }
    }

    fn handle(&mut self, ev: Ev) {
        match ev {
            Ev::Begin(i) => self.begin(i),
            Ev::End(i) => self.end(i),
            Ev::Launch(node) => self.start_node(node),
            Ev::Guardian(node, id, event) => self.guardian(node, id, event),
            Ev::GuardianWake(node, id) => self.guardian_wake(node, id),
            Ev::Forked(node, id, start) => self.forked(node, id, start),
            Ev::Task(node, id, thread, task) => self.run_task(node, id, thread, task),
            Ev::RankEnds(node, pid, kind) => self.rank_ends(node, pid, kind),
            Ev::Land(record) => self.land_late(*record),
            Ev::ConnCheck(node) => self.conn_check(node),
            Ev::Start(node) => self.supervisor_starts(node),
            Ev::FromSupervisor(message) => {
                let event = coordinator::Event::Supervisor(message);
                self.task(0, 0, Thread::Control, Task::Coordinator(event));
            }
        }
    }

    fn run_task(&mut self, node: usize, id: u64, thread: Thread, task: Task) {
        let Some(process) = self.nodes[node].agent.as_mut().filter(|p| p.id == id) else { return };
        if process.frozen > 0 || (process.stuck.is_some() && thread == Thread::Control) {
            process.deferred.push_back((thread, task));
            return;
        }
        self.perform(node, task);
    }

    fn begin(&mut self, i: usize) {
        let fault = self.scenario.faults[i];
        let node = fault.node;
        self.say(|_| format!("fault: {fault}"));
        match fault.what {
            What::Cut { way, .. } => self.cut(node, way, true),
            What::Crash => self.crash_agent(node),
            What::Gone { .. } => self.kill_node(node),
            What::Down { .. } => self.power_off(node),
            What::Freeze { .. } => self.freeze(node, i),
            What::Stuck { .. } => self.stick(node, i),
            What::Exit { code } => self.fail_rank(node, ExitKind::Code(code)),
            What::Signal { no } => self.fail_rank(node, ExitKind::Signal { no, core: false }),
            What::Finish => self.finish_ranks(),
            What::Stop { no } => {
                let signal = SignalInfo { no, code: 0, pid: 1, uid: 0 };
                if let Some(id) = self.nodes[node].guardian_id() {
                    self.nodes[node].stop_signal = Some(no);
                    self.guardian(node, id, guardian::Event::Signal(signal));
                }
            }
            What::Store { kind, .. } => self.store.faults.push(kind),
            What::Reset => self.reset(node),
            What::Hang => self.hang_rank(node),
            What::Leave => self.ask_to_leave(node),
            What::Storm { .. } => self.net.storms += 1,
            What::Stubborn { .. } => self.nodes[node].stubborn += 1,
        }
    }

    fn end(&mut self, i: usize) {
        let fault = self.scenario.faults[i];
        let node = fault.node;
        self.say(|_| format!("over: {fault}"));
        match fault.what {
            What::Cut { way, .. } => self.cut(node, way, false),
            What::Gone { .. } | What::Down { .. } => self.power_on(node),
            What::Freeze { .. } => self.thaw(node, i),
            What::Stuck { .. } => self.unstick(node, i),
            What::Store { kind, .. } => self.store.heal(kind),
            What::Storm { .. } => self.net.storms -= 1,
            What::Stubborn { .. } => self.nodes[node].stubborn -= 1,
            _ => {}
        }
    }

    fn freeze(&mut self, node: usize, i: usize) {
        let now = self.now;
        let Some(process) = &mut self.nodes[node].agent else { return };
        process.frozen += 1;
        process.frozen_by.push(i);
        process.stopped_since.get_or_insert(now);
        if process.lead.is_some() {
            self.counters.pauses += 1;
        } else {
            self.counters.freezes += 1;
        }
    }

    fn thaw(&mut self, node: usize, i: usize) {
        let now = self.now;
        let Some(process) = self.nodes[node].agent.as_mut().filter(|p| p.frozen_by.contains(&i)) else {
            return;
        };
        process.frozen -= 1;
        if process.frozen > 0 {
            return;
        }
        if let Some(since) = process.stopped_since.take()
            && now - since > 1_600 * MS
        {
            process.slept_until = now;
        }
        self.release(node);
    }

    fn stick(&mut self, node: usize, i: usize) {
        let now = self.now;
        if let Some(process) = &mut self.nodes[node].agent {
            process.stuck.get_or_insert((now, i));
            self.counters.stuck += 1;
        }
    }

    fn unstick(&mut self, node: usize, i: usize) {
        if let Some(process) = self.nodes[node].agent.as_mut().filter(|p| p.stuck.is_some_and(|s| s.1 == i)) {
            process.stuck = None;
            self.release(node);
        }
    }

    /// What waited for the process is done now, in the order in which it came.
    fn release(&mut self, node: usize) {
        let Some(process) = &mut self.nodes[node].agent else { return };
        let id = process.id;
        let waiting: VecDeque<(Thread, Task)> = std::mem::take(&mut process.deferred);
        for (thread, task) in waiting {
            self.after(0, Ev::Task(node, id, thread, task));
        }
    }

    /// Every guardian that was to start has ended.
    pub(super) fn closed(&self) -> bool {
        self.nodes.iter().all(|n| !n.will_start && n.guardian.is_none() && n.ranks.is_empty())
    }

    /// The newest world runs, all of it.
    fn running(&self) -> bool {
        let Some(lead) = self.nodes[0].agent.as_ref().and_then(|p| p.lead.as_ref()) else { return false };
        let coordinator = &lead.coordinator;
        if coordinator.phase() != coordinator::Phase::Running {
            return false;
        }
        let (Some(attempt), Some(world)) = (coordinator.ledger().attempt(), coordinator.ledger().world())
        else {
            return false;
        };
        // A rank that ended with 0 while its peers run is no failure.
        world.members.iter().all(|m| {
            let ranks = &self.nodes[Self::index(&m.node)].ranks;
            let alive = ranks.values().filter(|r| r.attempt == attempt && !r.killed).count();
            let first = rendezvous::first_rank(&world.members, &m.node).map_or(0, |r| r.0);
            let done = (first..first + m.nproc).filter(|r| self.check.done.contains(&(attempt, Rank(*r))));
            alive + done.count() == m.nproc as usize
        })
    }

    fn state(&self) -> String {
        let nodes = self.nodes.iter().enumerate().map(|(i, n)| {
            let ranks = n.ranks.values().map(|r| r.attempt.0.to_string()).collect::<Vec<_>>().join(",");
            let agent = n.agent.as_ref().map_or_else(|| "-".to_owned(), AgentProcess::brief);
            let guardian = if n.guardian.is_some() { "up" } else { "-" };
            format!("n{i}: guardian {guardian}, exit {:?}, agent {agent}, ranks of [{ranks}]", n.exit)
        });
        let coordinator = self.nodes[0].agent.as_ref().and_then(|p| p.lead.as_ref()).map(|l| l.brief());
        format!("{}; coordinator {coordinator:?}", nodes.collect::<Vec<_>>().join("; "))
    }

    /// Whether an operation of the store is hit by a fault of this kind now.
    pub(super) fn store_fault(&mut self) -> Option<StoreFault> {
        if self.store.faults.is_empty() {
            return None;
        }
        let i = self.rng.below(self.store.faults.len() as u64 * 5 / 4) as usize;
        self.store.faults.get(i).copied()
    }
}

fn drifted(now: Ns, ppm: i64) -> u64 {
    let drift = i128::from(now) * i128::from(ppm) / 1_000_000;
    u64::try_from(i128::from(now) + drift).unwrap_or(0)
}
