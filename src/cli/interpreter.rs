//! Which Python runs the ranks, and why this one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::facts::Process;
use super::program::ProgramError;
use crate::domain::env;

/// An interpreter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Its path, absolute.
    pub path: PathBuf,
    /// Which rule chose it: a variable's name, `beside relight`, or `PATH`.
    pub from: &'static str,
}

/// Directories in which relight and python lie beside each other by accident of packaging, not because they
/// belong together.
const SYSTEM: [&str; 3] = ["/bin", "/usr/bin", "/usr/local/bin"];

/// PYTHON_EXEC, else the `python` beside the path relight was called by (a virtual environment that has relight
/// in it), `$VIRTUAL_ENV`, `$CONDA_PREFIX`, then `python3` and `python` on PATH.
///
/// # Errors
/// `PYTHON_EXEC` names nothing that can be run, or there is no Python.
pub fn find(process: &Process) -> Result<Interpreter, ProgramError> {
    let path = process.var(env::PATH);
    let typed = process.env.iter().find(|(name, _)| name == env::PYTHON_EXEC.name).map(|(_, value)| value);
    if let Some(typed) = typed.filter(|typed| !typed.is_empty()) {
        return match typed.to_str().and_then(|typed| which(typed, path, &process.cwd)) {
            Some(path) => Ok(Interpreter { path, from: env::PYTHON_EXEC.name }),
            None => Err(ProgramError::PythonExec { typed: typed.to_string_lossy().into_owned() }),
        };
    }
    let beside = own_directory(process).filter(|dir| !SYSTEM.iter().any(|system| dir == Path::new(system)));
    let prefix = |var| process.var(var).map(|prefix| process.cwd.join(prefix).join("bin"));
    let places = [
        (beside, "beside relight", ["python", "python3"]),
        (prefix(env::VIRTUAL_ENV), env::VIRTUAL_ENV.name, ["python3", "python"]),
        (prefix(env::CONDA_PREFIX), env::CONDA_PREFIX.name, ["python3", "python"]),
    ];
    for (dir, from, names) in places {
        let Some(dir) = dir else { continue };
        if let Some(path) = names.iter().map(|name| dir.join(name)).find(|path| is_executable(path)) {
            return Ok(Interpreter { path, from });
        }
    }
    ["python3", "python"]
        .into_iter()
        .find_map(|name| which(name, path, &process.cwd))
        .map(|path| Interpreter { path, from: env::PATH.name })
        .ok_or(ProgramError::NoPython)
}

/// The directory of the path relight was called by, links not followed.
fn own_directory(process: &Process) -> Option<PathBuf> {
    let called_as = process.called_as.to_str()?;
    which(called_as, process.var(env::PATH), &process.cwd)?.parent().map(Path::to_owned)
}

/// A program as a shell would find it: a path when there is a slash in it, else in the directories of PATH.
#[must_use]
pub fn which(name: &str, path: Option<&str>, cwd: &Path) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(cwd.join(name)).filter(|path| is_executable(path));
    }
    let path = path.unwrap_or("/usr/local/bin:/usr/bin:/bin");
    path.split(':').map(|dir| cwd.join(dir).join(name)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
