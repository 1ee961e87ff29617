//! Journal records. A decision that starts something is one record, written before it is acted on.
//!
//! Records also travel between nodes in a format without field names: no `flatten`, `untagged` or skipped
//! fields here. A change of shape needs a new `v`.

use serde::{Deserialize, Serialize};

use super::attribution::Verdict;
use super::exit::ExitKind;
use super::ids::{Attempt, Incarnation, NodeName, Rank, Seq, Slot, Term};
use super::ledger::Ledger;
use super::liveness::limits::Learned;
use super::packed;
use super::policy::progress::{Progress, Reached};
use super::policy::restore::Source;
use super::spec::{JobRef, Offer, RunSpec};

/// The version of records that this program writes and can lead from.
pub const RECORD_VERSION: u32 = 1;

/// Who wrote a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    /// Its node.
    pub node: NodeName,
    /// Which life of its agent.
    pub incarnation: Incarnation,
}

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A coordinator leads from here on.
    Lead,
    /// A world is opened.
    Attempt,
    /// Voters change while no attempt is opened.
    Membership,
    /// The settled verdict of an incident.
    Incident,
    /// A node is kept out.
    Evict,
    /// The run is over.
    End,
    /// Everything that the journal said so far.
    Snapshot,
    /// Of a newer program: may be followed, never led from.
    Unknown,
    /// How long things usually take.
    Limits,
    /// A person's order.
    Order,
}

/// One journal record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the shape.
    pub v: u32,
    /// Its number.
    pub seq: Seq,
    /// What it is about.
    pub kind: Kind,
    /// The term of its writer.
    pub term: Term,
    /// The attempt that was current when it was written (for `attempt`: the one it opens).
    pub attempt: Attempt,
    /// Who wrote it.
    pub writer: Writer,
    /// Random: tells the writer's own record from another's after an append of unknown outcome.
    pub nonce: u64,
    /// When, unix milliseconds of the writer.
    pub wall_ms: u64,
    /// Why, for people; never empty.
    pub why: Vec<String>,
    /// The content.
    pub body: Body,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// See [`Lead`].
    Lead(Lead),
    /// See [`AttemptBody`].
    Attempt(AttemptBody),
    /// See [`Membership`].
    Membership(Membership),
    /// See [`Incident`].
    Incident(Incident),
    /// See [`Evict`].
    Evict(Evict),
    /// See [`End`].
    End(End),
    /// The ledger with this record in it: a reader that begins here needs none before it.
    Snapshot(Box<Ledger>),
    /// A kind or version of a newer program.
    Unknown,
    /// See [`Learned`].
    Limits(Box<Learned>),
    /// See [`Ordered`].
    Order(Ordered),
}

impl Body {
    /// The kind that goes with this content.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Lead(_) => Kind::Lead,
            Self::Attempt(_) => Kind::Attempt,
            Self::Membership(_) => Kind::Membership,
            Self::Incident(_) => Kind::Incident,
            Self::Evict(_) => Kind::Evict,
            Self::End(_) => Kind::End,
            Self::Snapshot(_) => Kind::Snapshot,
            Self::Unknown => Kind::Unknown,
            Self::Limits(_) => Kind::Limits,
            Self::Order(_) => Kind::Order,
        }
    }
}

/// On what ground a coordinator leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ground {
    /// A launch: nobody leads, or the run had ended, or its job is over.
    First,
    /// The agent of the coordinator died and its guardian started it again.
    Returned,
}

/// A coordinator leads from this record on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lead {
    /// Its node.
    pub node: NodeName,
    /// Where it listens; empty in a world of one node.
    pub addresses: Vec<String>,
    /// The Slurm job, if any.
    pub job: Option<JobRef>,
    /// The same for every process of one launch (see [`super::spec::LaunchPlace`]), and of no other.
    #[serde(default)]
    pub launch: String,
    /// Who votes, in order.
    #[serde(with = "packed::names")]
    pub voters: Vec<NodeName>,
    /// On what ground.
    pub ground: Ground,
    /// What is run; in the first `lead` of a launch.
    pub spec: Option<RunSpec>,
}

/// One node of a world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its place.
    pub slot: Slot,
    /// The node.
    pub node: NodeName,
    /// The life of its agent that was admitted.
    pub incarnation: Incarnation,
    /// Its ranks.
    pub nproc: u32,
    /// Where its ranks' logs lie.
    pub log_dir: String,
    /// `ROLE_NAME` of its ranks; empty: that of the run.
    #[serde(default)]
    pub role: String,
}

/// Where to resume: generations of earlier attempts beyond it are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resume {
    /// The attempt that saved it.
    pub attempt: Attempt,
    /// Its step.
    pub step: u64,
}

/// A world is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptBody {
    /// Its nodes, by slot.
    #[serde(with = "packed::members")]
    pub members: Vec<Member>,
    /// Nodes that wait.
    #[serde(with = "packed::names")]
    pub spares: Vec<NodeName>,
    /// Who votes from here on, in order.
    #[serde(with = "packed::names")]
    pub voters: Vec<NodeName>,
    /// Where the rendezvous store is hosted.
    pub master: Offer,
    /// From where, once checkpoints are known.
    pub resume: Option<Resume>,
    /// Why there is a new world.
    pub cause: Cause,
}

/// Why a world is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The first world of a launch.
    Start,
    /// The world before broke.
    Incident(Box<Break>),
}

/// How a world broke, as seen when the next one was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Break {
    /// Number of the incident, from 0 in each run.
    pub incident: u64,
    /// The attempt that broke.
    pub attempt: Attempt,
    /// How long its ranks ran, in milliseconds; 0 if they never did.
    pub ran_ms: u64,
    /// The first failure as seen so far; none when a node or an agent was lost.
    pub first_failure: Option<FirstFailure>,
    /// Nodes that were lost.
    pub lost: Vec<NodeName>,
    /// The decision.
    pub decision: Decision,
    /// It counts against `--max-restarts`.
    pub charged: bool,
    /// Whose fault it was, as far as it could be told by then.
    #[serde(default)]
    pub verdict: Verdict,
    /// The slot of the node of the first failure.
    #[serde(default)]
    pub slot: Option<Slot>,
    /// How far its ranks came.
    #[serde(default)]
    pub reached: Reached,
    /// Whether that is progress.
    #[serde(default)]
    pub progress: Progress,
    /// So long nothing was started, in milliseconds.
    #[serde(default)]
    pub wait_ms: u64,
    /// From where is restored, where that changes.
    #[serde(default)]
    pub source: Option<Source>,
    /// The failure followed its slot to another node: what it is known by.
    #[serde(default)]
    pub followed: Option<String>,
}

/// What is done about an incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The same nodes again.
    Restart,
    /// Spares take the slots of these nodes.
    Replace {
        /// The nodes that are left out.
        nodes: Vec<NodeName>,
    },
    /// The run ends.
    Stop {
        /// Its exit code.
        code: u8,
    },
    /// The world goes on smaller, without these nodes.
    Shrink {
        /// The nodes that are left out.
        nodes: Vec<NodeName>,
    },
}

/// The rank that failed first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstFailure {
    /// The rank.
    pub rank: Rank,
    /// Its local rank.
    pub local_rank: u32,
    /// Its node.
    pub node: NodeName,
    /// Its process id, 0 if it never ran.
    pub pid: u32,
    /// How it ended.
    pub exit: ExitKind,
    /// When, unix milliseconds of the coordinator.
    pub wall_ms: u64,
    /// One line: what it died of.
    pub summary: String,
    /// Traceback or last lines, at most 8 KiB.
    pub words: String,
    /// Its error file, on its node; empty if it left none that can be read.
    #[serde(default)]
    pub error_file: String,
    /// When it failed by that file, unix seconds of its node.
    #[serde(default)]
    pub recorded_s: Option<u64>,
}

impl FirstFailure {
    /// `rank 2 (n01) died: SIGKILL`: rank, node and evidence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let evidence = if self.summary.is_empty() { self.exit.evidence("") } else { self.summary.clone() };
        format!("rank {} ({}) {evidence}", self.rank, self.node)
    }

    /// As [`sentence`](Self::sentence), with the exit code where the evidence does not tell it.
    #[must_use]
    pub fn sentence_with_exit(&self) -> String {
        let (sentence, exit) = (self.sentence(), self.exit.to_string());
        if sentence.contains(&exit) { sentence } else { format!("{sentence} ({exit})") }
    }
}

/// A rank that ended because of somebody else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Victim {
    /// The rank.
    pub rank: Rank,
    /// Its node.
    pub node: NodeName,
    /// How it ended.
    pub exit: ExitKind,
    /// We stopped it.
    pub ours: bool,
}

/// The settled verdict: can only add to what the `attempt` record says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incident {
    /// Its number.
    pub incident: u64,
    /// The attempt that broke.
    pub attempt: Attempt,
    /// The rank that failed first.
    pub first_failure: Option<FirstFailure>,
    /// Nodes that were lost.
    pub lost: Vec<NodeName>,
    /// Everybody else, by rank.
    pub victims: Vec<Victim>,
    /// Those of them that ended by themselves, in the order of their ends and without their words; the first
    /// [`MAX_OTHERS`].
    #[serde(default)]
    pub others: Vec<FirstFailure>,
    /// What was decided.
    pub decision: Decision,
    /// First failure to all ranks gone, in milliseconds.
    pub stopped_ms: u64,
    /// First failure to the next world running, in milliseconds; none when there is none.
    pub running_ms: Option<u64>,
    /// Whose fault it was.
    #[serde(default)]
    pub verdict: Verdict,
}

/// The longest [`Incident::others`].
pub const MAX_OTHERS: usize = 4;

impl Incident {
    /// How many ranks the node of the first failure had, if there were several and all of them died by
    /// themselves and alike.
    #[must_use]
    pub fn whole_node(&self) -> Option<usize> {
        let first = self.first_failure.as_ref()?;
        let mut others = self.victims.iter().filter(|v| v.node == first.node).peekable();
        others.peek()?;
        let mut count = 1;
        for victim in others {
            if victim.ours || victim.exit != first.exit {
                return None;
            }
            count += 1;
        }
        matches!(first.exit, ExitKind::Signal { .. }).then_some(count)
    }
}

/// Voters change while no attempt is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// The voters from here on, in order.
    #[serde(with = "packed::names")]
    pub voters: Vec<NodeName>,
    /// Who left them.
    pub removed: Vec<NodeName>,
    /// Who came.
    pub added: Vec<NodeName>,
}

/// A node is kept out of every world, or given back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evict {
    /// The node.
    pub node: NodeName,
    /// Why.
    pub reason: String,
    /// Unix milliseconds until which; none: for the rest of the run.
    pub until_ms: Option<u64>,
    /// It is given back: what was said against it does not hold.
    #[serde(default)]
    pub back: bool,
    /// No person asked for it: it counts against the breaker.
    #[serde(default)]
    pub inferred: bool,
    /// The slot that it had.
    #[serde(default)]
    pub slot: Option<Slot>,
    /// What failed there; empty: it does not matter.
    #[serde(default)]
    pub root: String,
}

/// What a person asks of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// What runs goes on; nothing is started after a failure.
    Pause,
    /// That is over.
    Resume,
    /// Stop all ranks and start them again.
    Restart,
    /// Take this node out.
    Evict {
        /// The node.
        node: NodeName,
    },
    /// End the run.
    Stop,
}

/// An order, written before it is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ordered {
    /// What.
    pub order: Order,
    /// Why, in the person's own words.
    pub reason: String,
    /// Who: `user@host`.
    pub by: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every rank ended with 0.
    Finished,
    /// It cannot go on.
    Failed,
    /// Somebody asked for its end.
    Stopped,
}

/// The run is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// How.
    pub outcome: Outcome,
    /// The exit code of every agent.
    pub code: u8,
    /// The job should be requeued.
    pub requeue: bool,
    /// The incident that ended it, if one did.
    pub incident: Option<u64>,
    /// One sentence for people.
    pub sentence: String,
}
