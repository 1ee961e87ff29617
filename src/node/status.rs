//! What `status.json` says now: from the coordinator's machine and the ranks of this node.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use super::store::StoreLine;
use super::tasks;
use crate::domain::agent::{Agent, AliveRank};
use crate::domain::coordinator::{Coordinator, Phase as Machine, RankState};
use crate::domain::ids::NodeName;
use crate::domain::liveness::limits::phase_name;
use crate::domain::policy::budget;
use crate::domain::record::Member;
use crate::domain::rendezvous;
use crate::domain::time::BootTime;
use crate::store::status::{NodeStatus, Phase, ProcessRef, RankRef, RankStatus, STATUS_VERSION, Status};
use crate::sys::{clock, process, procfs};

/// A status that does not change is written again after so long: a reader tells by it that somebody lives.
pub(crate) const SIGN: Duration = Duration::from_secs(30);
/// With more nodes than these not every change is looked at.
const FEW: usize = 64;
/// As [`GATHER`], of many nodes.
const GATHER_MANY: Duration = Duration::from_millis(250);
/// Between two writings of nothing but steps, in milliseconds.
const STEPS_MS: u64 = 5_000;
/// So many ranks are listed.
const MOST_RANKS: usize = 512;
/// Changes that come one upon another (a rank each) are written together.
const GATHER: Duration = Duration::from_millis(50);

struct State {
    store: StoreLine,
    /// What was written last.
    last: Option<Status>,
    /// What the coordinator said last, without ranks.
    run: Option<Status>,
    alive: Vec<AliveRank>,
    /// When these processes began: read once each.
    known: BTreeMap<i32, u64>,
    agent: ProcessRef,
    since_ms: u64,
    /// Something is to be written soon.
    pending: bool,
    /// Steps wait to be written.
    waits: bool,
    /// When all nodes were looked at last.
    looked: BootTime,
    /// Something happened since.
    passed: bool,
}

/// Publishes the status whenever it differs from the last one: a phase of few nodes at once, the rest within [`GATHER`] or
/// [`GATHER_MANY`].
#[derive(Clone)]
pub(crate) struct Board(Rc<RefCell<State>>);

impl Board {
    pub(crate) fn new(store: StoreLine) -> Self {
        let pid = process::own_pid();
        let agent = ProcessRef { pid, start_time: procfs::start_time(pid).unwrap_or(0) };
        let since_ms = clock::now().wall_ms;
        let board = Self(Rc::new(RefCell::new(State {
            store,
            last: None,
            run: None,
            alive: Vec::new(),
            known: BTreeMap::new(),
            agent,
            since_ms,
            pending: false,
            waits: false,
            looked: BootTime(0),
            passed: false,
        })));
        let living = board.clone();
        tasks::spawn(async move {
            loop {
                tokio::time::sleep(SIGN).await;
                living.0.borrow_mut().sign();
            }
        });
        board
    }

    /// The ranks of this node.
    pub(crate) fn ranks(&self, agent: &Agent) {
        let alive = agent.alive().map(|(_, ranks)| ranks).unwrap_or_default();
        let mut state = self.0.borrow_mut();
        if alive != state.alive {
            state.alive = alive;
            self.soon(&mut state);
        }
    }

    /// Writes what waits to be written.
    pub(crate) fn flush(&self) {
        let mut state = self.0.borrow_mut();
        // Whoever says no more after that would never be shown.
        if let Some(left) = state.publish().filter(|_| !state.waits) {
            state.waits = true;
            let board = self.clone();
            tasks::spawn(async move {
                tokio::time::sleep(left).await;
                board.0.borrow_mut().waits = false;
                board.flush();
            });
        }
    }

    fn soon(&self, state: &mut State) {
        if !std::mem::replace(&mut state.pending, true) {
            let board = self.clone();
            let many = state.run.as_ref().is_some_and(|run| run.nodes.len() > FEW);
            let wait = if many { GATHER_MANY } else { GATHER };
            tasks::spawn(async move {
                tokio::time::sleep(wait).await;
                board.flush();
            });
        }
    }

    /// The run as the coordinator sees it; `quiet`: the clock only went on.
    pub(crate) fn run(&self, coordinator: &Coordinator, quiet: bool) {
        let mut state = self.0.borrow_mut();
        let ledger = coordinator.ledger();
        let Some((lead, _)) = ledger.leader() else { return };
        // A look at thousands of nodes after each of their messages would be all there is time for. What is passed over is
        // seen at the machine's next event; its clock wakes it twice a second.
        let (now, same) =
            (clock::boot(), state.run.as_ref().is_some_and(|run| run.phase == phase(coordinator)));
        let many = state.run.as_ref().is_some_and(|run| run.nodes.len() > FEW);
        let age = now.since(state.looked);
        state.passed |= !quiet;
        if same && many && (!state.passed || age < GATHER_MANY) {
            return;
        }
        (state.looked, state.passed) = (now, false);
        let world = ledger.world();
        let members = world.map_or(&[][..], |w| &w.members);
        let placed: BTreeMap<&NodeName, &Member> = members.iter().map(|m| (&m.node, m)).collect();
        let nodes = coordinator.standing().into_iter().map(|(node, standing)| NodeStatus {
            slot: placed.get(&node).map(|m| m.slot),
            nproc: placed.get(&node).map_or(0, |m| m.nproc),
            state: standing.word().into(),
            node,
        });
        let status = Status {
            v: STATUS_VERSION,
            run: ledger.spec().map(|s| s.run_id.clone()).unwrap_or_default(),
            phase: phase(coordinator),
            since_ms: 0,
            wall_ms: 0,
            term: ledger.term().unwrap_or_default(),
            attempt: ledger.attempt(),
            leader: lead.node.clone(),
            pid: u32::try_from(state.agent.pid).unwrap_or(0),
            world_size: world.map_or(0, |w| rendezvous::world_size(&w.members)),
            restarts: ledger.charged(),
            max_restarts: ledger.spec().and_then(|s| s.max_restarts),
            incident: ledger.next_incident().checked_sub(1),
            waiting: coordinator.waits_for(),
            paused: ledger.paused(),
            budgets: budget::all(ledger, clock::now().wall_ms),
            without_progress: ledger.history().without.saturating_add(ledger.history().unknown),
            nodes: nodes.collect(),
            agent_process: Some(state.agent),
            rank_processes: Vec::new(),
            reach: coordinator.store_reach().cloned(),
            ranks: ranks(coordinator),
        };
        // Of thousands of nodes it takes as long as an order to hundreds of them, and those come first.
        let at_once = !many && state.run.as_ref().is_none_or(|run| run.phase != status.phase);
        if at_once {
            state.run = Some(status);
            state.publish();
        } else if state.run.as_ref() != Some(&status) {
            state.run = Some(status);
            self.soon(&mut state);
        }
    }
}

impl State {
    /// Somebody lives. What is over stays as it was written.
    fn sign(&mut self) {
        if let Some(last) = self.last.as_mut().filter(|last| last.phase != Phase::Closed) {
            last.wall_ms = clock::now().wall_ms;
            self.store.status(last.to_bytes());
        }
    }

    /// Writes what is new; steps alone are too young for that for so long.
    fn publish(&mut self) -> Option<Duration> {
        self.pending = false;
        let mut status = self.run.clone()?;
        status.rank_processes = self.processes();
        let now = clock::now().wall_ms;
        if self.last.as_ref().is_none_or(|last| last.phase != status.phase) {
            self.since_ms = now;
        }
        status.since_ms = self.since_ms;
        status.wall_ms = self.last.as_ref().map_or(0, |last| last.wall_ms);
        if self.last.as_ref() == Some(&status) {
            return None;
        }
        // Steps go on all the time: nobody reads them that often.
        let calm =
            |last: &Status| now.saturating_sub(last.wall_ms) < STEPS_MS && status.is_but_for_ranks(last);
        if let Some(last) = self.last.as_ref().filter(|last| calm(last)) {
            let left = STEPS_MS.saturating_sub(now.saturating_sub(last.wall_ms));
            return Some(Duration::from_millis(left.max(1)));
        }
        status.wall_ms = now;
        self.store.status(status.to_bytes());
        self.last = Some(status);
        None
    }

    fn processes(&mut self) -> Vec<RankRef> {
        let mut known = BTreeMap::new();
        let mut all = Vec::with_capacity(self.alive.len());
        for one in &self.alive {
            let Some(pid) = i32::try_from(one.pid).ok().filter(|pid| *pid > 0) else { continue };
            let begun = self.known.get(&pid).copied().or_else(|| procfs::start_time(pid)).unwrap_or(0);
            known.insert(pid, begun);
            all.push(RankRef { rank: one.rank.0, pid, start_time: begun });
        }
        self.known = known;
        all
    }
}

/// Where ranks are; of many those that are farthest behind.
fn ranks(coordinator: &Coordinator) -> Vec<RankStatus> {
    let mut states = coordinator.rank_states();
    if states.len() > MOST_RANKS {
        states.sort_by_key(|state| (std::cmp::Reverse(state.lag), state.rank));
        states.truncate(MOST_RANKS);
    }
    let row = |state: RankState| RankStatus {
        rank: state.rank.0,
        node: state.node,
        step: state.step,
        phase: phase_name(state.phase).to_owned(),
        lag: state.lag,
    };
    states.into_iter().map(row).collect()
}

fn phase(coordinator: &Coordinator) -> Phase {
    match coordinator.phase() {
        Machine::Electing => Phase::Gathering,
        Machine::Gathering if coordinator.ledger().world().is_some() => Phase::Breaking,
        Machine::Gathering => Phase::Gathering,
        Machine::Starting => Phase::Starting,
        Machine::Running => Phase::Running,
        Machine::Ending => Phase::Closing,
        Machine::Closed { .. } | Machine::StoodDown => Phase::Closed,
    }
}
