//! Ring 2: the supervisor's process. One thread; what it does is decided in [`crate::domain::supervisor`].
//!
//! Nothing here touches a file: the run directory is opened, and looked at, by a store worker that is killed and started
//! anew when it hangs. Slurm's commands have deadlines. So a signal is always heard.

mod driver;
mod files;
mod link;
mod opening;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::domain::exit_code;
use crate::domain::ids::{NodeName, RunId};
use crate::domain::spec::JobRef;
use crate::slurm::plan::Plan;
use crate::sys::capability::Capabilities;
use crate::sys::memexec::Image;

/// Prints one sentence.
pub type Say = Box<dyn FnMut(&dyn std::fmt::Display)>;

/// Which run it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunName {
    /// Somebody chose its id.
    Chosen(RunId),
    /// The first `<job id>.<k>` that no earlier command of this start of the job has.
    Counted {
        /// A run that is there already is never continued, not even after a requeue: a person starts a new one.
        fresh: bool,
    },
}

/// Everything that a supervisor needs. Nothing is read from the environment.
pub struct SupervisorConfig {
    /// The binary that workers are started from.
    pub image: Image,
    /// The environment of workers.
    pub worker_env: Vec<(String, String)>,
    /// This process's environment, for Slurm's commands.
    pub env: Vec<(OsString, OsString)>,
    /// Where `srun` is started.
    pub cwd: PathBuf,
    /// What the kernel allows.
    pub caps: Capabilities,
    /// The job.
    pub job: JobRef,
    /// This node.
    pub node: NodeName,
    /// The nodes that get an agent, in order.
    pub nodes: Vec<NodeName>,
    /// The line of `srun`; what Slurm has to be asked for is filled in here.
    pub plan: Plan,
    /// The run's id.
    pub name: RunName,
    /// The directory under which run directories lie.
    pub base: PathBuf,
    /// Program and arguments: what a run is told apart by.
    pub command: Vec<String>,
    /// Where this node's locks lie.
    pub private_dir: PathBuf,
    /// The command line, for people.
    pub shown: String,
    /// From the first signal to SIGKILL of the agents.
    pub stop: Duration,
    /// The supervisor's death ends the agents too: there is no job script whose end would.
    pub tied: bool,
    /// Prints one sentence.
    pub say: Say,
}

/// Why no supervisor could be set up.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// A call of the set-up failed.
    #[error("cannot supervise: {what}: {source}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// Supervises a run to its end; returns the exit code for `_exit`. To be called on the main thread, before there is any
/// other.
pub fn run(mut config: SupervisorConfig) -> i32 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime
        .map_err(|source| SupervisorError::Call { what: "make an event loop", source })
        .and_then(|runtime| tokio::task::LocalSet::new().block_on(&runtime, driver::run(&mut config)));
    match result {
        Ok(code) => i32::from(code),
        Err(error) => {
            (config.say)(&format!("error: {error}"));
            i32::from(exit_code::FAILED)
        }
    }
}
