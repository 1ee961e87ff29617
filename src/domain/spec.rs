//! What is run: run-wide ([`RunSpec`], bound by the coordinator, in the first `lead` record) and per node
//! ([`NodeSpec`], each node's own, sent when it joins).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::health::HealthSpec;
use super::ids::{NodeName, RunId};
use super::liveness::limits::HangSpec;
use super::told::{Told, digest};

/// How the program is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProgramKind {
    /// `python -u script.py args…`
    #[default]
    Script,
    /// `python -u -m package.module args…`
    Module,
    /// `program args…`, found on PATH.
    Binary,
}

/// How long the ranks of a node may run without hearing from the coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum GrantMode {
    /// For ever in a world of one node without a spare, rolling otherwise.
    #[default]
    Auto,
    /// Always rolling, also in a world of one node.
    Lease,
}

/// Who hosts the rendezvous store of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StoreHost {
    /// The agent of the first slot: the store outlives the ranks.
    #[default]
    Agent,
    /// The process of rank 0.
    Rank0,
}

/// Where a job of Slurm stands in its chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRef {
    /// Slurm's job id.
    pub id: String,
    /// How often Slurm has requeued it.
    pub restart: u32,
}

/// Where a node stands in its launch: one command on all of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchPlace {
    /// The same for every process of the launch, and of no other; empty on a machine by itself, where there is nobody
    /// to find.
    pub token: String,
    /// The Slurm job, if any.
    pub job: Option<JobRef>,
    /// All nodes of the launch, in order: its first voters. Empty: this node alone.
    pub nodes: Vec<NodeName>,
    /// This node's place in them.
    pub index: u32,
    /// A supervisor made the run directory: nobody else makes one.
    pub supervised: bool,
    /// The run directory is seen from within a container.
    pub contained: bool,
    /// The address of this node that others are told, where somebody chose it.
    pub address: Option<String>,
    /// The port on the node of `towards` that is open as long as the supervisor lives.
    pub supervisor_port: Option<u16>,
    /// An address of the network that the nodes share, such as that of the node where the step was started.
    pub towards: Option<String>,
    /// Addresses of the first nodes, in order, where they are known.
    pub peers: Vec<String>,
    /// Several machines that no Slurm brings together.
    pub direct: Option<Direct>,
}

/// How the token of a launch begins whose machines meet without Slurm and share no directory: they know each other by a
/// secret of the user's, and the run by this token.
pub const DIRECT: &str = "direct:";

/// How machines without Slurm and without a shared directory find each other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Direct {
    /// Where the coordinator listens: a name or an address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// This machine's number, 0 leads; `None`: the machine whose address the endpoint is.
    pub rank: Option<u32>,
    /// What all of them know, as hexadecimal text.
    pub secret: String,
}

impl std::fmt::Debug for Direct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Direct")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("rank", &self.rank)
            .finish()
    }
}

/// Every timer of the machines, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numbers {
    /// Between two beats.
    pub beat_ms: u64,
    /// An unanswered beat this old dials a second link.
    pub second_link_ms: u64,
    /// Silence after which a node is lost.
    pub lost_ms: u64,
    /// How long a world may wait for enough nodes.
    pub join_timeout_ms: u64,
    /// With MIN:MAX: how long MIN nodes wait for more.
    pub last_call_ms: u64,
    /// After the first failure: how long exits are collected before the verdict is settled.
    pub settle_ms: u64,
    /// TERM to KILL when ranks are stopped for a restart.
    pub stop_ms: u64,
    /// What survives SIGKILL for so long makes the node dirty.
    pub sweep_ms: u64,
    /// TERM to KILL when the run ends.
    pub leave_ms: u64,
    /// How long a run may want to write to a store that is gone.
    pub store_timeout_ms: u64,
    /// How long is waited before an attempt after the second failure at one point; doubled at each one after it.
    #[serde(default)]
    pub backoff_ms: u64,
    /// How long an agent without a coordinator dials on after its grant is over.
    pub orphan_ms: u64,
    /// Rolling grants also in a world of one node.
    pub grant: GrantMode,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            beat_ms: 1_000,
            second_link_ms: 1_500,
            lost_ms: 20_000,
            join_timeout_ms: 600_000,
            last_call_ms: 30_000,
            settle_ms: 3_000,
            stop_ms: 2_000,
            sweep_ms: 5_000,
            leave_ms: 30_000,
            store_timeout_ms: 600_000,
            backoff_ms: 10_000,
            orphan_ms: 30_000,
            grant: GrantMode::Auto,
        }
    }
}

/// Numbers that contradict each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumbersError {
    /// A node could be declared lost although it survives a pause that it should survive.
    #[error(
        "--lost-after {lost_ms} ms is too short for a beat of {beat_ms} ms: a pause of 3 s must be survived (use at least {least_ms} ms)"
    )]
    LostTooShort {
        /// What was asked for.
        lost_ms: u64,
        /// The beat.
        beat_ms: u64,
        /// The least that works.
        least_ms: u64,
    },
}

impl Numbers {
    /// How long authority lasts after the send of acknowledgements that a majority echoed: T = lost - 0.7 s.
    #[must_use]
    pub fn authority(&self) -> Duration {
        Duration::from_millis(self.lost_ms.saturating_sub(700))
    }

    /// How long after its end a grant is surely enforced: the guardian kills within 0.2 s, and clocks drift.
    #[must_use]
    pub fn fence(&self) -> Duration {
        Duration::from_millis(200)
    }

    /// T + 0.2 s < lost and T - 2 beats > 3 s.
    pub fn check(&self) -> Result<(), NumbersError> {
        let least_ms = 3_000 + 2 * self.beat_ms + 700 + 1;
        if self.lost_ms < least_ms {
            return Err(NumbersError::LostTooShort {
                lost_ms: self.lost_ms,
                beat_ms: self.beat_ms,
                least_ms,
            });
        }
        Ok(())
    }
}

/// What is run, the same on every node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// The run.
    pub run_id: RunId,
    /// How the program is started.
    pub kind: ProgramKind,
    /// Script path, module or binary, as typed.
    pub program: String,
    /// Its arguments, as typed.
    pub args: Vec<String>,
    /// Nodes that the world needs at least.
    pub min_nodes: u32,
    /// Nodes of a full world.
    pub max_nodes: u32,
    /// Nodes beyond `max_nodes` that wait to replace one.
    pub spares: u32,
    /// Failures that may be followed by a restart; `None`: as long as attempts are not too short.
    pub max_restarts: Option<u32>,
    /// `ROLE_NAME` of nodes that say nothing else.
    pub role: String,
    /// An explicit `--shutdown-timeout`, for every stop.
    pub shutdown_timeout_ms: Option<u64>,
    /// Each rank sees its own GPU alone, as the first, and `LOCAL_RANK` is 0 everywhere.
    #[serde(default)]
    pub virtual_local_rank: bool,
    /// A person is at the terminal.
    pub interactive: bool,
    /// The timers.
    pub numbers: Numbers,
    /// What counts as a hang, and what is done about it.
    #[serde(default)]
    pub hang: HangSpec,
    /// Programs that are asked about a node before ranks start there.
    #[serde(default)]
    pub health: HealthSpec,
}

impl RunSpec {
    /// What a machine with this run and this number was told.
    #[must_use]
    pub fn told(&self, rank: Option<u32>) -> Told {
        let kind: &[u8] = match self.kind {
            ProgramKind::Script => b"script",
            ProgramKind::Module => b"module",
            ProgramKind::Binary => b"binary",
        };
        let words = [kind, self.program.as_bytes()].into_iter().chain(self.args.iter().map(String::as_bytes));
        Told { command: digest(words), nodes: (self.min_nodes, self.max_nodes), rank }
    }
}

/// What one node brings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Ranks on this node.
    pub nproc: u32,
    /// `ROLE_NAME` of its ranks; empty: that of the run.
    pub role: String,
    /// Digest of the script's text as this machine reads it, where machines share no directory; a different one is said once.
    pub script_digest: Option<u64>,
    /// Where the ranks' logs lie on this node (`<log_dir>/<run_id>_<node>`), empty when files are off.
    pub log_dir: String,
    /// How other nodes reach this one: an IP address.
    pub address: String,
    /// From which addresses its ranks may come.
    pub addresses: Vec<String>,
    /// Where its agent listens for other agents; 0: nowhere.
    pub port: u16,
    /// Place in the ordered node list; smaller comes first.
    pub order: u32,
    /// What a machine that no Slurm brought here was told of the run; none in a job, where all have one command.
    #[serde(default)]
    pub told: Option<Told>,
}

/// Where the rendezvous store of the next attempt can be hosted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// `MASTER_ADDR`.
    pub address: String,
    /// `MASTER_PORT`: fresh, held open by the agent until the attempt starts.
    pub port: u16,
    /// The agent hosts the store there; else rank 0 does. Records of an older program do not say it.
    #[serde(default)]
    pub hosted: bool,
}
