//! Messages between agents and the coordinator.
//!
//! To an agent: `{term, n, msg}`; a lower term is dropped, a higher one promised. To the coordinator:
//! `{term, incarnation, n, msg}`; another term or a stale incarnation is dropped. Messages about a world name
//! their attempt.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::attribution::evidence::Evidence;
use super::board::Request;
use super::error_file::Recorded;
use super::exit::ExitKind;
use super::health::CheckResult;
use super::ids::{Attempt, Incarnation, LocalRank, NodeName, Seq, StoreId, Term};
use super::liveness::evidence::RankEvidence;
use super::liveness::limits::Learned;
use super::liveness::watch::{Back, RankProgress, Silence};
use super::packed;
use super::policy::JobWord;
use super::record::{Member, Ordered, Record, Resume};
use super::spec::{NodeSpec, Offer, RunSpec};
use super::time::BootTime;
use super::told::Difference;
use super::torch_store::seen::Reach;

/// The number that both ends must have. Any change of a message is a new one.
pub const PROTOCOL: u32 = 6;

/// A frame to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToAgent {
    /// The sender's term.
    pub term: Term,
    /// Counts the frames of this term to this agent, from 0; a repeated or older one is dropped.
    pub n: u64,
    /// The message.
    pub msg: AgentMsg,
}

/// A frame to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToCoordinator {
    /// The term that the sender has promised; `None` before its first `Welcome`.
    pub term: Option<Term>,
    /// The sender's life.
    pub incarnation: Incarnation,
    /// Counts the frames of this incarnation, from 0; a repeated or older one is dropped.
    pub n: u64,
    /// The message.
    pub msg: CoordinatorMsg,
}

/// A whole world, as every rank of it must see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct World {
    /// Its nodes, by slot.
    #[serde(with = "packed::members")]
    pub members: Vec<Member>,
    /// Where the rendezvous store is hosted.
    pub master: Offer,
    /// From where to resume.
    pub resume: Option<Resume>,
    /// From which addresses the ranks of each member may come, in the order of `members`; what is not known is
    /// empty, and all of it for others than the first member, which hosts their store.
    pub addresses: Vec<Vec<String>>,
}

/// How the ranks of a node are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// The first signal, to the leader of each rank; TERM unless a person sent another.
    pub signal: u8,
    /// From the first signal to KILL, in milliseconds; 0 kills at once.
    pub grace_ms: u64,
}

/// Why ranks are stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopWhy {
    /// A world broke and another follows.
    Restart,
    /// The run ends.
    End,
}

/// Why an agent is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedWhy {
    /// The run has ended; its exit code.
    Ended(u8),
    /// This node reads another directory under the same name.
    OtherStore,
    /// The node is kept out of this run.
    Evicted,
    /// Another machine calls itself the same.
    SameName,
    /// This machine was told another run.
    Differs {
        /// What differs.
        what: Difference,
        /// Who leads.
        leader: NodeName,
    },
}

/// Coordinator to agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AgentMsg {
    /// Admitted.
    Welcome {
        /// The number of the `Join` that is answered.
        answers: u64,
        /// The id of the coordinator's run directory: another one is another run.
        store: Option<StoreId>,
        /// What is run.
        spec: Box<RunSpec>,
        /// The life of the coordinator's agent.
        leader: Incarnation,
        /// Earlier lives of it that its guardian vouches to be dead: votes for them are free.
        dead: Vec<Incarnation>,
        /// Grants last for ever: a world of one node without a spare.
        forever: bool,
        /// Every record that the agent has not read, in order.
        tail: Vec<Arc<Record>>,
    },
    /// Not admitted.
    Refused(RefusedWhy),
    /// Spawn the ranks of this attempt.
    Start {
        /// The attempt.
        attempt: Attempt,
        /// The life of the agent that is a member.
        life: Incarnation,
        /// The whole world.
        world: Arc<World>,
    },
    /// Stop the ranks of this attempt and of any before it.
    Stop {
        /// The attempt.
        attempt: Attempt,
        /// How.
        order: StopOrder,
        /// Why.
        why: StopWhy,
    },
    /// A record was written.
    Committed(Arc<Record>),
    /// Can you reach this node?
    TryReach {
        /// The node.
        node: NodeName,
        /// Where its agent listens, `address:port`.
        address: String,
    },
    /// Pass this signal on to the ranks that handle it.
    PassOn {
        /// The signal.
        signal: u8,
    },
    /// Make this file, exclusively, among the probes of the run directory.
    Probe {
        /// Its name.
        name: String,
    },
    /// The run is over for this agent.
    Finish {
        /// Its exit code.
        code: u8,
    },
    /// Collect what can be known of the ranks of this attempt; answered by `Inspected`.
    Inspect {
        /// The attempt.
        attempt: Attempt,
        /// Comes back with the answer.
        id: u64,
    },
    /// The node is taken out of the run: its agent stops what it has and goes.
    Evicted {
        /// Why.
        why: String,
    },
    /// Look at this node, and ask the user's programs about it, once no ranks are left; answered by `Health`.
    Check {
        /// The attempt that waits for it.
        attempt: Attempt,
    },
}

/// One rank's end, as its agent reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// Its local rank.
    pub local_rank: LocalRank,
    /// Its process id, 0 if it never ran.
    pub pid: u32,
    /// How.
    pub exit: ExitKind,
    /// The agent's own kill ledger explains it.
    pub ours: bool,
    /// When, on the clock of the agent's machine: worth something only in its own process.
    pub at: BootTime,
    /// How long before this message was made, in milliseconds.
    pub ago_ms: u64,
    /// One line: what it died of; empty when it said nothing.
    pub summary: String,
    /// Traceback or last lines, at most 8 KiB.
    pub words: String,
    /// It left an error file that can be read.
    pub recorded: Option<Recorded>,
    /// What its end is worth.
    pub evidence: Evidence,
}

/// A process that survived SIGKILL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Survivor {
    /// Its process id.
    pub pid: u32,
    /// Its state letter in `/proc/<pid>/stat`.
    pub state: char,
}

/// Agent to coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoordinatorMsg {
    /// Wants to be a member.
    Join {
        /// What the node brings.
        spec: Box<NodeSpec>,
        /// Where it could host the store; none while it is being made.
        offer: Option<Offer>,
        /// The store id that it reads; none when it has not looked.
        store: Option<StoreId>,
        /// What the coordinator's hint says, if this node can read it.
        proof: Option<u64>,
        /// The guardian's word: no rank of these earlier lives is left on the node.
        clean_of: Vec<Incarnation>,
        /// The newest attempt whose ranks may still live here.
        running: Option<Attempt>,
        /// The next record that the agent has not read.
        next: Seq,
        /// What survived the last sweep.
        survivors: Vec<Survivor>,
    },
    /// All ranks of the attempt run.
    Started(Attempt),
    /// Ranks ended, not all of them with 0 or not all of them yet. Repeats earlier ends of the same attempt.
    Exited {
        /// The attempt.
        attempt: Attempt,
        /// The ends so far.
        exits: Vec<ExitReport>,
    },
    /// No rank of this attempt or of any before it is left.
    Stopped {
        /// The attempt.
        attempt: Attempt,
        /// All ends.
        exits: Vec<ExitReport>,
        /// What survived SIGKILL.
        survivors: Vec<Survivor>,
        /// Where the next rank 0 could host the store.
        offer: Option<Offer>,
    },
    /// Every rank of the attempt ended with 0 and nothing is left.
    Finished {
        /// The attempt.
        attempt: Attempt,
        /// All ends.
        exits: Vec<ExitReport>,
    },
    /// An answer to `TryReach`.
    Reach {
        /// Who was tried.
        node: NodeName,
        /// Whether it answered.
        ok: bool,
    },
    /// An answer to `Probe`.
    Probed {
        /// The file.
        name: String,
        /// This node made it; else it was there.
        won: bool,
    },
    /// Somebody asked this node for the end of the run.
    Signal {
        /// The signal.
        signal: u8,
        /// It came from the terminal.
        terminal: bool,
        /// The sender's process id, if known.
        pid: Option<u32>,
        /// The sender's user id, if known.
        uid: Option<u32>,
        /// The second one: do not wait.
        again: bool,
    },
    /// How far the ranks of an attempt came with their start, as its store sees it.
    Store {
        /// The attempt.
        attempt: Attempt,
        /// Who came.
        reach: Reach,
    },
    /// A fresh offer.
    Offered(Offer),
    /// The agent goes.
    Leaving,
    /// Ranks are silent beyond a limit.
    Silent {
        /// The attempt.
        attempt: Attempt,
        /// Which ones.
        silent: Vec<Silence>,
    },
    /// Ranks of those go on.
    Back {
        /// The attempt.
        attempt: Attempt,
        /// Which ones.
        back: Vec<Back>,
    },
    /// Where ranks are whose pages changed; at most once a second.
    Progress {
        /// The attempt.
        attempt: Attempt,
        /// Ranks of this node.
        ranks: Vec<RankProgress>,
        /// What this node has learned of their times, when that has changed.
        learned: Option<Box<Learned>>,
    },
    /// An answer to `Inspect`.
    Inspected {
        /// The attempt.
        attempt: Attempt,
        /// From the question.
        id: u64,
        /// What was collected.
        ranks: Vec<RankEvidence>,
        /// Nothing more comes; else it is a first glance that shows something.
        whole: bool,
    },
    /// A rank asks for something.
    Asked {
        /// The attempt.
        attempt: Attempt,
        /// Which one.
        local_rank: LocalRank,
        /// For what.
        request: Request,
    },
    /// A signal that warns came to this node, and was none of ours.
    Heard {
        /// The signal.
        signal: u8,
    },
    /// What checks of this node found.
    Health {
        /// The attempt that waits for it; none: nobody asked, and somebody should hear of it.
        attempt: Option<Attempt>,
        /// The checks.
        results: Vec<CheckResult>,
    },
}

/// Agent to coordinator on the beat connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// The sender's life.
    pub incarnation: Incarnation,
    /// The term that the sender has promised.
    pub term: Term,
    /// Counts beats, from 1.
    pub n: u64,
    /// The tick of the control thread's event loop: one that stands still for 3 s is no life.
    pub tick: u64,
    /// The newest acknowledgement that was received.
    pub echo: Option<u64>,
}

/// Coordinator to agent on the beat connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The coordinator's term.
    pub term: Term,
    /// The life of the coordinator's agent.
    pub leader: Incarnation,
    /// Counts acknowledgements, from 1.
    pub ack: u64,
    /// The beat that is answered.
    pub n: u64,
    /// The rest of the coordinator's authority, in milliseconds, at the send of this acknowledgement.
    pub remaining_ms: u64,
    /// The coordinator's wall clock, unix milliseconds: tells how far another one is off, and nothing goes by it.
    pub wall_ms: u64,
}

/// Supervisor to coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSupervisor {
    /// The supervisor is there. The first message of each session.
    Attach,
    /// Somebody signalled the batch step.
    Signal {
        /// The signal.
        signal: u8,
        /// It came from a terminal.
        terminal: bool,
        /// The second one: do not wait.
        again: bool,
    },
    /// The task that ran the agent of this node has ended.
    AgentEnded {
        /// The node.
        node: NodeName,
        /// Its exit code, as srun tells it.
        rc: i32,
    },
    /// The answer to [`ToSupervisor::AskJob`].
    Job(JobWord),
}

/// Coordinator to supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSupervisor {
    /// Start an agent on this node again; repeated until it joined.
    StartAgent {
        /// The node.
        node: NodeName,
    },
    /// The run is over.
    Finish {
        /// Its exit code.
        code: u8,
        /// The job should be requeued.
        requeue: bool,
    },
    /// What does Slurm mean to do with the job? Agents in a container cannot ask.
    AskJob,
}

/// A person's command to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FromOperator {
    /// What, why and who.
    pub ordered: Ordered,
}

/// Coordinator to a person's command: one answer, then the session ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToOperator {
    /// It is written, and what follows.
    Done {
        /// One sentence.
        sentence: String,
    },
    /// It is not done.
    Refused {
        /// One sentence.
        sentence: String,
    },
}
