//! What `status.json` says now: from the coordinator's machine and the ranks of this node.

use std::cell::RefCell;
use std::rc::Rc;

use super::store::StoreLine;
use crate::domain::agent::Agent;
use crate::domain::coordinator::{Coordinator, Phase as Machine};
use crate::domain::rendezvous;
use crate::store::status::{NodeStatus, Phase, ProcessRef, RankRef, STATUS_VERSION, Status};
use crate::sys::{clock, process, procfs};

struct State {
    store: StoreLine,
    last: Option<Status>,
    ranks: Vec<RankRef>,
    agent: ProcessRef,
    since_ms: u64,
}

/// Publishes the status whenever it differs from the last one.
#[derive(Clone)]
pub(crate) struct Board(Rc<RefCell<State>>);

impl Board {
    pub(crate) fn new(store: StoreLine) -> Self {
        let pid = process::own_pid();
        let agent = ProcessRef { pid, start_time: procfs::start_time(pid).unwrap_or(0) };
        let since_ms = clock::now().wall_ms;
        Self(Rc::new(RefCell::new(State { store, last: None, ranks: Vec::new(), agent, since_ms })))
    }

    /// The ranks of this node.
    pub(crate) fn ranks(&self, agent: &Agent) {
        let mut state = self.0.borrow_mut();
        let alive = agent.alive().map(|(_, ranks)| ranks).unwrap_or_default();
        let same = alive.len() == state.ranks.len()
            && alive.iter().zip(&state.ranks).all(|(a, b)| i64::from(a.pid) == i64::from(b.pid));
        if same {
            return;
        }
        state.ranks = alive
            .iter()
            .filter_map(|one| {
                let pid = i32::try_from(one.pid).ok().filter(|pid| *pid > 0)?;
                Some(RankRef { rank: one.rank.0, pid, start_time: procfs::start_time(pid).unwrap_or(0) })
            })
            .collect();
        if let Some(mut status) = state.last.clone() {
            status.rank_processes = state.ranks.clone();
            state.publish(status);
        }
    }

    /// The run as the coordinator sees it.
    pub(crate) fn run(&self, coordinator: &Coordinator) {
        let mut state = self.0.borrow_mut();
        let ledger = coordinator.ledger();
        let Some((lead, _)) = ledger.leader() else { return };
        let world = ledger.world();
        let present = coordinator.present();
        let nodes = present.iter().map(|node| NodeStatus {
            node: node.clone(),
            slot: ledger.slot(node),
            nproc: ledger.member(node).map_or(0, |m| m.nproc),
            state: if ledger.slot(node).is_some() { "active".into() } else { "spare".into() },
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
            waiting: None,
            nodes: nodes.collect(),
            agent_process: Some(state.agent),
            rank_processes: state.ranks.clone(),
        };
        state.publish(status);
    }
}

impl State {
    fn publish(&mut self, mut status: Status) {
        let now = clock::now().wall_ms;
        if self.last.as_ref().is_none_or(|last| last.phase != status.phase) {
            self.since_ms = now;
        }
        status.since_ms = self.since_ms;
        status.wall_ms = self.last.as_ref().map_or(0, |last| last.wall_ms);
        if self.last.as_ref() == Some(&status) {
            return;
        }
        status.wall_ms = now;
        self.store.status(status.to_bytes());
        self.last = Some(status);
    }
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
