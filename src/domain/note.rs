//! Explanations: what a machine says of what it does, as data. The driver adds the wall time and makes
//! events, console lines and status of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::{Attempt, Incarnation, NodeName, Op, Rank, Seq, Slot, Term};
use super::record::{Decision, FirstFailure};

/// Why a message or an event was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stale {
    /// Of another term.
    Term,
    /// Of an attempt that is over.
    Attempt,
    /// Of an agent's earlier life.
    Incarnation,
    /// Repeated, or overtaken by a later one.
    Repeated,
    /// The outcome of something that nobody waits for any more.
    Op,
}

/// One explanation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Note {
    /// This coordinator leads.
    Leads {
        /// Its term.
        term: Term,
        /// Its node.
        node: NodeName,
        /// An earlier launch or life of the same run is continued.
        continues: bool,
        /// The next attempt.
        next_attempt: Attempt,
    },
    /// A node was admitted.
    Joined {
        /// The node.
        node: NodeName,
        /// Its agent's life.
        incarnation: Incarnation,
        /// The guardian says that these earlier lives left no rank.
        clean_of: Vec<Incarnation>,
    },
    /// A rank failed and the world breaks.
    RankFailed {
        /// The attempt.
        attempt: Attempt,
        /// The incident.
        incident: u64,
        /// Who failed first, as seen so far.
        first: FirstFailure,
        /// Ranks that are stopped because of it.
        stopped: u32,
    },
    /// The agent of a node died and was started again; its ranks are gone.
    AgentReturned {
        /// The node.
        node: NodeName,
        /// The attempt that broke by it.
        attempt: Attempt,
        /// The incident.
        incident: u64,
    },
    /// A node is lost.
    NodeLost {
        /// The node.
        node: NodeName,
        /// How long nothing was heard.
        silent: Duration,
        /// Its slot, if it had one.
        slot: Option<Slot>,
    },
    /// A process survived SIGKILL.
    NodeDirty {
        /// The node.
        node: NodeName,
        /// Process ids and states.
        survivors: Vec<(u32, char)>,
    },
    /// What is done about an incident.
    Decided {
        /// The incident.
        incident: u64,
        /// The decision.
        decision: Decision,
        /// Which restart this is, from 1.
        restart: u32,
        /// The budget, if there is one.
        max_restarts: Option<u32>,
        /// Why.
        why: Vec<String>,
    },
    /// There are too few nodes.
    WaitingForNodes {
        /// How many are there.
        have: u32,
        /// How many it takes.
        need: u32,
        /// Until when, from now.
        patience: Duration,
    },
    /// Every rank of an attempt runs.
    AttemptRunning {
        /// The attempt.
        attempt: Attempt,
        /// World size.
        ranks: u32,
        /// Nodes in it.
        nodes: u32,
        /// From the first failure on; none for the first world.
        down: Option<Duration>,
        /// Spares left.
        spares: u32,
    },
    /// A node takes a slot from another.
    SlotFilled {
        /// The slot.
        slot: Slot,
        /// Who has it now.
        node: NodeName,
        /// Who had it.
        instead_of: NodeName,
    },
    /// Somebody asked for the end.
    StopRequested {
        /// By this signal.
        signal: u8,
        /// From the terminal.
        terminal: bool,
        /// The sender's process id and user id, if known.
        from: Option<(u32, u32)>,
        /// Ranks that are being stopped.
        ranks: u32,
        /// How long they have.
        grace: Duration,
        /// The second one: they are killed.
        again: bool,
    },
    /// Every rank is gone.
    AllStopped {
        /// How long it took.
        took: Duration,
    },
    /// These nodes do not say that their ranks are gone, and the end does not wait for them any longer.
    NotWaitedFor {
        /// The nodes.
        nodes: Vec<NodeName>,
    },
    /// The run is over.
    Ended {
        /// The exit code.
        code: u8,
        /// One sentence.
        sentence: String,
    },
    /// The store does not answer as it should.
    StoreTrouble {
        /// What it says.
        text: String,
        /// For how long.
        since: Duration,
    },
    /// The store answers again.
    StoreBack {
        /// For how long it did not.
        after: Duration,
    },
    /// An append came back.
    Written {
        /// Its number.
        seq: Seq,
        /// What it cost.
        took: Duration,
    },
    /// Another writer has this number.
    AppendLost {
        /// The number.
        seq: Seq,
    },
    /// This coordinator ends.
    StoodDown {
        /// Why.
        why: String,
    },
    /// Something old came late and changed nothing.
    Dropped {
        /// What was wrong with it.
        stale: Stale,
    },
    /// We slept: nobody is declared lost for one lease.
    Paused {
        /// For how long.
        slept: Duration,
    },
    /// The node's grant ran out: its ranks are killed.
    GrantOver {
        /// The attempt whose ranks they are.
        attempt: Attempt,
    },
    /// A rank was spawned.
    Spawned {
        /// The attempt.
        attempt: Attempt,
        /// The rank.
        rank: Rank,
        /// Its process id.
        pid: u32,
    },
    /// A rank ended.
    RankEnded {
        /// The attempt.
        attempt: Attempt,
        /// The rank.
        rank: Rank,
        /// How, for people.
        how: String,
        /// We stopped it.
        ours: bool,
    },
    /// A signal was handed to the ranks that handle it.
    SignalPassed {
        /// The signal.
        signal: u8,
    },
    /// The agent has no coordinator.
    NoCoordinator {
        /// How long it still looks for one.
        patience: Duration,
    },
    /// It found none.
    GaveUp,
    /// An outcome without a question.
    UnknownOp {
        /// Its number.
        op: Op,
    },
}
