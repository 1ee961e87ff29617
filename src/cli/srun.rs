//! `relight srun`, and `relight run` where it is short for that: in a batch script and at the prompt of `salloc`.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal as _;
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use super::facts::Process;
use super::failure::{Failure, UsageError};
use super::flags::{RunFlags, RunOptions};
use super::program::ProgramError;
use super::{ParseError, Parsed, interpreter, is_torchrun, landing, output, program};
use crate::domain::env;
use crate::domain::exit_code::Outcome;
use crate::domain::hostlist;
use crate::domain::ids::NodeName;
use crate::domain::settings::{Facts, Key, Origin, Settings, is_on};
use crate::domain::slurm_env::{Form, SlurmPlace};
use crate::domain::spec::{JobRef, ProgramKind};
use crate::slurm::line::{LineError, SrunLine};
use crate::slurm::plan::Plan;
use crate::supervisor::{self, RunName, SupervisorConfig};
use crate::sys::capability::Capabilities;
use crate::sys::dirs;
use crate::sys::memexec::Image;
use crate::sys::process;

/// From the first signal to the agents' SIGKILL, beyond what a stop of the ranks may take: for sweeping, the last
/// output, and the end of the journal.
const BEYOND: Duration = Duration::from_secs(15);
/// What a stop at the end may take where nobody says otherwise.
const STOP: Duration = Duration::from_secs(30);

/// Why agents are not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SrunError {
    /// Nothing behind the options.
    #[error("there is no command for srun to start")]
    NoCommand,
    /// Words, and none of them begins a command that is known.
    #[error("relight srun cannot tell where the options of srun end: `--` is missing before `relight run`")]
    NoBorder,
    /// Something else.
    #[error("relight srun starts `relight run …`, not {word}")]
    NotRelight {
        /// What.
        word: String,
    },
    /// Not in a job.
    #[error("there is no job here: relight srun runs in one")]
    OutsideJob,
    /// In a step.
    #[error("relight srun belongs into the batch script or to the prompt of salloc, this is a step of srun")]
    InStep,
    /// A heterogeneous job.
    #[error("relight does not run in a heterogeneous job (this one has {components} components)")]
    Heterogeneous {
        /// How many.
        components: u32,
    },
    /// Several agents on one node.
    #[error("{count} agents on {node}. Use `srun --ntasks-per-node=1 relight run …` or drop srun")]
    SeveralAgents {
        /// How many.
        count: u32,
        /// Where.
        node: String,
    },
    /// The user's options.
    #[error(transparent)]
    Line(#[from] LineError),
}

impl SrunError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        const LINE: &str = "relight srun [options of srun] -- relight run SCRIPT";
        match self {
            Self::NoCommand | Self::NoBorder | Self::NotRelight { .. } => Some(LINE.to_owned()),
            Self::OutsideJob => Some("sbatch or salloc first; on this machine alone: relight run".to_owned()),
            Self::InStep => Some("here it is relight run SCRIPT".to_owned()),
            Self::Heterogeneous { .. } => Some("ask for one component".to_owned()),
            Self::SeveralAgents { .. } => None,
            Self::Line(error) => error.hint(),
        }
    }
}

/// What the agents run.
struct Inner<'a> {
    /// The whole command.
    command: Vec<String>,
    options: &'a RunOptions,
    program: &'a [String],
}

/// Performs `relight srun`.
///
/// # Errors
/// Nothing was started, and why.
pub fn srun(process: &Process, words: &[String]) -> Result<Outcome, Failure> {
    let place = SlurmPlace::read(&process.known).map_err(UsageError::from)?.ok_or(SrunError::OutsideJob)?;
    if !matches!(place.form, Form::Batch | Form::Prompt) {
        return Err(SrunError::InStep.into());
    }
    let (options, command) = split(words)?;
    let line = SrunLine::parse(options).map_err(SrunError::from)?;
    let (called_as, rest) = command.split_first().ok_or(SrunError::NoCommand)?;
    let rest: Vec<OsString> = rest.iter().map(OsString::from).collect();
    let known = Path::new(called_as).file_name() == Some(OsStr::new("relight"));
    if !known && !is_torchrun(OsStr::new(called_as)) {
        return Err(SrunError::NotRelight { word: called_as.clone() }.into());
    }
    let (flags, program) = match super::parse(OsStr::new(called_as), &rest) {
        Ok(Parsed::Run { flags, program }) => (flags, program),
        Err(ParseError::Shown(text)) => return output::print(&text).map(|()| Outcome::Finished),
        Err(ParseError::Usage(error)) => return Err(error.into()),
        Ok(_) | Err(ParseError::NoCommand(_)) => {
            let word = command.iter().take(2).cloned().collect::<Vec<_>>().join(" ");
            return Err(SrunError::NotRelight { word }.into());
        }
    };
    let mut command = command.to_vec();
    // Inside a container its own PATH counts. Here a relight that is not in PATH is this one.
    let found = interpreter::which(called_as, process.var(env::PATH), &process.cwd);
    if line.image.is_none() && found.is_none() && !called_as.contains('/') {
        command[0] = own_path(process);
    }
    let inner = Inner { command, options: &flags.run, program: &program };
    supervise(process, &place, line, &inner).map(|never| match never {})
}

/// What `relight run` does in the place of starting an agent of its own; `None`: it starts one.
///
/// # Errors
/// Nothing was started, and why.
pub fn instead(process: &Process, flags: &RunFlags, program: &[String]) -> Result<Option<Outcome>, Failure> {
    let alone = flags.run.standalone || process.var(env::PET_STANDALONE).is_some_and(is_on);
    let place = SlurmPlace::read(&process.known).map_err(UsageError::from)?;
    let Some(place) = place.filter(|_| !alone && !flags.dry_run) else { return Ok(None) };
    match place.form {
        Form::Step if place.tasks_here > 1 => several(process, &place).map(Some),
        Form::Batch | Form::Prompt if !place.nodes.is_empty() => {
            let mut command = process.command.clone();
            if let Some(first) = command.first_mut() {
                *first = own_path(process);
            }
            let inner = Inner { command, options: &flags.run, program };
            supervise(process, &place, SrunLine::default(), &inner).map(|never| match never {})
        }
        _ => Ok(None),
    }
}

/// Several tasks of one step on this node. One of all tasks says so.
fn several(process: &Process, place: &SlurmPlace) -> Result<Outcome, Failure> {
    if place.task == 0 {
        return Err(SrunError::SeveralAgents { count: place.tasks_here, node: process.node() }.into());
    }
    Ok(Outcome::Usage)
}

/// Options of srun, and the command: behind `--`, else from the first word on that is relight.
fn split(words: &[String]) -> Result<(&[String], &[String]), SrunError> {
    if let Some(at) = words.iter().position(|word| word == "--") {
        return Ok((&words[..at], &words[at + 1..]));
    }
    let ours = |word: &String| {
        let name = Path::new(word).file_name().and_then(OsStr::to_str);
        matches!(name, Some("relight" | "torchrun"))
    };
    let none = if words.iter().all(|word| word.starts_with('-')) {
        SrunError::NoCommand
    } else {
        SrunError::NoBorder
    };
    let at = words.iter().position(ours).ok_or(none)?;
    Ok(words.split_at(at))
}

/// The path by which this program was called, for every node.
fn own_path(process: &Process) -> String {
    let called_as = process.called_as.to_string_lossy();
    let found = interpreter::which(&called_as, process.var(env::PATH), &process.cwd);
    let path = found.or_else(|| std::env::current_exe().ok());
    path.map_or_else(|| called_as.into_owned(), |path| path.to_string_lossy().into_owned())
}

/// The process as an agent will be: what it finds out, the supervisor finds out first, and says it once.
fn as_agent(process: &Process, place: &SlurmPlace, nodes: &[NodeName], inner: &Inner<'_>) -> Process {
    let mut agent = process.clone();
    if let Some(first) = inner.command.first() {
        agent.called_as = first.into();
    }
    agent.known.extend(tell(place, nodes).into_iter().map(|(name, value)| (name.to_owned(), value)));
    agent
}

fn tell(place: &SlurmPlace, nodes: &[NodeName]) -> Vec<(&'static str, String)> {
    let mut tell = vec![
        (env::RELIGHT_SUPERVISED.name, "1".to_owned()),
        (env::RELIGHT_NODELIST.name, hostlist::compress(nodes)),
    ];
    tell.extend(place.header_tasks.map(|tasks| (env::RELIGHT_HEADER_TASKS.name, tasks.to_string())));
    tell.extend(place.header_cpus.map(|cpus| (env::RELIGHT_HEADER_CPUS.name, cpus.to_string())));
    tell
}

/// Settings as the agents will have them, but for what only they can count.
fn settings(
    process: &Process,
    agent: &Process,
    place: &SlurmPlace,
    inner: &Inner<'_>,
    contained: bool,
) -> Result<Settings, Failure> {
    let files = agent.config_files(inner.options.config.as_deref())?;
    let mut args = inner.options.args(inner.program);
    agent.readable(&args)?;
    let job_output = process.facts_for(inner.options, &files).job_output;
    let mut facts = Facts { job_output, ..agent.facts() };
    if contained || place.node.is_none() {
        // Neither this node nor what it sees is the agents'.
        args.values.remove(&Key::NprocPerNode);
        facts.gpus = facts.gpus.max(1);
        facts.xpus = facts.xpus.max(1);
    }
    Ok(Settings::resolve(&args, &facts, &agent.known, &files)?)
}

/// What can be checked once here, and not by every agent.
fn check(agent: &Process, place: &SlurmPlace, contained: bool, settings: &Settings) -> Result<(), Failure> {
    match program::check(settings, agent) {
        // Inside the container there may be what is not here.
        Err(
            ProgramError::NoScript { .. } | ProgramError::NoBinary { .. } | ProgramError::Directory { .. },
        ) if contained => {}
        result => result?,
    }
    if !contained && place.node.is_some() && !matches!(settings.kind(), ProgramKind::Binary) {
        interpreter::find(agent)?;
    }
    Ok(())
}

/// Becomes the supervisor.
fn supervise(
    process: &Process,
    place: &SlurmPlace,
    line: SrunLine,
    inner: &Inner<'_>,
) -> Result<Infallible, Failure> {
    if process.cwd_is_gone {
        return Err(UsageError::NoDirectory.into());
    }
    if place.components > 1 {
        return Err(SrunError::Heterogeneous { components: place.components }.into());
    }
    if inner.program.is_empty() {
        return Err(UsageError::NoProgram.into());
    }
    let nodes = line.choose(&place.nodes).map_err(SrunError::from)?;
    let contained = line.image.is_some();
    let agent = as_agent(process, place, &nodes, inner);
    let settings = settings(process, &agent, place, inner, contained)?;
    check(&agent, place, contained, &settings)?;
    landing::make_base(&settings.run_dir)?;
    let terminal = place.form == Form::Prompt && std::io::stdin().is_terminal();
    let runtime = process.var(env::XDG_RUNTIME_DIR).map(Path::new);
    let private_dir = dirs::private_dir(&dirs::candidates(runtime))?;
    let image = Image::of_self()?;
    for said in process.silence().map(str::to_owned).into_iter().chain(sentences(place, &settings)) {
        output::complain(&format!("relight: {said}\n"));
    }
    let caps = Capabilities::forced(process.var(env::RELIGHT_FORCE_FALLBACK).unwrap_or_default());
    let worker_env = [env::TZ, env::RELIGHT_LOG];
    let worker_env =
        worker_env.iter().filter_map(|var| Some((var.name.to_owned(), process.var(*var)?.to_owned())));
    let stop = settings.shutdown_timeout_ms.value.map_or(STOP, Duration::from_millis);
    let config = SupervisorConfig {
        image,
        worker_env: worker_env.collect(),
        env: process.env.iter().filter(|(name, _)| name != env::RELIGHT_SECRET.name).cloned().collect(),
        cwd: process.cwd.clone(),
        caps,
        job: JobRef { id: place.job.clone(), restart: place.restarts },
        node: NodeName::new(process.node()),
        plan: plan(process, place, line, (&nodes, terminal), inner, &settings),
        nodes,
        name: match settings.run_id.origin {
            Origin::Default(_) => RunName::Counted { fresh: terminal },
            _ => RunName::Chosen(settings.run_id.value.clone()),
        },
        base: settings.run_dir.value.clone(),
        command: std::iter::once(settings.program.clone()).chain(settings.args.iter().cloned()).collect(),
        private_dir,
        shown: process.command.join(" "),
        stop: stop.saturating_add(BEYOND),
        tied: place.form == Form::Prompt,
        say: Box::new(|said| output::complain(&format!("relight: {said}\n"))),
    };
    process::exit_now(supervisor::run(config))
}

fn plan(
    process: &Process,
    place: &SlurmPlace,
    line: SrunLine,
    (nodes, terminal): (&[NodeName], bool),
    inner: &Inner<'_>,
    settings: &Settings,
) -> Plan {
    let has = |names: &[&str]| process.env.iter().any(|(name, _)| names.iter().any(|known| name == known));
    let mut tell = tell(place, nodes);
    tell.extend(sign_of_life().map(|port| (env::RELIGHT_SUPERVISOR_PORT.name, port.to_string())));
    tell.push((env::RELIGHT_RUN_DIR.name, settings.run_dir.value.display().to_string()));
    if terminal {
        tell.push((env::RELIGHT_TERMINAL.name, "1".to_owned()));
    }
    Plan {
        line,
        command: inner.command.clone(),
        // Where cores are counted in another way Slurm's own default, all of them, is safer.
        cpus: place.cpus.filter(|_| !has(env::COUNTS_CORES)),
        gpus: place.gpus.filter(|_| has(env::GPUS_BY_TASK)),
        oom_kill_step: false,
        tell,
    }
}

/// A port that is open as long as this process lives. Nobody answers there: that a connection can be made is the answer.
fn sign_of_life() -> Option<u16> {
    let bound = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)));
    let listener = bound.ok()?;
    let port = listener.local_addr().ok()?.port();
    std::mem::forget(listener);
    Some(port)
}

/// What people should know before the agents say anything.
fn sentences(place: &SlurmPlace, settings: &Settings) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(tasks) = place.header_tasks.filter(|tasks| *tasks > 1) {
        let cores = match place.cpus {
            None => "of its cores".to_owned(),
            Some(1) => "of its one core".to_owned(),
            Some(cpus) => format!("{cpus} cores"),
        };
        let gpus = match place.gpus {
            None | Some(0) => String::new(),
            Some(1) => " and 1 GPU".to_owned(),
            Some(gpus) => format!(" and {gpus} GPUs"),
        };
        said.push(format!(
            "header asks for {tasks} tasks per node; starting 1 agent per node with all {cores}{gpus}"
        ));
        said.push(settings.slurm_env.value.sentence());
    }
    said
}
