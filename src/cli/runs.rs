//! Which run is meant, and where its directory is.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::facts::Process;
use super::failure::Failure;
use super::flags::{RunOptions, RunRef};
use super::run;
use crate::domain::env;
use crate::domain::suggest::closest;

/// A run that is not there.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// No run at all.
    #[error("there is no run under {}", base.display())]
    None {
        /// Where it was looked for.
        base: PathBuf,
    },
    /// No run of this name.
    #[error("there is no run '{run}' under {}", base.display())]
    NoSuchRun {
        /// As typed.
        run: String,
        /// Where it was looked for.
        base: PathBuf,
        /// What may be meant.
        closest: Option<String>,
    },
    /// Not the directory of a run.
    #[error("{} is no run directory: there is no run.json in it", path.display())]
    NotARun {
        /// As typed.
        path: PathBuf,
    },
    /// The directory cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl RunsError {
    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoSuchRun { closest: Some(word), .. } => Some(format!("did you mean '{word}'?")),
            Self::NoSuchRun { .. } | Self::None { .. } => {
                Some("runs of another place: --run-dir DIR".to_owned())
            }
            Self::NotARun { .. } | Self::Unreadable { .. } => None,
        }
    }
}

/// The directory under which run directories lie.
///
/// # Errors
/// A setting makes no sense.
pub fn base(process: &Process, run_dir: Option<&str>) -> Result<PathBuf, Failure> {
    let options = RunOptions { run_dir: run_dir.map(str::to_owned), ..RunOptions::default() };
    Ok(run::settings(process, &options, &[])?.run_dir.value)
}

/// The directory of the run that is meant: a path, an id, or nothing for the one that runs around us
/// (`RELIGHT_RUN_ID`), else the newest.
///
/// # Errors
/// There is no such run.
pub fn find(process: &Process, which: &RunRef) -> Result<PathBuf, Failure> {
    let outer = process.var(env::RELIGHT_ATTEMPT).and(process.var(env::RELIGHT_RUN_DIR));
    let base = match (&which.run_dir, outer) {
        (None, Some(outer)) => PathBuf::from(outer),
        (run_dir, _) => base(process, run_dir.as_deref())?,
    };
    if let Some(path) = which.run.as_deref().filter(|run| run.contains('/')) {
        return is_run(&process.cwd.join(path)).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => RunsError::NotARun { path: PathBuf::from(path) }.into(),
            _ => unreadable(Path::new(path), source),
        });
    }
    let id = which.run.as_deref().or_else(|| process.var(env::RELIGHT_RUN_ID));
    let Some(id) = id else { return newest(&base) };
    is_run(&base.join(id)).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let names = list(&base).unwrap_or_default();
            let names = names.iter().filter_map(|(_, path)| path.file_name()?.to_str());
            let closest = closest(id, names).map(str::to_owned);
            RunsError::NoSuchRun { run: id.to_owned(), base: base.clone(), closest }.into()
        }
        _ => unreadable(&base.join(id), error),
    })
}

fn unreadable(path: &Path, source: io::Error) -> Failure {
    RunsError::Unreadable { path: path.to_owned(), source }.into()
}

/// A run's directory holds `run.json`.
fn is_run(path: &Path) -> io::Result<PathBuf> {
    std::fs::metadata(path.join("run.json")).map(|_| path.to_owned())
}

fn newest(base: &Path) -> Result<PathBuf, Failure> {
    let runs = match list(base) {
        Ok(runs) => runs,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => return Err(unreadable(base, source)),
    };
    match runs.into_iter().max() {
        Some((_, path)) => Ok(path),
        None => Err(RunsError::None { base: base.to_owned() }.into()),
    }
}

/// Every run under a directory with the time at which it began.
fn list(base: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let began = |path: &Path| std::fs::metadata(path.join("run.json"))?.modified();
    let entries = std::fs::read_dir(base)?.flatten().map(|entry| entry.path());
    Ok(entries.filter_map(|path| began(&path).ok().map(|began| (began, path))).collect())
}
