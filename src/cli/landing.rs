//! Where the command line hands over to the rooms that do the work.

use std::path::Path;

use super::facts::Process;
use super::failure::Failure;
use super::flags::{EventsArgs, GcArgs, LogsArgs};
use super::run::Launch;
use super::runs;
use crate::domain::exit_code::{self, Outcome};

/// The agent's process; returns its exit code.
#[must_use]
pub fn agent() -> u8 {
    hidden("the agent")
}

/// A worker's process, by kind; returns its exit code.
#[must_use]
pub fn worker(kind: &str) -> u8 {
    match kind {
        "store" => hidden("the store worker"),
        "logs" => hidden("the logs worker"),
        _ => hidden("this worker"),
    }
}

fn hidden(what: &'static str) -> u8 {
    super::output::failure(&Failure::NotBuilt(what));
    exit_code::USAGE
}

/// The guardian.
///
/// # Errors
/// It could not be set up.
pub fn run(launch: Launch) -> Result<Outcome, Failure> {
    drop(launch);
    Err(Failure::NotBuilt("the guardian"))
}

/// `relight status`.
///
/// # Errors
/// The run cannot be read.
pub fn status(_run_dir: &Path, _json: bool) -> Result<Outcome, Failure> {
    Err(Failure::NotBuilt("relight status"))
}

/// `relight why`.
///
/// # Errors
/// The run cannot be read.
pub fn why(_run_dir: &Path, _json: bool) -> Result<Outcome, Failure> {
    Err(Failure::NotBuilt("relight why"))
}

/// `relight events`.
///
/// # Errors
/// The run cannot be read.
pub fn events(process: &Process, events: &EventsArgs) -> Result<Outcome, Failure> {
    let _journal = match &events.replay {
        Some(dir) => process.cwd.join(dir),
        None => runs::find(process, &events.run)?.join("journal"),
    };
    Err(Failure::NotBuilt("relight events"))
}

/// `relight logs`.
///
/// # Errors
/// The run cannot be read.
pub fn logs(_run_dir: &Path, _logs: &LogsArgs) -> Result<Outcome, Failure> {
    Err(Failure::NotBuilt("relight logs"))
}

/// `relight gc`.
///
/// # Errors
/// The directory cannot be read, or a run cannot be removed.
pub fn gc(_base: &Path, _gc: &GcArgs) -> Result<Outcome, Failure> {
    Err(Failure::NotBuilt("relight gc"))
}

/// Signals a process if it is still the one that is meant.
///
/// # Errors
/// The kernel refused.
pub fn signal(process: super::inject::ProcessId, _signal: u8) -> std::io::Result<bool> {
    let _ = process;
    Err(std::io::ErrorKind::Unsupported.into())
}
