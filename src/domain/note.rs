//! Explanations: what a machine says of what it does, as data. The driver adds the wall time and makes
//! events, console lines and status of them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::board::Request;
use super::health::CheckResult;
use super::ids::{Attempt, Incarnation, NodeName, Op, Rank, Seq, Slot, Term};
use super::liveness::limits::Place;
use super::record::{Decision, FirstFailure, Ordered};
use super::told::Difference;
use super::torch_store::seen::Reach;
use super::wire::RefusedWhy;

/// What a store says begins with this where something lies in the place of the next record that is no record.
pub const DAMAGED: &str = "the journal is damaged: ";

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

/// What confirms that a node is lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// Its silence alone, for the whole time.
    Silence,
    /// Its connection was closed and not opened again.
    Closed,
    /// The supervisor says that its task ended.
    TaskEnded,
    /// Others cannot reach it either.
    Unreachable {
        /// They.
        from: Vec<NodeName>,
    },
}

/// Why a slot goes to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replaced {
    /// It is lost.
    Lost,
    /// A process of an earlier attempt survived SIGKILL there.
    Dirty,
    /// It failed first in two attempts running.
    FailedTwice,
    /// Its agent is not there.
    Away,
    /// It was taken out of the run.
    Evicted,
}

/// Why an agent has no place with a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoPlace {
    /// It leads another run than the one before.
    OtherRun,
    /// Another machine has this one's name.
    SameName {
        /// The name.
        node: NodeName,
    },
    /// It was told another run.
    Differs {
        /// What differs.
        what: Difference,
        /// Who leads.
        leader: NodeName,
    },
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
        /// How far the same failure goes, in words; empty: no further.
        #[serde(default)]
        spread: String,
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
    /// The grant of a node ran out while its agent did not answer: its ranks are gone.
    GrantRanOut {
        /// The node.
        node: NodeName,
        /// The attempt that broke by it.
        attempt: Attempt,
        /// The incident.
        incident: u64,
        /// It is the coordinator's own: too few of the others answered.
        #[serde(default)]
        own: bool,
    },
    /// Nothing was heard of a node for a while: peers are asked whether they reach it.
    InDoubt {
        /// The node.
        node: NodeName,
        /// For how long.
        silent: Duration,
    },
    /// Beats of a node came late, and it goes on.
    BeatsLate {
        /// The node.
        node: NodeName,
        /// How long nothing was heard.
        silent: Duration,
    },
    /// A node is lost.
    NodeLost {
        /// The node.
        node: NodeName,
        /// How long nothing was heard.
        silent: Duration,
        /// Its slot in the newest world, or in the one that broke; none: it was a spare.
        slot: Option<Slot>,
        /// What confirms it.
        sign: Sign,
    },
    /// A node that was lost, or whose agent was gone, is there again.
    NodeBack {
        /// The node.
        node: NodeName,
        /// It waits as a spare.
        spare: bool,
    },
    /// A node does not know what the coordinator has written into the run directory.
    Unproven {
        /// The node.
        node: NodeName,
    },
    /// Two nodes made one file, or neither could: the file system of the run directory decides nothing.
    NotExclusive {
        /// Who tried.
        nodes: [NodeName; 2],
        /// Both made it; else neither did.
        both: bool,
    },
    /// The first nodes of the launch did not answer: another one leads.
    PassedOver {
        /// Those before it in the list.
        nodes: Vec<NodeName>,
        /// Who leads.
        leads: NodeName,
    },
    /// An agent was not admitted.
    Refused {
        /// Its node.
        node: NodeName,
        /// Why.
        why: RefusedWhy,
    },
    /// The supervisor is asked for an agent.
    AgentWanted {
        /// On this node.
        node: NodeName,
    },
    /// The task that ran the agent of a node has ended.
    TaskEnded {
        /// The node.
        node: NodeName,
        /// Its exit code.
        rc: i32,
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
        /// How many restarts count so far, with this one if it does.
        restart: u32,
        /// This one counts; events of an older program do not say so.
        #[serde(default = "yes")]
        charged: bool,
        /// The budget, if there is one.
        max_restarts: Option<u32>,
        /// So long nothing is started, in milliseconds.
        #[serde(default)]
        wait_ms: u64,
        /// Nodes wait that the next world has room for.
        #[serde(default)]
        grows: bool,
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
        /// Nodes of the world before that are not there.
        missing: Vec<NodeName>,
    },
    /// There are enough nodes for a world, and more are waited for.
    LastCall {
        /// How many are there.
        have: u32,
        /// How many a full world has.
        max: u32,
        /// Until when, from now.
        patience: Duration,
        /// Nodes of the world before that are not there; none before the first world.
        missing: Vec<NodeName>,
    },
    /// A world is opened that has more or fewer nodes than the one before, or a first one that is not full.
    Resized {
        /// Its nodes.
        nodes: u32,
        /// Nodes of a full world.
        max: u32,
        /// Its ranks.
        ranks: u32,
        /// Nodes of the world before; none: it is the first.
        was: Option<u32>,
        /// Who is not in it; for a first world: who has not come.
        missing: Vec<NodeName>,
        /// Who is new in it.
        came: Vec<NodeName>,
    },
    /// A node came while a world runs that has room for it: it is taken in at the next restart.
    CameLate {
        /// The node.
        node: NodeName,
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
        /// Why not the same one.
        why: Replaced,
        /// Which of how many spares it was, counted from 1.
        spare: (u32, u32),
        /// Its first and its last rank.
        ranks: (Rank, Rank),
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
        /// A world runs meanwhile; events of an older program do not say so.
        #[serde(default = "yes")]
        runs: bool,
    },
    /// The store answers again.
    StoreBack {
        /// For how long it did not.
        after: Duration,
    },
    /// Some ranks of an attempt reached its store and others did not for a long time.
    StoreLate {
        /// The attempt.
        attempt: Attempt,
        /// Who is missing.
        reach: Reach,
        /// Since the first one came.
        since: Duration,
    },
    /// The ranks' rendezvous store on this node has something to say.
    RendezvousStore {
        /// What, as a sentence.
        said: String,
    },
    /// A file of the ranks' output cannot be written; the console and other files go on.
    LogsDisabled {
        /// Which, the first of its kind.
        path: String,
        /// The kernel's error number.
        errno: i32,
    },
    /// Output of ranks that is in no file, as no file could be written.
    LogsLost {
        /// Of this node, since the start of this agent.
        bytes: u64,
    },
    /// What an agent says of its own, in words.
    Said {
        /// The sentence.
        text: String,
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
    /// The node that led is gone and the grant with it.
    LeaderGone {
        /// The node.
        leader: NodeName,
        /// How long nothing was heard.
        silent: Duration,
        /// How long it is still looked for.
        patience: Duration,
        /// This agent tells people, as one of all.
        speaks: bool,
    },
    /// An agent leaves: it has no place with the coordinator that it found.
    NoPlace {
        /// Why.
        why: NoPlace,
    },
    /// It found none.
    GaveUp {
        /// The node that led, if one did.
        leader: Option<NodeName>,
        /// It is the first of the voters.
        first: bool,
        /// How long nothing was heard.
        silent: Duration,
        /// This agent tells people, as one of all.
        speaks: bool,
    },
    /// An outcome without a question.
    UnknownOp {
        /// Its number.
        op: Op,
    },
    /// A rank is silent beyond a limit: it is looked into.
    Suspected {
        /// The attempt.
        attempt: Attempt,
        /// The rank.
        rank: Rank,
        /// Its node.
        node: NodeName,
        /// So is every other rank, or nearly so.
        everybody: bool,
        /// For how long.
        silent: Duration,
        /// How long a step usually takes.
        usual: Option<Duration>,
        /// The limit.
        limit: Duration,
        /// Somebody gave it.
        explicit: bool,
        /// What it did last.
        place: Place,
        /// At which step.
        step: Option<u64>,
    },
    /// What a look into a silence brought.
    HangFound {
        /// The attempt.
        attempt: Attempt,
        /// The incident, where the world ends by it.
        incident: Option<u64>,
        /// Who waits for whom.
        sentence: String,
        /// Where stacks lie, relative to the run directory.
        dir: String,
        /// What follows, where the world does not end by it.
        next: String,
    },
    /// A rank that was silent goes on, and no other is silent any more.
    GoesOn {
        /// The attempt.
        attempt: Attempt,
        /// The rank.
        rank: Rank,
        /// Its node.
        node: NodeName,
        /// How long it was silent.
        silent: Duration,
    },
    /// A rank asks for something.
    RankAsks {
        /// The rank.
        rank: Rank,
        /// Its node.
        node: NodeName,
        /// For what.
        request: Request,
    },
    /// A node is taken out of the run, or given back.
    Evicted {
        /// The node.
        node: NodeName,
        /// Why.
        reason: String,
        /// It is given back.
        back: bool,
    },
    /// What was asked for is not done.
    KeptIn {
        /// The node.
        node: NodeName,
        /// Why not.
        why: String,
    },
    /// A person gave an order.
    Ordered {
        /// What.
        ordered: Ordered,
    },
    /// A world is held back, because a person paused the run.
    HeldBack,
    /// The agent of this node goes, because the node was taken out.
    TakenOut {
        /// Why.
        why: String,
    },
    /// Checks of a node found something.
    Unhealthy {
        /// The node.
        node: NodeName,
        /// What did not simply pass.
        results: Vec<CheckResult>,
    },
    /// Nodes fail a check and are taken all the same.
    NoneBlamed {
        /// They.
        nodes: Vec<NodeName>,
        /// Of so many.
        of: u32,
        /// Too many fail together; else nobody could take their place.
        together: bool,
    },
    /// Two machines have the script in two versions.
    OtherScript {
        /// One of them.
        node: NodeName,
        /// The other, which leads.
        leader: NodeName,
    },
}

fn yes() -> bool {
    true
}

impl Note {
    /// An agent that follows puts this down where it is found when nobody leads any more.
    #[must_use]
    pub fn is_of_an_agent(&self) -> bool {
        self.is_for_people() || matches!(self, Self::GaveUp { .. } | Self::LeaderGone { .. })
    }

    /// An agent speaks to people only where no coordinator can, as one of all, and of its own files.
    #[must_use]
    pub fn is_for_people(&self) -> bool {
        matches!(
            self,
            Self::GaveUp { speaks: true, .. }
                | Self::NoPlace { .. }
                | Self::LeaderGone { speaks: true, .. }
                | Self::LogsDisabled { .. }
                | Self::RendezvousStore { .. }
                | Self::LogsLost { .. }
        )
    }
}
