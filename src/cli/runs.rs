//! Which run is meant, and where its directory is.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::facts::Process;
use super::failure::Failure;
use super::flags::{RunOptions, RunRef};
use super::run;
use crate::domain::{env, suggest};
use crate::inspect::logs::LogsError;
use crate::store::IoTrouble;
use crate::store::layout::LayoutError;
use crate::store::look::{self, FindError};

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
    #[error(transparent)]
    Find(#[from] FindError),
    /// A path that leads to no run.
    #[error("{} is no run directory: there is no run.json in it", path.display())]
    NotARun {
        /// As typed.
        path: PathBuf,
    },
    /// What is there is no run directory of ours.
    #[error(transparent)]
    Layout(LayoutError),
    /// A file cannot be read.
    #[error(transparent)]
    Io(IoTrouble),
    /// There is no output to show.
    #[error(transparent)]
    Logs(#[from] LogsError),
    /// The directory for run directories cannot be made.
    #[error("cannot make the directory {} for run directories", path.display())]
    CannotMake {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
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
            Self::Find(error) => Some(error.hint()),
            Self::Logs(error) => Some(error.hint().to_owned()),
            Self::None { .. } => Some("runs of another place: --run-dir DIR".to_owned()),
            Self::CannotMake { .. } => Some("choose a place that is there: --run-dir DIR".to_owned()),
            Self::NotARun { .. } | Self::Layout(_) | Self::Io(_) | Self::Unreadable { .. } => None,
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
    if let Some(typed) = which.run.as_deref().filter(|run| run.contains('/') || *run == ".") {
        let path = process.cwd.join(typed);
        let is_run = path.join("run.json").is_file();
        return if is_run { Ok(path) } else { Err(RunsError::NotARun { path: typed.into() }.into()) };
    }
    let Some(id) = which.run.as_deref().or_else(|| process.var(env::RELIGHT_RUN_ID)) else {
        return newest(&base);
    };
    let here = if base.is_dir() {
        look::find(&base, id).map_err(RunsError::Find)
    } else {
        Err(RunsError::None { base })
    };
    match (here, elsewhere(process)) {
        (Err(RunsError::Find(FindError::Nothing { .. }) | RunsError::None { .. }), Some(links))
            if which.run_dir.is_none()
                && let Ok(link) = look::find(&links, id) =>
        {
            Ok(link.canonicalize().unwrap_or(link))
        }
        (here, _) => Ok(here?),
    }
}

/// Where a user finds the runs of jobs from any shell: links in the state home, one a run that lies in another place.
fn elsewhere(process: &Process) -> Option<PathBuf> {
    let absolute = |var| process.var(var).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute(env::XDG_STATE_HOME).or_else(|| Some(absolute(env::HOME)?.join(".local/state")));
    Some(state?.join("relight").join(".elsewhere"))
}

/// The directory under which the runs of a job lie, where one of them is known.
#[must_use]
pub fn base_of_job(process: &Process, job: &str) -> Option<PathBuf> {
    let run = std::fs::read_link(elsewhere(process)?.join(format!("{job}.0"))).ok()?;
    run.parent().filter(|base| base.ends_with(".relight") && base.is_dir()).map(Path::to_owned)
}

/// Links kept at most; the oldest go.
const MOST_LINKS: usize = 512;

/// Makes the run known under its id in every shell of this user. A home that cannot be written costs only that.
pub fn remember(process: &Process, run_dir: &Path) {
    let (Some(links), Some(id)) = (elsewhere(process), run_dir.file_name()) else { return };
    if run_dir.parent() == links.parent() {
        return;
    }
    let link = links.join(id);
    if std::fs::read_link(&link).is_ok_and(|known| known == run_dir) {
        return;
    }
    let _ = std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&links);
    let mut all: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(&links)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.path().symlink_metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    all.sort();
    for (_, old) in all.iter().take(all.len().saturating_sub(MOST_LINKS)) {
        let _ = std::fs::remove_file(old);
    }
    let _ = std::fs::remove_file(&link);
    let _ = std::os::unix::fs::symlink(run_dir, &link);
}

/// What names a run in a command of this user's, as a shell takes it: its id where that finds it, else its directory.
#[must_use]
pub fn call(process: &Process, run_dir: &Path) -> String {
    let found = base(process, None).ok().and_then(|base| base.canonicalize().ok());
    let real = run_dir.canonicalize().unwrap_or_else(|_| run_dir.to_owned());
    let in_job = process.var(env::SLURM_JOB_ID).is_some();
    let known = |id: &OsStr| {
        let link = elsewhere(process).and_then(|links| std::fs::read_link(links.join(id)).ok());
        link.is_some_and(|to| to == real || to == run_dir)
    };
    match (real.parent(), real.file_name()) {
        // A shell outside the job does not have the job's variables: there the id leads nowhere without a link.
        (Some(parent), Some(id)) if (found.as_deref() == Some(parent) && !in_job) || known(id) => {
            suggest::quoted(&id.to_string_lossy())
        }
        _ => suggest::quoted(&real.display().to_string()),
    }
}

fn unreadable(path: &Path, source: io::Error) -> Failure {
    RunsError::Unreadable { path: path.to_owned(), source }.into()
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
