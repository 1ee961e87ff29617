//! `relight run`: from the command line to everything that the guardian and its agents need.

use super::facts::Process;
use super::failure::{Failure, UsageError};
use super::flags::{RunFlags, RunOptions};
use super::{affinity, completions, interpreter, landing, program, secret, show, srun};
use crate::domain::env::{self, virtual_rank};
use crate::domain::exit_code::Outcome;
use crate::domain::settings::{AgentConfig, Settings};
use crate::domain::slurm_env::SlurmPlace;
use crate::domain::spec::ProgramKind;

/// Everything that a run is started from.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Every setting with its origin.
    pub settings: Settings,
    /// What the agent is told.
    pub config: AgentConfig,
}

/// Performs `relight run`.
///
/// # Errors
/// Nothing was started, and why.
pub fn run(process: &Process, flags: &RunFlags, program: &[String]) -> Result<Outcome, Failure> {
    if flags.json && !flags.dry_run {
        return Err(UsageError::JsonAlone.into());
    }
    if let Some(shell) = &flags.run.print_completion {
        return completions::print_named(process, shell);
    }
    if let Some(outcome) = srun::instead(process, flags, program)? {
        return Ok(outcome);
    }
    let launch = prepare(process, &flags.run, program)?;
    if flags.dry_run {
        return show::dry_run(&launch, flags.json);
    }
    landing::run(process, launch)
}

/// Settings of the options, the environment and the configuration files.
///
/// # Errors
/// A file or a value makes no sense.
pub fn settings(process: &Process, options: &RunOptions, program: &[String]) -> Result<Settings, Failure> {
    let files = process.config_files(options.config.as_deref())?;
    let facts = process.facts_for(options, &files);
    let args = options.args(program);
    process.readable(&args)?;
    Ok(Settings::resolve(&args, &facts, &process.known, &files)?)
}

/// Program and arguments are kept in the journal, which has a limit for its records.
const LONGEST: usize = 1 << 20;

/// Checks everything that can be checked before a run and puts it together.
///
/// # Errors
/// A setting, the program or the interpreter is wrong.
pub fn prepare(process: &Process, options: &RunOptions, program: &[String]) -> Result<Launch, Failure> {
    if process.cwd_is_gone {
        return Err(UsageError::NoDirectory.into());
    }
    SlurmPlace::read(&process.known).map_err(UsageError::from)?;
    let mut settings = settings(process, options, program)?;
    if let Some(sentence) = settings.out_of_place() {
        return Err(UsageError::OutOfPlace(sentence).into());
    }
    if program.is_empty() {
        return Err(UsageError::NoProgram.into());
    }
    if program.iter().map(|word| word.len()).sum::<usize>() > LONGEST {
        return Err(UsageError::TooLong { limit: LONGEST }.into());
    }
    program::check(&settings, process)?;
    let python = match settings.kind() {
        ProgramKind::Binary => None,
        ProgramKind::Script | ProgramKind::Module => {
            let found = interpreter::find(process)?;
            Some((found.path, found.from.to_owned()))
        }
    };
    count_in_job(&mut settings);
    let mut context = settings.node_context(&process.cwd, python, process.env.clone());
    let slurm_here = interpreter::which("srun", process.var(env::PATH), &process.cwd).is_some();
    if let Some(direct) = &mut context.place.direct {
        let secret = secret::of_machines(settings.meeting.secret_file.value.as_deref(), &process.cwd)?;
        direct.secret = secret.to_hex();
    }
    // Whoever sees no commands of Slurm in a step that Slurm started is in a container.
    context.place.contained =
        !context.place.token.is_empty() && context.place.direct.is_none() && !slurm_here;
    context.command = process.command.clone();
    if let Some(way) = settings.numa.value {
        context.cpus = affinity::cpus(process, way, settings.nproc.value).map_err(UsageError::from)?;
    }
    if settings.virtual_local_rank.value {
        virtual_rank::check(&context.base_env, settings.nproc.value).map_err(UsageError::from)?;
    }
    context.fallbacks = process.var(env::RELIGHT_FORCE_FALLBACK).unwrap_or_default().to_owned();
    context.nvml = process.var(env::RELIGHT_NVML).unwrap_or_default().to_owned();
    context.log_filter = process.var(env::RELIGHT_LOG).map(str::to_owned);
    let mut node = settings.node_spec(&process.cwd);
    if context.place.direct.is_some() {
        node.script_digest = program::script_digest(&settings, process);
    }
    let config = AgentConfig { spec: settings.run_spec(), node, context };
    Ok(Launch { settings, config })
}

/// In a batch job the k-th relight command has the run id `<job id>.<k>`: the first that has no directory.
fn count_in_job(settings: &mut Settings) {
    const MOST: u32 = 10_000;
    for k in 0..MOST {
        if !settings.count_in_job(k) || !settings.own_dir().exists() {
            break;
        }
    }
}
