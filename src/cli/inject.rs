//! `relight inject`: signals to the processes of a run, found by what the run's status says of them. A process
//! is signalled only when its start time is the one that was found: a number that was given to another process
//! meanwhile is never hit.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::facts::Process;
use super::failure::Failure;
use super::flags::{Fault, InjectArgs};
use super::{output, runs};
use crate::domain::exit::{signal_name, signal_number};
use crate::domain::exit_code::Outcome;
use crate::sys::files;

/// A fault that could not be injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    /// No such signal.
    #[error("there is no signal '{typed}'")]
    NoSignal {
        /// As typed.
        typed: String,
    },
    /// The status cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The status makes no sense.
    #[error("{} is no status of a run", path.display())]
    NoStatus {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Processes of another node are named.
    #[error("only ranks and the agent of {node} can be reached, and from there alone")]
    Elsewhere {
        /// The node that leads.
        node: String,
    },
    /// The run has no such process now.
    #[error("the run has no {what} now{}", if *alone { "" } else { " on this node" })]
    NotThere {
        /// Which.
        what: Target,
        /// The run has one node.
        alone: bool,
    },
    /// The process of the status has ended.
    #[error("the process {pid} ({what}) has ended, or its number belongs to another process now")]
    Gone {
        /// Which.
        what: Target,
        /// Its number.
        pid: i32,
    },
    /// The kernel refused.
    #[error("cannot send {} to process {pid} ({what})", signal_name(*signal))]
    Refused {
        /// Which.
        what: Target,
        /// Its number.
        pid: i32,
        /// The signal.
        signal: u8,
        /// Why.
        source: io::Error,
    },
}

impl InjectError {
    /// How the command ends with it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NoSignal { .. } => Outcome::Usage,
            Self::Unreadable { .. }
            | Self::NoStatus { .. }
            | Self::NotThere { .. }
            | Self::Elsewhere { .. }
            | Self::Gone { .. }
            | Self::Refused { .. } => Outcome::Failed,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSignal { .. } => {
                Some("a name such as KILL, SIGTERM or STOP, or a number from 1 to 64".to_owned())
            }
            Self::Elsewhere { node } => Some(format!("call it on {node}")),
            Self::Unreadable { .. }
            | Self::NoStatus { .. }
            | Self::NotThere { .. }
            | Self::Gone { .. }
            | Self::Refused { .. } => None,
        }
    }
}

/// A process of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A rank, by its global number.
    Rank(u32),
    /// The agent of this node.
    Agent,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rank(rank) => write!(f, "rank {rank}"),
            Self::Agent => f.write_str("agent"),
        }
    }
}

/// A process as the status names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot (`/proc/<pid>/stat`).
    pub start_time: u64,
}

/// One node of the run.
#[derive(Clone, Debug, Deserialize)]
pub struct OnNode {
    /// Its name.
    pub node: String,
}

/// What injection needs of `status.json`; fields that it does not know are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct StatusPids {
    /// The node whose processes are named: that of the agent that leads.
    pub leader: String,
    /// All nodes of the run.
    pub nodes: Vec<OnNode>,
    /// The agent of that node.
    pub agent_process: Option<ProcessId>,
    /// The ranks of that node that run.
    pub rank_processes: Vec<RankPid>,
}

/// A rank as the status names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct RankPid {
    /// Its global number.
    pub rank: u32,
    /// Its process number; absent while it does not run.
    pub pid: Option<i32>,
    /// When it started, in clock ticks since boot.
    pub start_time: Option<u64>,
}

impl StatusPids {
    /// The process that is meant.
    #[must_use]
    pub fn process(&self, target: Target) -> Option<ProcessId> {
        match target {
            Target::Agent => self.agent_process,
            Target::Rank(rank) => {
                let found = self.rank_processes.iter().find(|one| one.rank == rank)?;
                Some(ProcessId { pid: found.pid?, start_time: found.start_time? })
            }
        }
    }
}

/// Performs `relight inject`.
///
/// # Errors
/// There is no such run, process or signal, or it may not be signalled.
pub fn inject(process: &Process, args: &InjectArgs) -> Result<Outcome, Failure> {
    let typed =
        || signal_number(&args.signal).ok_or_else(|| InjectError::NoSignal { typed: args.signal.clone() });
    let (target, signal) = match args.fault {
        Fault::KillRank => (Target::Rank(args.rank), typed()?),
        Fault::StopRank => (Target::Rank(args.rank), STOP),
        Fault::ContRank => (Target::Rank(args.rank), CONT),
        Fault::KillAgent => (Target::Agent, typed()?),
        Fault::StopAgent => (Target::Agent, STOP),
    };
    let run_dir = runs::find(process, &args.run)?;
    let status = status(&run_dir)?;
    let here = process.node();
    if status.nodes.len() > 1 && status.leader != here {
        return Err(InjectError::Elsewhere { node: status.leader }.into());
    }
    let found = status
        .process(target)
        .ok_or(InjectError::NotThere { what: target, alone: status.nodes.len() < 2 })?;
    send(target, found, signal)?;
    let text = format!("{} sent to {target} (process {})\n", signal_name(signal), found.pid);
    output::print(&text).map(|()| Outcome::Finished)
}

const CONT: u8 = 18;
const STOP: u8 = 19;

/// A status is no longer.
const LONGEST: usize = 16 << 20;

fn status(run_dir: &Path) -> Result<StatusPids, InjectError> {
    let path = run_dir.join("status.json");
    let text = match files::read_small(&path, LONGEST) {
        Ok((text, _)) => text,
        Err(source) => return Err(InjectError::Unreadable { path, source }),
    };
    serde_json::from_slice(&text).map_err(|source| InjectError::NoStatus { path, source })
}

/// Opens the process first and looks at its start time then: what was opened cannot be another process later.
fn send(what: Target, found: ProcessId, signal: u8) -> Result<(), InjectError> {
    let pid = found.pid;
    match super::landing::signal(found, signal) {
        Ok(true) => Ok(()),
        Ok(false) => Err(InjectError::Gone { what, pid }),
        Err(source) => Err(InjectError::Refused { what, pid, signal, source }),
    }
}
