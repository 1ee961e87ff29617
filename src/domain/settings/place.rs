//! Where run directories lie when nobody says it: beside the output of the job, where people look first.

use std::path::{Path, PathBuf};

use super::args::Facts;
use super::key::Key;
use super::resolve::{Layers, Settings, SettingsError};
use super::value::{self, Origin, Value};
use crate::domain::env;

/// The name of the directory beside a job's output and in its directory of submission.
const HIDDEN: &str = ".relight";

/// Why a run directory lies where it lies.
const BESIDE: &str = "beside the job's output";

/// Where Slurm writes the standard output of the batch script, and what was seen there. It is Slurm's word and not the
/// descriptor of a process, which a line of the script may have turned elsewhere: every command of the job, and the next job
/// of a chain, must come to the same place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOutput {
    /// The file.
    pub file: PathBuf,
    /// It is there and a plain file.
    pub plain: bool,
    /// We may make something beside it.
    pub writable: bool,
    /// It lies on a file system that other machines serve.
    pub shared: bool,
    /// It lies on the file system of the directory of submission.
    pub with_submission: bool,
}

impl JobOutput {
    /// The directory that all nodes of the job should see; `None`: this is no place for a run. What is on a disk of the first
    /// node's own would be seen by no other node and from no login node.
    fn directory(&self) -> Option<&Path> {
        let fits =
            self.file.is_absolute() && self.plain && self.writable && (self.shared || self.with_submission);
        self.file.parent().filter(|_| fits)
    }
}

/// The directory under which run directories lie.
pub(super) fn run_dir(layers: &Layers<'_>, facts: &Facts) -> Result<Value<PathBuf>, SettingsError> {
    let absolute = |var| layers.var(var).map(Path::new).filter(|path| path.is_absolute());
    if layers.find(Key::RunDir).is_some() {
        let parse = |text: &str| value::path(text).map(|path| facts.cwd.join(path));
        return layers.get(Key::RunDir, parse, || (PathBuf::new(), ""));
    }
    let output = facts.job_output.as_ref().and_then(JobOutput::directory);
    let submission = || absolute(env::SLURM_SUBMIT_DIR);
    let in_job = layers.var(env::SLURM_JOB_ID).is_some();
    let (value, why) = if let Some(dir) = output.filter(|_| in_job) {
        (dir.join(HIDDEN), BESIDE)
    } else if let Some(dir) = submission().filter(|_| in_job) {
        (dir.join(HIDDEN), env::SLURM_SUBMIT_DIR.name)
    } else if let Some(dir) = absolute(env::XDG_STATE_HOME) {
        (dir.join("relight"), env::XDG_STATE_HOME.name)
    } else if let Some(dir) = absolute(env::HOME) {
        (dir.join(".local/state/relight"), "HOME")
    } else {
        return Err(SettingsError::NoRunDir);
    };
    Ok(Value { value, origin: Origin::Default(why) })
}

impl Settings {
    /// The run directory lies beside the output of the job, and nobody chose that.
    #[must_use]
    pub fn is_beside_output(&self) -> bool {
        self.run_dir.origin == Origin::Default(BESIDE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_that_is_no_place_for_a_run() {
        let good = JobOutput {
            file: "/scratch/logs/exp-7.out".into(),
            plain: true,
            writable: true,
            shared: true,
            with_submission: false,
        };
        let with_submission = JobOutput { shared: false, with_submission: true, ..good.clone() };
        let wanted = Some(Path::new("/scratch/logs"));
        assert_eq!((good.directory(), with_submission.directory()), (wanted, wanted));
        for bad in [
            // A device, or nothing there.
            JobOutput { file: "/dev/null".into(), plain: false, ..good.clone() },
            JobOutput { writable: false, ..good.clone() },
            // A disk of the first node's own.
            JobOutput { shared: false, ..good.clone() },
            JobOutput { file: "exp-7.out".into(), ..good.clone() },
        ] {
            assert_eq!(bad.directory(), None, "{bad:?}");
        }
    }
}
