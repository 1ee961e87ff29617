//! What is to be run: is it there, and is it something that relight can run?

use std::io;
use std::path::{Path, PathBuf};

use super::facts::Process;
use super::interpreter::which;
use super::launcher;
use crate::domain::env;
use crate::domain::settings::Settings;
use crate::domain::spec::ProgramKind;
use crate::domain::told;

/// A program that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No such file.
    #[error("there is no script {}", path.display())]
    NoScript {
        /// Where it was looked for.
        path: PathBuf,
        /// The first word is `python`.
        python: bool,
    },
    /// It cannot be read.
    #[error("cannot read the script {}", path.display())]
    Unreadable {
        /// The script.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory without a program in it.
    #[error("{} is a directory without a __main__.py", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The working directory does not have it, nor does PATH.
    #[error("there is no program '{name}' that can be run{}", if name.contains('/') { "" } else { " on PATH" })]
    NoBinary {
        /// As typed.
        name: String,
    },
    /// Another launcher.
    #[error("{name} starts the ranks of a job itself, and so does relight: one of them is enough")]
    Launcher {
        /// Its name.
        name: String,
        /// What to write in its place.
        instead: String,
    },
    /// An empty name.
    #[error("the program has an empty name")]
    Empty,
    /// `PYTHON_EXEC` leads nowhere.
    #[error("PYTHON_EXEC='{typed}' is no program that can be run")]
    PythonExec {
        /// Its value.
        typed: String,
    },
    /// No interpreter anywhere.
    #[error(
        "there is no Python: no PYTHON_EXEC, VIRTUAL_ENV or CONDA_PREFIX, and no python3 or python on PATH"
    )]
    NoPython,
}

impl ProgramError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoScript { python: true, .. } => Some(
                "relight starts python itself: leave the word out, or say --no-python before it".to_owned(),
            ),
            Self::Launcher { instead, .. } => Some(instead.clone()),
            Self::NoPython => {
                Some("name one in PYTHON_EXEC, or say --no-python for a program that is none".to_owned())
            }
            Self::NoScript { .. }
            | Self::Unreadable { .. }
            | Self::Directory { .. }
            | Self::NoBinary { .. }
            | Self::Empty
            | Self::PythonExec { .. } => None,
        }
    }
}

/// Refuses what cannot run, before anything is started.
///
/// # Errors
/// The program is missing, unreadable, or another launcher.
pub fn check(settings: &Settings, process: &Process) -> Result<(), ProgramError> {
    let name = settings.program.as_str();
    if name.is_empty() {
        return Err(ProgramError::Empty);
    }
    let base = Path::new(name).file_name().and_then(|base| base.to_str()).unwrap_or(name);
    if let Some(found) = launcher::find(settings.kind() == ProgramKind::Module, name, &settings.args) {
        return Err(ProgramError::Launcher { name: found.name, instead: found.instead });
    }
    match settings.kind() {
        // Only Python knows where modules are.
        ProgramKind::Module => Ok(()),
        ProgramKind::Binary => match which(name, process.var(env::PATH), &process.cwd) {
            Some(_) => Ok(()),
            None => Err(ProgramError::NoBinary { name: name.to_owned() }),
        },
        // A name that differs by rank is Python's to find.
        ProgramKind::Script if name.contains('$') => Ok(()),
        ProgramKind::Script => script(name, base, &process.cwd),
    }
}

/// A digest of the script's text, where it is a plain file of a usual size: machines without a common directory are told apart
/// by it.
#[must_use]
pub fn script_digest(settings: &Settings, process: &Process) -> Option<u64> {
    const LONGEST: u64 = 16 << 20;
    if settings.kind() != ProgramKind::Script {
        return None;
    }
    let path = process.cwd.join(&settings.program);
    std::fs::metadata(&path).ok().filter(|meta| meta.is_file() && meta.len() <= LONGEST)?;
    std::fs::read(&path).ok().map(|text| told::digest([text.as_slice()]))
}

fn script(name: &str, base: &str, cwd: &Path) -> Result<(), ProgramError> {
    let path = cwd.join(name);
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let python = base.starts_with("python");
            Err(ProgramError::NoScript { path: PathBuf::from(name), python })
        }
        Err(source) => Err(ProgramError::Unreadable { path, source }),
        Ok(meta) if meta.is_dir() => {
            if path.join("__main__.py").is_file() {
                Ok(())
            } else {
                Err(ProgramError::Directory { path: PathBuf::from(name) })
            }
        }
        // Opening a pipe (`<(…)`) would wait for its writer, or eat what it says.
        Ok(meta) if !meta.is_file() => Ok(()),
        Ok(_) => match std::fs::File::open(&path) {
            Ok(_) => Ok(()),
            Err(source) => Err(ProgramError::Unreadable { path, source }),
        },
    }
}
