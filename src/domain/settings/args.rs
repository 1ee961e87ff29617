//! What comes in: the command line as typed, and what is known of the machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::key::Key;
use super::place::JobOutput;
use crate::domain::slurm_env::SlurmPlace;

/// The command line of `run`, as typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// Options that were given; flags as `1`. Of one given twice, the last.
    pub values: BTreeMap<Key, String>,
    /// Script, module or binary; none was given in `relight config show`.
    pub program: Option<String>,
    /// Its arguments, untouched.
    pub args: Vec<String>,
}

/// What settings depend on beside what people wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// relight was called by the name torchrun.
    pub as_torchrun: bool,
    /// Standard input is a terminal.
    pub at_terminal: bool,
    /// CPUs that this process may use.
    pub cpus: u32,
    /// GPUs that a rank would see.
    pub gpus: u32,
    /// GPUs of Intel that a rank would see.
    pub xpus: u32,
    /// The name of this node.
    pub node: String,
    /// The working directory.
    pub cwd: PathBuf,
    /// Now in local time, `yyyymmdd-hhmmss`.
    pub stamp: String,
    /// Tells two runs of one second apart.
    pub random: u16,
    /// Where in Slurm this process stands.
    pub slurm: Option<SlurmPlace>,
    /// Where the output of the job goes, in a batch script.
    pub job_output: Option<JobOutput>,
}
