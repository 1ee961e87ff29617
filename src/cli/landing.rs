//! Where the command line hands over to the rooms that do the work.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use super::facts::Process;
use super::failure::Failure;
use super::flags::{EventsArgs, GcArgs, LogsArgs};
use super::inject::ProcessId;
use super::run::Launch;
use super::{output, runs};
use crate::domain::env;
use crate::domain::exit_code::{self, Outcome};
use crate::guardian::{self, GuardianConfig};
use crate::sys::capability::Capabilities;
use crate::sys::dirs;
use crate::sys::lock::{Holder, Lock};
use crate::sys::memexec::Image;
use crate::sys::{inherited, pidfd, process, procfs};

/// A worker's end of its socket.
const WORKER_SOCKET: i32 = 3;

/// The agent's process; returns its exit code.
#[must_use]
pub fn agent() -> u8 {
    output::failure(&Failure::NotBuilt("the agent"));
    exit_code::USAGE
}

/// A worker's process, by kind; returns its exit code.
#[must_use]
pub fn worker(kind: &str) -> u8 {
    let run: fn(OwnedFd) -> i32 = match kind {
        "store" => crate::store::worker::run,
        "logs" => crate::logs::worker::run,
        _ => {
            output::failure(&Failure::NotBuilt("this worker"));
            return exit_code::USAGE;
        }
    };
    match inherited::take(WORKER_SOCKET) {
        Ok(socket) => u8::try_from(run(socket)).unwrap_or(exit_code::FAILED),
        Err(error) => {
            output::complain(&format!("relight: error: a worker is started by its agent alone: {error}\n"));
            exit_code::USAGE
        }
    }
}

/// Becomes the guardian. Returns only when nothing could be started.
///
/// # Errors
/// Another relight runs this run here, or the node has no place for sockets and locks.
pub fn run(process: &Process, launch: Launch) -> Result<Outcome, Failure> {
    let mut config = launch.config;
    let context = &mut config.context;
    let runtime = process.var(env::XDG_RUNTIME_DIR).map(Path::new);
    let private = dirs::private_dir(&dirs::candidates(runtime))?;
    let holder = Holder {
        pid: std::process::id(),
        started_ms: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX)),
        command: context.command.join(" "),
    };
    let lock = Lock::try_take(&private, config.spec.run_id.as_str(), &context.run_dir, &holder)?;
    let image = Image::of_self()?;
    if let Some(refused) = image.refused() {
        output::complain(&format!("relight: {refused}\n"));
    }
    context.private_dir = private;
    let caps = Capabilities::forced(&context.fallbacks);
    // The agent's own environment: only what its clock needs. What ranks inherit is in its configuration.
    let tz = process.env.iter().filter(|(name, _)| name == env::TZ.name);
    let guardian = GuardianConfig {
        image,
        args: vec!["__agent".into()],
        env: tz.cloned().collect(),
        cwd: "/".into(),
        config: postcard::to_stdvec(&config)?,
        lock: Some(lock),
        nofile: None,
        caps,
        numbers: crate::domain::guardian::Numbers::default(),
        say: Box::new(|said| output::complain(&format!("relight: {said}\n"))),
    };
    drop(config);
    process::exit_now(guardian::run(guardian))
}

/// Signals a process if it is still the one that is meant: it is opened first and looked at then, so that the
/// number cannot pass to another process in between (without process descriptors, hardly).
///
/// # Errors
/// The kernel refused.
pub fn signal(target: ProcessId, signal: u8) -> io::Result<bool> {
    const NO_SUCH_PROCESS: i32 = 3;
    // A status file can say anything; 0 and below would name groups.
    if target.pid <= 0 {
        return Ok(false);
    }
    let opened = pidfd::open(target.pid, Capabilities::probe());
    if procfs::start_time(target.pid) != Some(target.start_time) {
        return Ok(false);
    }
    let sent = match opened {
        Some(fd) => pidfd::send(fd.as_fd(), signal.into()),
        None => process::kill(target.pid, signal.into()),
    };
    match sent {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(NO_SUCH_PROCESS) => Ok(false),
        Err(error) => Err(error),
    }
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
