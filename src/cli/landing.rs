//! Where the command line hands over to the rooms that do the work.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::facts::Process;
use super::failure::Failure;
use super::inject::ProcessId;
use super::output;
use super::run::Launch;
use super::runs::RunsError;
use crate::domain::console::Banner;
use crate::domain::env;
use crate::domain::exit_code::{self, Outcome};
use crate::domain::liveness::limits::HangAction;
use crate::domain::settings::{AgentConfig, NodeContext, Origin, Value};
use crate::domain::spec::LaunchPlace;
use crate::guardian::{self, GuardianConfig};
use crate::ipc::board;
use crate::logs::spec::LogSpec;
use crate::node::{self, Boot};
use crate::sys::capability::Capabilities;
use crate::sys::dirs;
use crate::sys::lock::{Holder, Lock, LockError};
use crate::sys::memexec::Image;
use crate::sys::{clock, files, inherited, pidfd, process, procfs, signals};

/// A worker's end of its socket.
const WORKER_SOCKET: i32 = 3;

/// The agent's process; returns its exit code.
#[must_use]
pub fn agent() -> u8 {
    match node::agent_main() {
        Ok(never) => match never {},
        Err(error) => {
            output::complain(&format!("relight: error: {error}\n"));
            exit_code::FAILED
        }
    }
}

/// A worker's process, by kind; returns its exit code.
#[must_use]
pub fn worker(kind: &str) -> u8 {
    let run: fn(OwnedFd) -> i32 = match kind {
        "store" => crate::store::worker::run,
        "logs" => crate::logs::worker::run,
        "probe" => crate::health::worker::run,
        "stacks" => crate::stacks::worker::run,
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
    let place = &context.place;
    if place.token.is_empty() || place.direct.is_some() || (place.index == 0 && !place.supervised) {
        make_base(&launch.settings.run_dir)?;
    }
    // One name for one directory, whatever way leads there: the lock goes by it.
    context.run_base = context.run_base.canonicalize().unwrap_or_else(|_| context.run_base.clone());
    context.run_dir = context.run_base.join(config.spec.run_id.as_str());
    // What an earlier agent of this launch left on the node is surely gone when its grant is.
    let patience = match place.token.as_str() {
        "" => LOOKING,
        _ => Duration::from_millis(config.spec.numbers.lost_ms) + FENCED,
    };
    let lock = lock(process, &private, &context.run_dir, context.command.join(" "), patience)?;
    if context.place.index == 0 {
        super::runs::remember(process, &context.run_dir);
        unprotected(process, &context.place);
        for name in launch.settings.hints.unknown_signals() {
            output::complain(&format!(
                "relight: warning: --signals-to-handle: there is no signal '{name}'\n"
            ));
        }
    }
    let image = Image::of_self()?;
    if let Some(refused) = image.refused() {
        output::complain(&format!("relight: {refused}\n"));
    }
    context.private_dir = private;
    let places = board::places(&context.private_dir);
    let caps = Capabilities::forced(&context.fallbacks);
    let numbers = crate::domain::guardian::Numbers::of(&config.spec);
    // The agent's own environment: only what its clock needs. What ranks inherit is in its configuration.
    let of_clocks = [env::TZ.name, env::RELIGHT_TEST_CLOCK.name];
    let clocks = process.env.iter().filter(|(name, _)| of_clocks.iter().any(|of| name == of));
    let guardian = GuardianConfig {
        image,
        args: vec!["__agent".into()],
        env: clocks.cloned().collect(),
        cwd: "/".into(),
        config: boot(process, config).encode()?,
        lock: Some(lock),
        nofile: None,
        caps,
        numbers,
        say: Box::new(|said| output::complain(&format!("relight: {said}\n"))),
    };
    let code = guardian::run(guardian);
    board::tidy(&places);
    process::exit_now(code)
}

/// A plain line of srun can end everybody with one node: whether it does cannot be seen from here, so it is said.
fn unprotected(process: &Process, place: &LaunchPlace) {
    let (no_kill, _) = env::FOR_PLAIN_SRUN[0];
    let protected = process.env.iter().any(|(name, _)| name == no_kill);
    if place.nodes.len() > 1 && !place.supervised && !protected {
        output::complain(
            "relight: SLURM_NO_KILL is not set: unless srun was called with --no-kill, Slurm ends every agent when a node \
             is lost (before srun: eval \"$(relight slurm env)\")\n",
        );
    }
}

/// What every agent of this launch is told.
fn boot(process: &Process, config: AgentConfig) -> Boot {
    let AgentConfig { spec, node, context } = config;
    let banner = Banner {
        run: spec.run_id.clone(),
        call: super::runs::call(process, &context.run_dir),
        nodes: spec.max_nodes,
        least: spec.min_nodes,
        nproc: node.nproc,
        interpreter: context.interpreter.display().to_string(),
        interpreter_from: context.interpreter_from.clone(),
        omp_threads: omp_threads(&context),
        dir: context.run_dir.display().to_string(),
        interactive: spec.interactive,
        watched: spec.hang.action != HangAction::Off,
        max_restarts: spec.max_restarts,
        ignored: context.ignored.clone(),
        program: spec.program.clone(),
    };
    let logs = LogSpec {
        dir: context.log_dir.clone(),
        redirects: context.redirects.clone(),
        tee: context.tee.clone(),
        console: context.console_ranks.as_ref().map(|ranks| ranks.iter().copied().collect()),
        prefix: context.line_prefix.clone(),
        filters: context.filters.clone(),
        role: spec.role.clone(),
        host: context.node.as_str().split('.').next().unwrap_or_default().to_owned(),
        ..LogSpec::default()
    };
    let for_workers = [env::TZ, env::RELIGHT_LOG];
    let worker_env =
        for_workers.iter().filter_map(|var| Some((var.name.to_owned(), process.var(*var)?.to_owned())));
    let error_file = process.var(env::TORCHELASTIC_ERROR_FILE).filter(|path| !path.is_empty());
    Boot {
        logs,
        banner,
        make_parents: true,
        uid: files::my_uid(),
        ignore_hangup: signals::is_ignored(signals::number::SIGHUP),
        fallbacks: context.fallbacks.clone(),
        error_file: error_file.map(|path| context.cwd.join(path)),
        worker_env: worker_env.collect(),
        spec,
        node,
        context,
    }
}

/// `OMP_NUM_THREADS` as the ranks will see it.
fn omp_threads(context: &NodeContext) -> Option<String> {
    let set = context.base_env.iter().find(|(name, _)| name == env::OMP_NUM_THREADS.name);
    let ours = || context.threads.map(|threads| threads.to_string());
    set.map(|(_, value)| value.to_string_lossy().into_owned()).or_else(ours)
}

/// Whoever only asks whether a run runs holds its lock for a moment.
const LOOKING: Duration = Duration::from_millis(300);

/// After the end of a grant its guardian kills and reaps.
const FENCED: Duration = Duration::from_secs(10);

/// The lock of a run on this node. The private directory depends on the environment: a run that was started
/// from a session with another one is found, too.
fn lock(
    process: &Process,
    private: &Path,
    run_dir: &Path,
    command: String,
    patience: Duration,
) -> Result<Lock, Failure> {
    let run = run_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let holder = Holder { pid: std::process::id(), started_ms: clock::now().wall_ms, command };
    let elsewhere: Vec<PathBuf> = lock_places(process).into_iter().filter(|place| place != private).collect();
    let until = Instant::now() + patience;
    loop {
        let other = elsewhere.iter().find_map(|place| Lock::held_by(place, &run, run_dir));
        let holder = match other {
            Some(holder) => holder,
            None => match Lock::try_take(private, &run, run_dir, &holder) {
                Ok(lock) => return Ok(lock),
                Err(LockError::Held { holder }) => holder,
                Err(error) => return Err(error.into()),
            },
        };
        if Instant::now() >= until {
            return Err(Failure::Running { run, holder });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Everywhere where a lock of this user can be on this node.
fn lock_places(process: &Process) -> Vec<PathBuf> {
    let session = PathBuf::from(format!("/run/user/{}", files::my_uid()));
    let mut places = dirs::candidates(Some(&session));
    if let Some(runtime) = process.var(env::XDG_RUNTIME_DIR) {
        places.extend(dirs::candidates(Some(Path::new(runtime))).into_iter().take(1));
    }
    places
}

/// Whether a guardian or agent of this node holds the lock of this run.
#[must_use]
pub fn is_running_here(process: &Process, run_dir: &Path) -> bool {
    let run_dir = run_dir.canonicalize().unwrap_or_else(|_| run_dir.to_owned());
    let run = run_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    lock_places(process).iter().any(|place| Lock::held_by(place, &run, &run_dir).is_some())
}

/// Makes the directory under which run directories lie: all of the way below the home directory, elsewhere the
/// last step only, because a missing parent is more likely a file system that is not mounted.
pub(super) fn make_base(base: &Value<PathBuf>) -> Result<(), RunsError> {
    let in_home = matches!(base.origin, Origin::Default(name) if name == env::HOME.name || name == env::XDG_STATE_HOME.name);
    let made = std::fs::DirBuilder::new().mode(0o700).recursive(in_home).create(&base.value);
    match made {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(RunsError::CannotMake { path: base.value.clone(), source })
        }
        Ok(()) | Err(_) => Ok(()),
    }
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
