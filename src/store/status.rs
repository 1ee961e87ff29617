//! What `status.json` and `events.jsonl` hold: written by the agent that coordinates, read from outside.

use serde::{Deserialize, Serialize};

use crate::domain::ids::{Attempt, NodeName, RunId, Slot, Term};
use crate::domain::note::Note;
use crate::domain::policy::budget::Budget;
use crate::domain::torch_store::seen::Reach;

/// The version of `status.json`.
pub const STATUS_VERSION: u32 = 1;

/// What a run is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waits for nodes.
    Gathering,
    /// Ranks are being started.
    Starting,
    /// Every rank runs.
    Running,
    /// A world broke and its ranks are being stopped.
    Breaking,
    /// The run is being ended.
    Closing,
    /// It is over.
    Closed,
    /// Of a newer program.
    #[serde(other)]
    Unknown,
}

/// One node, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeName,
    /// Its place in the world; none for a spare.
    pub slot: Option<Slot>,
    /// Its ranks.
    pub nproc: u32,
    /// `active`, `spare`, `lost`, `evicted`, `dirty`.
    pub state: String,
}

/// The content of `status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// [`STATUS_VERSION`] of the program that wrote it.
    pub v: u32,
    /// The run.
    pub run: RunId,
    /// What it is doing.
    pub phase: Phase,
    /// Since when, unix milliseconds.
    pub since_ms: u64,
    /// When this was written, unix milliseconds.
    pub wall_ms: u64,
    /// The newest term.
    pub term: Term,
    /// The newest attempt.
    pub attempt: Option<Attempt>,
    /// Who coordinates.
    pub leader: NodeName,
    /// The process id of its agent.
    pub pid: u32,
    /// Ranks of the world.
    pub world_size: u32,
    /// Restarts that were charged.
    pub restarts: u32,
    /// The budget, if there is one.
    pub max_restarts: Option<u32>,
    /// The newest incident.
    pub incident: Option<u64>,
    /// What it waits for, one sentence.
    pub waiting: Option<String>,
    /// A person wants nothing to be started.
    #[serde(default)]
    pub paused: bool,
    /// Attempts in a row that failed without known progress.
    #[serde(default)]
    pub without_progress: u32,
    /// What the policy allows, and how much of it is used.
    #[serde(default)]
    pub budgets: Vec<Budget>,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The agent that wrote this, on its node.
    #[serde(default)]
    pub agent_process: Option<ProcessRef>,
    /// The ranks that live on that node.
    #[serde(default)]
    pub rank_processes: Vec<RankRef>,
    /// While some ranks of the attempt came to its rendezvous store and others did not.
    #[serde(default)]
    pub reach: Option<Reach>,
    /// Where ranks are; of many those that are farthest behind.
    #[serde(default)]
    pub ranks: Vec<RankStatus>,
}

/// Where a rank is, as it said last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankStatus {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: NodeName,
    /// The step that is under way.
    pub step: Option<u64>,
    /// What it does.
    pub phase: String,
    /// Steps behind the first.
    pub lag: u64,
}

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRef {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot (`/proc/<pid>/stat`).
    pub start_time: u64,
}

/// A rank that lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankRef {
    /// Its global number.
    pub rank: u32,
    /// Its process number.
    pub pid: i32,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
}

impl Status {
    /// The same as another one, but for where ranks are.
    #[must_use]
    pub fn is_but_for_ranks(&self, other: &Self) -> bool {
        Self { ranks: Vec::new(), wall_ms: 0, ..self.clone() }
            == Self { ranks: Vec::new(), wall_ms: 0, ..other.clone() }
    }

    /// The bytes of `status.json`.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // A struct of numbers and strings has no way to fail.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }
}

/// One line of `events.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// When, unix milliseconds.
    pub wall_ms: u64,
    /// On which node.
    pub node: NodeName,
    /// What is said.
    pub note: Note,
}

impl EventLine {
    /// The line, without a newline.
    #[must_use]
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}
