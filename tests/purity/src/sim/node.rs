//! One node: its guardian, its agent process, its ranks and its power.

use std::collections::{BTreeMap, VecDeque};

use super::faults::NodeSetup;
use super::lead::Lead;
use super::world::{Ev, MS, Ns, Task, Thread, World};
use crate::domain::agent::{self, Agent, AgentConfig};
use crate::domain::exit::ExitKind;
use crate::domain::guardian::{self, Guardian};
use crate::domain::ids::{Attempt, Incarnation, LocalRank, Rank, Term};
use crate::domain::lease::Lease;
use crate::domain::outbox::{Machine, Outbox};
use crate::domain::spec::NodeSpec;
use crate::domain::time::BootTime;
use crate::domain::wire::{FromSupervisor, Survivor};

/// How a rank ends that lost its peer, and what it says.
const PEER_LOST: ExitKind = ExitKind::Code(101);
pub(super) const PEER_LOST_WORDS: &str = "RuntimeError: Connection closed by peer";

/// One rank's process.
#[derive(Clone, Debug)]
pub(super) struct RankProcess {
    pub(super) attempt: Attempt,
    pub(super) rank: Rank,
    pub(super) local_rank: LocalRank,
    /// The agent process that spawned it.
    pub(super) agent: u64,
    /// SIGKILL was sent.
    pub(super) killed: bool,
    /// It survives SIGKILL for a while.
    pub(super) stubborn: bool,
    /// It is about to end by itself.
    pub(super) ending: bool,
}

/// One life of an agent.
#[derive(Debug)]
pub(super) struct AgentProcess {
    pub(super) id: u64,
    pub(super) incarnation: Incarnation,
    pub(super) agent: Agent,
    pub(super) lease: Lease,
    pub(super) lead: Option<Box<Lead>>,
    pub(super) frozen: u32,
    pub(super) frozen_by: Vec<usize>,
    pub(super) stopped_since: Option<Ns>,
    /// Since when the control thread stands still, and by which fault.
    pub(super) stuck: Option<(Ns, usize)>,
    /// The end of the last stop that was long enough to be noticed.
    pub(super) slept_until: Ns,
    pub(super) deferred: VecDeque<(Thread, Task)>,
    pub(super) conn: Option<u64>,
    pub(super) dialling: bool,
    /// The process thread is busy until then.
    pub(super) busy_until: Ns,
    /// What the guardian vouched for when it started.
    pub(super) clean_of: Vec<Incarnation>,
    pub(super) leader: Option<Incarnation>,
    /// It was told that the run is over, with this code.
    pub(super) told: Option<u8>,
    /// The agent machine went with this code.
    pub(super) exit: Option<u8>,
    pub(super) agent_wake: Option<Ns>,
    pub(super) lease_wake: Option<Ns>,
    /// The newest term and frame that were delivered.
    pub(super) seen: Option<(Term, u64)>,
}

impl AgentProcess {
    pub(super) fn brief(&self) -> String {
        let alive = self.agent.alive().map(|(attempt, ranks)| (attempt.0, ranks.len()));
        format!("{} frozen {} conn {:?} alive {alive:?}", self.incarnation, self.frozen, self.conn)
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) setup: NodeSetup,
    /// Its clock starts anew with each boot.
    pub(super) boots: u64,
    pub(super) power: bool,
    pub(super) will_start: bool,
    pub(super) guardian: Option<(u64, Guardian)>,
    guardian_wake: Option<Ns>,
    pub(super) agent: Option<AgentProcess>,
    /// The word that the agent writes and the guardian reads.
    pub(super) grant: BootTime,
    pub(super) ranks: BTreeMap<u32, RankProcess>,
    pub(super) exit: Option<u8>,
    pub(super) stubborn: u32,
    pub(super) stop_signal: Option<u8>,
    /// Every agent process that ever ran here.
    pub(super) lives: BTreeMap<u64, Incarnation>,
    /// The leader whose acknowledgement was taken last, and when (virtual time).
    pub(super) promise: Option<(Incarnation, Ns)>,
}

impl Node {
    pub(super) fn new(setup: NodeSetup) -> Self {
        Self {
            setup,
            boots: 0,
            power: true,
            will_start: false,
            guardian: None,
            guardian_wake: None,
            agent: None,
            grant: guardian::NO_GRANT,
            ranks: BTreeMap::new(),
            exit: None,
            stubborn: 0,
            stop_signal: None,
            lives: BTreeMap::new(),
            promise: None,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        (self.setup.offset + self.boots * 7_777) * MS
    }

    pub(super) fn guardian_id(&self) -> Option<u64> {
        self.guardian.as_ref().map(|(id, _)| *id)
    }
}

impl World {
    pub(super) fn start_node(&mut self, node: usize) {
        self.nodes[node].will_start = false;
        if self.nodes[node].guardian.is_some() {
            return;
        }
        let id = self.id();
        let seed = self.rng.next();
        self.nodes[node].guardian = Some((id, Guardian::new(seed, guardian::Numbers::default())));
        self.nodes[node].guardian_wake = None;
        self.nodes[node].stop_signal = None;
        self.guardian(node, id, guardian::Event::Tick);
    }

    pub(super) fn guardian_wake(&mut self, node: usize, id: u64) {
        let now = self.now;
        if self.nodes[node].guardian_id() == Some(id) && self.nodes[node].guardian_wake == Some(now) {
            self.nodes[node].guardian_wake = None;
            self.guardian(node, id, guardian::Event::Tick);
        }
    }

    pub(super) fn guardian(&mut self, node: usize, id: u64, event: guardian::Event) {
        let now = self.clock(node);
        self.say(|_| format!("n{node} guardian <- {event:?}"));
        let Some((_, machine)) = self.nodes[node].guardian.as_mut().filter(|(g, _)| *g == id) else { return };
        let mut out = Outbox::default();
        let tick = event == guardian::Event::Tick;
        machine.handle(now, event, &mut out);
        let (deadline, effects) = (machine.deadline(), out.take_effects());
        // What it asked for is answered before it sleeps.
        let asks = |e: &guardian::Effect| matches!(e, guardian::Effect::ReadGrant | guardian::Effect::Reap);
        self.check_deadline("guardian", tick && !effects.iter().any(asks), now, deadline);
        for effect in effects {
            self.guardian_effect(node, id, effect);
        }
        let Some((_, machine)) = &self.nodes[node].guardian else { return };
        let Some(deadline) = machine.deadline() else { return };
        let late = self.rng.below(4) * MS + 10_000;
        let at = self.real(node, deadline).max(self.now).saturating_add(late);
        if self.nodes[node].guardian_wake.is_none_or(|wake| at < wake) && at < Ns::MAX {
            self.nodes[node].guardian_wake = Some(at);
            self.at(at, Ev::GuardianWake(node, id));
        }
    }

    fn guardian_effect(&mut self, node: usize, id: u64, effect: guardian::Effect) {
        self.say(|_| format!("n{node} guardian -> {effect:?}"));
        match effect {
            guardian::Effect::ForkAgent(start) => {
                self.nodes[node].grant = guardian::NO_GRANT;
                let delay = self.rng.range(3, 30) * MS;
                self.after(delay, Ev::Forked(node, id, start));
            }
            guardian::Effect::KillTree => {
                if let Some(process) = self.nodes[node].agent.take() {
                    self.close_all(&process, false);
                }
                self.kill_ranks(node);
            }
            guardian::Effect::KillRanks => {
                if self.nodes[node].ranks.values().any(|r| !r.killed) {
                    self.counters.grants_over += 1;
                }
                self.kill_ranks(node);
            }
            guardian::Effect::Reap => {
                let survivors = self.nodes[node].ranks.keys().copied().collect();
                self.after(10_000, Ev::Guardian(node, id, guardian::Event::Swept { survivors }));
            }
            guardian::Effect::ReadGrant => {
                let until = self.nodes[node].grant;
                let stands = |p: &AgentProcess| p.frozen > 0 || p.stuck.is_some();
                let moves = self.nodes[node].agent.as_ref().is_some_and(|p| !stands(p));
                let tick = if moves { self.now } else { 0 };
                self.after(1_000, Ev::Guardian(node, id, guardian::Event::GrantIs { until, tick }));
            }
            guardian::Effect::Tell(guardian::ToAgent::Signal(signal)) => {
                let event = agent::Event::OsSignal {
                    signal: signal.no,
                    terminal: signal.code == 128,
                    pid: Some(signal.pid),
                    uid: Some(signal.uid),
                    user: signal.code == 0,
                };
                self.task(node, 100_000, Thread::Control, Task::Agent(event));
            }
            guardian::Effect::Tell(_) | guardian::Effect::Say(_) => {}
            guardian::Effect::Exit(code) => self.guardian_exits(node, code),
        }
    }

    fn guardian_exits(&mut self, node: usize, code: u8) {
        self.nodes[node].guardian = None;
        self.nodes[node].exit = Some(code);
        self.check_exit(node, code);
        self.task_ended(node, i32::from(code));
    }

    /// Guardian, agent and ranks die at once; the host says so to whoever was connected.
    pub(super) fn kill_node(&mut self, node: usize) {
        if self.nodes[node].guardian.take().is_none() {
            return;
        }
        self.counters.nodes_gone += 1;
        if let Some(process) = self.nodes[node].agent.take() {
            self.close_all(&process, false);
        }
        self.disturb(node);
        self.nodes[node].ranks.clear();
        self.nodes[node].grant = guardian::NO_GRANT;
        self.nodes[node].boots += 1;
        self.task_ended(node, 137);
    }

    /// The supervisor notices that the task of a node ended, and says so.
    fn task_ended(&mut self, node: usize, rc: i32) {
        if self.scenario.supervised {
            let delay = self.rng.range(5, 2_000) * MS;
            let message = FromSupervisor::AgentEnded { node: Self::name(node), rc };
            self.after(delay, Ev::FromSupervisor(message));
        }
    }

    /// It was asked for an agent on this node.
    pub(super) fn supervisor_starts(&mut self, node: usize) {
        let up = self.nodes[node].power && self.nodes[node].guardian.is_none();
        if up && !self.nodes[node].will_start && self.nodes.iter().any(|n| n.guardian.is_some()) {
            self.nodes[node].exit = None;
            self.counters.agents_started += 1;
            self.start_node(node);
        }
    }

    /// The fork is done: an agent runs.
    pub(super) fn forked(&mut self, node: usize, guardian: u64, start: guardian::Start) {
        if self.nodes[node].guardian_id() != Some(guardian) {
            return;
        }
        let id = self.id();
        let survivors: Vec<Survivor> =
            start.survivors.iter().map(|pid| Survivor { pid: *pid, state: 'D' }).collect();
        let spec = NodeSpec {
            nproc: self.scenario.nproc,
            address: format!("10.0.0.{node}"),
            port: 29_400,
            order: u32::try_from(node).unwrap_or(0),
            ..NodeSpec::default()
        };
        let config = AgentConfig {
            node: Self::name(node),
            incarnation: start.incarnation,
            clean_of: start.clean_of.clone(),
            survivors,
            spec,
            store: None,
            numbers: self.spec().numbers,
            mutants: self.mutants,
        };
        self.nodes[node].lives.insert(id, start.incarnation);
        self.nodes[node].agent = Some(AgentProcess {
            id,
            incarnation: start.incarnation,
            agent: Agent::new(config),
            lease: Lease::new(start.incarnation, self.mutants),
            lead: None,
            frozen: 0,
            frozen_by: Vec::new(),
            stopped_since: None,
            stuck: None,
            slept_until: 0,
            deferred: VecDeque::new(),
            conn: None,
            dialling: false,
            busy_until: 0,
            clean_of: start.clean_of,
            leader: None,
            told: None,
            exit: None,
            agent_wake: None,
            lease_wake: None,
            seen: None,
        });
        self.guardian(node, guardian, guardian::Event::AgentStarted { pid: u32::try_from(id).unwrap_or(1) });
        self.task(node, 0, Thread::Control, Task::Agent(agent::Event::Begin));
        if self.looks() {
            self.task(node, 0, Thread::Control, Task::Look);
        }
        if node == 0 {
            let delay = self.rng.range(2, 60) * MS;
            self.task(node, delay, Thread::Control, Task::ReadJournal);
        }
    }

    /// The agent process is gone, its ranks get their death signal, its guardian learns of it.
    pub(super) fn agent_ends(&mut self, node: usize, kind: ExitKind) {
        let Some(process) = self.nodes[node].agent.take() else { return };
        self.say(|_| format!("n{node} agent {} ends: {kind}", process.incarnation));
        self.close_all(&process, false);
        self.kill_ranks(node);
        if let Some(id) = self.nodes[node].guardian_id() {
            let delay = self.rng.range(1, 4) * MS;
            self.after(delay, Ev::Guardian(node, id, guardian::Event::AgentExited { kind }));
        }
    }

    pub(super) fn crash_agent(&mut self, node: usize) {
        if self.nodes[node].agent.is_some() {
            self.counters.agent_crashes += 1;
            self.agent_ends(node, ExitKind::Signal { no: 9, core: false });
        }
    }

    pub(super) fn power_off(&mut self, node: usize) {
        self.lose_peers(node);
        self.nodes[node].power = false;
        let up = self.nodes[node].guardian.take().is_some();
        if let Some(process) = self.nodes[node].agent.take() {
            self.close_all(&process, true);
        }
        self.disturb(node);
        self.nodes[node].ranks.clear();
        self.nodes[node].will_start = false;
        if up {
            self.counters.node_crashes += 1;
        }
        self.nodes[node].boots += 1;
    }

    /// Its place in the run is taken up again, if the run still needs it: nobody starts the first node again.
    pub(super) fn power_on(&mut self, node: usize) {
        self.nodes[node].power = true;
        let goes_on = self.nodes.iter().any(|n| n.guardian.is_some());
        if node > 0 && goes_on && self.nodes[node].guardian.is_none() && self.nodes[node].exit.is_none() {
            self.counters.node_returns += 1;
            self.start_node(node);
        }
    }

    pub(super) fn kill_ranks(&mut self, node: usize) {
        self.disturb(node);
        let pids: Vec<u32> = self.nodes[node].ranks.keys().copied().collect();
        for pid in pids {
            self.kill_rank(node, pid);
        }
    }

    fn kill_rank(&mut self, node: usize, pid: u32) {
        let stubborn = self.nodes[node].stubborn > 0 && self.rng.chance(600);
        let Some(rank) = self.nodes[node].ranks.get_mut(&pid).filter(|r| !r.killed) else { return };
        rank.killed = true;
        rank.stubborn = stubborn;
        let delay = if stubborn { self.rng.range(5_200, 25_000) * MS } else { self.rng.range(1, 40) * MS };
        self.after(delay, Ev::RankEnds(node, pid, ExitKind::Signal { no: 9, core: false }));
    }

    pub(super) fn rank_ends(&mut self, node: usize, pid: u32, kind: ExitKind) {
        let Some(rank) = self.nodes[node].ranks.remove(&pid) else { return };
        let by_itself = rank.ending && !rank.killed;
        if by_itself {
            self.check.failed.insert((rank.attempt, rank.rank));
            if kind.is_success() {
                self.check.done.insert((rank.attempt, rank.rank));
            }
        }
        self.say(|_| format!("n{node} rank {} of attempt {} ends: {kind}", rank.rank, rank.attempt));
        if self.nodes[node].agent.as_ref().is_none_or(|p| p.id != rank.agent) {
            return;
        }
        let at = self.clock(node).boot;
        // Now and then a sweep takes the status away.
        if rank.killed && self.rng.chance(50) {
            return;
        }
        let summary = if kind == PEER_LOST { PEER_LOST_WORDS.to_owned() } else { String::new() };
        let event = agent::Event::RankExited {
            attempt: rank.attempt,
            local_rank: rank.local_rank,
            kind,
            at,
            summary,
            words: String::new(),
            recorded: None,
            evidence: Default::default(),
        };
        self.task(node, 100_000, Thread::Control, Task::Agent(event));
    }

    /// A rank on this node, or the nearest after it, ends by itself; sometimes its peers fail of it.
    pub(super) fn fail_rank(&mut self, node: usize, kind: ExitKind) {
        let count = self.nodes.len();
        let order = (0..count).map(|i| (node + i) % count);
        let mut found = None;
        for node in order {
            let pid =
                self.nodes[node].ranks.iter().find(|(_, r)| !r.killed && !r.ending).map(|(pid, _)| *pid);
            if let Some(pid) = pid {
                found = Some((node, pid));
                break;
            }
        }
        let Some((node, pid)) = found else { return };
        if kind == ExitKind::Code(0) {
            self.counters.early_exits += 1;
        } else {
            self.counters.rank_failures += 1;
        }
        let attempt = self.nodes[node].ranks[&pid].attempt;
        self.ends_soon(node, pid, kind.clone(), 1_000);
        let spread = match self.rng.below(4) {
            0 => 4,
            1 | 2 => 2_500,
            _ => return,
        };
        for other in 0..count {
            let pids: Vec<u32> = self.nodes[other]
                .ranks
                .iter()
                .filter(|(_, r)| r.attempt == attempt)
                .map(|(p, _)| *p)
                .collect();
            for pid in pids {
                if self.rng.chance(500) {
                    let delay = self.rng.below(spread) * MS + 1_000;
                    let kind = if self.rng.chance(500) { PEER_LOST } else { ExitKind::Code(1) };
                    self.ends_soon(other, pid, kind, delay);
                }
            }
        }
    }

    /// Ranks notice that their peers on this node are gone, before anybody here does.
    fn lose_peers(&mut self, node: usize) {
        let Some(attempt) = self.nodes[node].ranks.values().map(|r| r.attempt).max() else { return };
        let told = self.rng.chance(500);
        for other in (0..self.nodes.len()).filter(|other| *other != node && told) {
            let ranks = self.nodes[other].ranks.iter().filter(|(_, r)| r.attempt == attempt);
            for pid in ranks.map(|(pid, _)| *pid).collect::<Vec<_>>() {
                if self.rng.chance(300) {
                    let delay = self.rng.below(3_000) * MS + 1_000;
                    self.ends_soon(other, pid, PEER_LOST, delay);
                    self.counters.peers_lost += 1;
                }
            }
        }
    }

    fn ends_soon(&mut self, node: usize, pid: u32, kind: ExitKind, delay: Ns) {
        let Some(rank) = self.nodes[node].ranks.get_mut(&pid).filter(|r| !r.killed && !r.ending) else {
            return;
        };
        rank.ending = true;
        self.after(delay, Ev::RankEnds(node, pid, kind));
    }

    /// The program is done: every rank ends with 0, within a moment.
    pub(super) fn finish_ranks(&mut self) {
        for node in 0..self.nodes.len() {
            let pids: Vec<u32> = self.nodes[node].ranks.keys().copied().collect();
            for pid in pids {
                let delay = self.rng.below(300) * MS;
                self.ends_soon(node, pid, ExitKind::Code(0), delay);
            }
        }
    }
}
