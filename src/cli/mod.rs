//! Ring 3: the command line, the environment, exit codes, and everything a human sees.
//!
//! Only this room reads arguments and the environment. What was typed becomes [`crate::domain::settings::Args`],
//! that becomes [`crate::domain::settings::Settings`], and that what the machines get ([`run::Launch`]).

pub mod affinity;
pub mod argv;
pub mod check;
pub mod completions;
pub mod ctl;
pub mod devices;
pub mod facts;
pub mod failure;
pub mod flags;
pub mod generate;
pub mod inject;
pub mod inspecting;
pub mod interpreter;
mod job_output;
pub mod landing;
pub mod launcher;
pub mod output;
pub mod program;
pub mod run;
pub mod runs;
pub mod secret;
pub mod show;
pub mod slurm;
pub mod srun;
pub mod torchrun;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;

use crate::domain::env;
use crate::domain::exit_code::Outcome;
use crate::sys::clock;
use failure::{Failure, UsageError};
use flags::{Cli, Command, ConfigCommand};

/// The program: which process this is, then its work. Hidden processes are told apart before anything else,
/// because they are started on the way of a restart.
#[must_use]
pub fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let called_as = args.next().unwrap_or_default();
    let args: Vec<OsString> = args.collect();
    if let Ok(shift) = std::env::var(env::RELIGHT_TEST_CLOCK.name) {
        clock::shift_wall(&shift);
    }
    match args.first().and_then(|first| first.to_str()) {
        Some("__agent") => return ExitCode::from(landing::agent()),
        Some("__worker") => {
            return ExitCode::from(landing::worker(
                args.get(1).and_then(|kind| kind.to_str()).unwrap_or_default(),
            ));
        }
        _ => {}
    }
    let code = match dispatch(&called_as, &args) {
        Ok(outcome) => outcome.code(),
        Err(failure) => {
            output::failure(&failure);
            failure.outcome().code()
        }
    };
    ExitCode::from(code)
}

/// Parses a command line and does what it says.
fn dispatch(called_as: &OsStr, args: &[OsString]) -> Result<Outcome, Failure> {
    let process = facts::Process::of(called_as, args);
    match parse(called_as, args) {
        Ok(command) => perform(&process, command),
        Err(ParseError::Shown(text)) => output::print(&text).map(|()| Outcome::Finished),
        Err(ParseError::NoCommand(text)) => {
            output::complain(&text);
            Ok(Outcome::Usage)
        }
        Err(ParseError::Usage(error)) => Err(Failure::Usage(error)),
    }
}

fn perform(process: &facts::Process, command: Parsed) -> Result<Outcome, Failure> {
    match command {
        Parsed::Run { flags, program } => run::run(process, &flags, &program),
        Parsed::ConfigShow { show, program } => show::config(process, &show, &program),
        Parsed::Other(Command::Status(args)) => inspecting::show_status(process, &args),
        Parsed::Other(Command::Ctl { command }) => ctl::ctl(process, &command),
        Parsed::Other(Command::Why(args)) => inspecting::show_why(process, &args),
        Parsed::Other(Command::Events(args)) => inspecting::show_events(process, &args),
        Parsed::Other(Command::Logs(args)) => inspecting::show_logs(process, &args),
        Parsed::Other(Command::Check(args)) => check::check(process, &args),
        Parsed::Other(Command::Gc(args)) => inspecting::collect(process, &args),
        Parsed::Other(Command::Inject(inject)) => inject::inject(process, &inject),
        Parsed::Other(Command::Gen { what }) => {
            output::print(&generate::text(what)).map(|()| Outcome::Finished)
        }
        Parsed::Other(Command::Completions { shell }) => completions::print(shell),
        Parsed::Srun { words } => srun::srun(process, &words),
        Parsed::Other(Command::Slurm { command }) => slurm::slurm(process, &command),
        Parsed::Other(Command::Run(_) | Command::Srun(_) | Command::Config { .. }) => {
            // `parse` has taken them already; there is nothing that they could mean here.
            Err(Failure::Usage(UsageError::NoProgram))
        }
    }
}

/// A command line that was understood.
#[derive(Debug)]
pub enum Parsed {
    /// `relight run`, with what follows its options.
    Run {
        /// Its options.
        flags: Box<flags::RunFlags>,
        /// Program and arguments.
        program: Vec<String>,
    },
    /// `relight config show`, likewise.
    ConfigShow {
        /// Its options and those of `run`.
        show: Box<flags::ConfigShow>,
        /// Program and arguments.
        program: Vec<String>,
    },
    /// `relight srun`: everything behind it.
    Srun {
        /// Options of `srun`, and the command.
        words: Vec<String>,
    },
    /// Any other command.
    Other(Command),
}

/// A command line that is not to be performed.
#[derive(Debug)]
pub enum ParseError {
    /// Help or version was asked for: the text.
    Shown(String),
    /// No command at all: the help.
    NoCommand(String),
    /// It makes no sense.
    Usage(UsageError),
}

/// Understands a command line (without the program's own name). Total: any arguments give an answer.
///
/// # Errors
/// Help was asked for, or it makes no sense.
pub fn parse(called_as: &OsStr, args: &[OsString]) -> Result<Parsed, ParseError> {
    let first = args.first().map(OsString::as_os_str);
    let second = args.get(1).map(OsString::as_os_str);
    if is_torchrun(called_as) {
        return parse_run(args);
    }
    match (first.and_then(OsStr::to_str), second.and_then(OsStr::to_str)) {
        (Some("run"), _) => parse_run(&args[1..]),
        (Some("srun"), second) if !matches!(second, Some("--help" | "-h") | None) => {
            let text = |word: &OsString| match word.to_str() {
                Some(word) => Ok(word.to_owned()),
                None => {
                    Err(ParseError::Usage(UsageError::NotUtf8 { word: word.to_string_lossy().into_owned() }))
                }
            };
            Ok(Parsed::Srun { words: args[1..].iter().map(text).collect::<Result<_, _>>()? })
        }
        (Some("config"), Some("show")) => {
            let split = argv::split(&flags::subcommand(&["config", "show"]), &args[2..])
                .map_err(ParseError::Usage)?;
            match clap(&["config", "show"], split.options.iter().map(OsString::from))? {
                Command::Config { command: ConfigCommand::Show(show) } => {
                    Ok(Parsed::ConfigShow { show, program: split.program })
                }
                other => Ok(Parsed::Other(other)),
            }
        }
        _ => clap(&[], args.iter().cloned()).map(Parsed::Other),
    }
}

fn parse_run(args: &[OsString]) -> Result<Parsed, ParseError> {
    let split = argv::split(&flags::subcommand(&["run"]), args).map_err(ParseError::Usage)?;
    match clap(&["run"], split.options.iter().map(OsString::from))? {
        Command::Run(flags) => Ok(Parsed::Run { flags, program: split.program }),
        other => Ok(Parsed::Other(other)),
    }
}

fn clap(command: &[&str], args: impl Iterator<Item = OsString>) -> Result<Command, ParseError> {
    let argv = std::iter::once("relight").chain(command.iter().copied()).map(OsString::from).chain(args);
    Cli::try_parse_from(argv).map(|cli| cli.command).map_err(|error| match error.kind() {
        clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion => {
            ParseError::Shown(error.to_string())
        }
        clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            ParseError::NoCommand(error.to_string())
        }
        _ => ParseError::Usage(UsageError::of_clap(&error)),
    })
}

/// A link of that name behaves as `relight run`.
#[must_use]
pub fn is_torchrun(called_as: &OsStr) -> bool {
    Path::new(called_as).file_name() == Some(OsStr::new("torchrun"))
}
