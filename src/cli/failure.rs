//! Everything that can go wrong before and beside a run: one sentence, one exit code, perhaps a hint.

use std::io;
use std::path::PathBuf;

use super::inject::InjectError;
use super::program::ProgramError;
use super::runs::RunsError;
use super::secret::SecretError;
use super::srun::SrunError;
use crate::domain::env::virtual_rank::TooFewGpus;
use crate::domain::exit_code::Outcome;
use crate::domain::numa::NumaError;
use crate::domain::settings::{FileError, SettingsError};
use crate::domain::slurm_env::SlurmEnvError;
use crate::domain::suggest;
use crate::inspect::Clock;
use crate::sys::dirs::NoPrivateDir;
use crate::sys::lock::{Holder, LockError};
use crate::sys::memexec::ImageError;

/// A command line that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// No such option.
    #[error("there is no option {option}")]
    UnknownOption {
        /// As typed.
        option: String,
        /// What may be meant.
        closest: Option<String>,
    },
    /// A prefix of several options.
    #[error("{option} can mean {}", candidates.join(" or "))]
    Ambiguous {
        /// As typed.
        option: String,
        /// What it can mean.
        candidates: Vec<String>,
    },
    /// The value is missing.
    #[error("{option} needs a value")]
    NeedsValue {
        /// As typed.
        option: String,
    },
    /// A flag with a value.
    #[error("{option} takes no value")]
    TakesNoValue {
        /// As typed.
        option: String,
    },
    /// Arguments are kept as UTF-8.
    #[error("the argument '{word}' is not valid UTF-8")]
    NotUtf8 {
        /// As it can be shown.
        word: String,
    },
    /// So are the variables that decide settings.
    #[error("{name}='{value}' is not valid UTF-8")]
    NotUtf8Variable {
        /// The variable.
        name: &'static str,
        /// As it can be shown.
        value: String,
    },
    /// The working directory was removed.
    #[error("the working directory does not exist any more")]
    NoDirectory,
    /// Slurm's variables cannot be understood.
    #[error(transparent)]
    Slurm(#[from] SlurmEnvError),
    /// A step whose list of nodes lacks the node that it runs on.
    #[error("{0}")]
    OutOfPlace(String),
    /// No such template.
    #[error("there is no template '{name}'")]
    NoTemplate {
        /// As typed.
        name: String,
        /// What may be meant.
        closest: Option<String>,
    },
    /// Nobody could keep it.
    #[error("program and arguments are longer than {limit} bytes together")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// Ranks cannot be bound to CPUs.
    #[error(transparent)]
    Numa(#[from] NumaError),
    /// Ranks cannot have a GPU each.
    #[error(transparent)]
    TooFewGpus(#[from] TooFewGpus),
    /// Completions for a shell that there are none for.
    #[error("there are no completions for '{shell}'")]
    NoCompletions {
        /// As typed.
        shell: String,
    },
    /// Nothing to run.
    #[error("there is no program to run")]
    NoProgram,
    /// `--json` without `--dry-run`.
    #[error("--json shows what --dry-run finds out; a run has no JSON output of its own yet")]
    JsonAlone,
    /// What clap says.
    #[error("{sentence}")]
    Clap {
        /// Its sentence.
        sentence: String,
        /// Its tip.
        tip: Option<String>,
    },
}

impl UsageError {
    /// One sentence, and the tip, of an error of clap's.
    #[must_use]
    pub fn of_clap(error: &clap::Error) -> Self {
        let text = error.to_string();
        let mut sentence: Vec<&str> = Vec::new();
        let mut tip = None;
        for line in text.lines().map(str::trim) {
            if let Some(found) = line.strip_prefix("tip: ") {
                tip.get_or_insert_with(|| found.to_owned());
            } else if line.starts_with("Usage:") || line.starts_with("For more information") {
                break;
            } else if !line.is_empty() && tip.is_none() {
                sentence.push(line.strip_prefix("error: ").unwrap_or(line));
            }
        }
        let wrong = match error.get(clap::error::ContextKind::InvalidSubcommand) {
            Some(clap::error::ContextValue::String(word)) => Some(word),
            _ => None,
        };
        match wrong {
            Some(word) if tip.is_none() && word.ends_with(".py") => Self::Clap {
                sentence: format!("there is no command '{word}'"),
                tip: Some(format!("to run the script: relight run {word}")),
            },
            Some(word) if word == "help" => Self::Clap {
                sentence: format!("there is no command '{word}'"),
                tip: Some("relight --help, or relight COMMAND --help".to_owned()),
            },
            Some(word) => Self::Clap { sentence: format!("there is no command '{word}'"), tip },
            None => Self::Clap { sentence: sentence.join(" "), tip },
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownOption { closest, .. } => Some(match closest {
                Some(word) => format!("did you mean --{word}?"),
                None => {
                    "options of the program stand behind it; relight's own: relight run --help".to_owned()
                }
            }),
            Self::Slurm(_) => Some("start it by srun or sbatch, or alone: --standalone".to_owned()),
            Self::OutOfPlace(_) => {
                Some("start one agent on each node: srun --ntasks-per-node=1 relight run …".to_owned())
            }
            Self::NoTemplate { closest, .. } => Some(match closest {
                Some(name) => format!("did you mean {name}?"),
                None => "relight slurm template lists them".to_owned(),
            }),
            Self::NoDirectory => Some("cd to a directory that is there".to_owned()),
            Self::TooLong { .. } => Some("put them into a file that the program reads".to_owned()),
            Self::NoProgram => Some("relight run [OPTIONS] SCRIPT [ARGS]...".to_owned()),
            Self::Numa(NumaError::NoDevice { .. }) | Self::TooFewGpus(_) => {
                Some("fewer ranks: --nproc-per-node=N".to_owned())
            }
            Self::Numa(_) => Some("leave the option out: ranks then share all CPUs".to_owned()),
            Self::NoCompletions { .. } => Some("there are some for bash, zsh and fish".to_owned()),
            Self::Clap { tip, .. } => tip.clone(),
            Self::NotUtf8Variable { name, .. } => Some(format!("unset {name}, or write it anew")),
            Self::JsonAlone
            | Self::Ambiguous { .. }
            | Self::NeedsValue { .. }
            | Self::TakesNoValue { .. }
            | Self::NotUtf8 { .. } => None,
        }
    }
}

/// A configuration file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is no configuration file.
    #[error("{} is too large for a configuration file", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It makes no sense.
    #[error(transparent)]
    Parse(#[from] FileError),
}

/// ` as pid 7 since 2026-12-01 14:03:22.120`.
fn since(holder: &Holder) -> String {
    format!(" as pid {} since {}", holder.pid, Clock::local().stamp(holder.started_ms))
}

/// Why a command was not performed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line makes no sense.
    #[error(transparent)]
    Usage(#[from] UsageError),
    /// A setting cannot hold.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A configuration file cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The program cannot be started.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// There is no such run.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// An order did not arrive.
    #[error(transparent)]
    Order(#[from] crate::node::operator::OperatorError),
    /// The secret that machines share is none.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A fault could not be injected.
    #[error(transparent)]
    Inject(#[from] InjectError),
    /// Agents cannot be started so.
    #[error(transparent)]
    Srun(#[from] SrunError),
    /// The output could not be written.
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// Another relight runs this run on this node.
    #[error("run {run} is already running on this node{}", holder.as_ref().map(since).unwrap_or_default())]
    Running {
        /// Its id.
        run: String,
        /// Who, if it has written its name.
        holder: Option<Holder>,
    },
    /// The lock of this run cannot be taken.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There is no place for this node's sockets and locks.
    #[error(transparent)]
    PrivateDir(#[from] NoPrivateDir),
    /// The program cannot start itself again.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The agent's configuration cannot be encoded.
    #[error("cannot hand the settings over to the agent")]
    Handover(#[from] crate::node::BootError),
    /// A process of this program that only the program itself starts, or a part that this build lacks.
    #[error("{0} is not part of this build")]
    NotBuilt(&'static str),
}

impl Failure {
    /// How the launcher ends with it.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Usage(_)
            | Self::Settings(_)
            | Self::Config(_)
            | Self::Program(_)
            | Self::Runs(_)
            | Self::Secret(_)
            | Self::Lock(_)
            | Self::Srun(_)
            | Self::Running { .. }
            | Self::PrivateDir(_) => Outcome::Usage,
            Self::Inject(error) => error.outcome(),
            Self::Order(_) | Self::Output(_) | Self::Image(_) | Self::Handover(_) | Self::NotBuilt(_) => {
                Outcome::Failed
            }
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Usage(error) => error.hint(),
            Self::Settings(error) => error.hint(),
            Self::Config(ConfigError::Parse(error)) => error.hint(),
            Self::Program(error) => error.hint(),
            Self::Runs(error) => error.hint(),
            Self::Secret(error) => Some(error.hint()),
            Self::Inject(error) => error.hint(),
            Self::Srun(error) => error.hint(),
            Self::Order(error) => error.hint(),
            Self::Config(ConfigError::Read { .. } | ConfigError::TooLarge { .. })
            | Self::Output(_)
            | Self::PrivateDir(_)
            | Self::Image(_)
            | Self::Handover(_)
            | Self::NotBuilt(_) => None,
            Self::Running { run, .. } => {
                let run = suggest::quoted(run.as_str());
                Some(format!("see it: relight status {run}; for another run: --run-id ID"))
            }
            Self::Lock(_) => None,
        }
    }
}
