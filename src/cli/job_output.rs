//! Where the output of the job goes, asked of Slurm once.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::facts::Process;
use super::runs;
use crate::domain::env;
use crate::domain::settings::JobOutput;
use crate::domain::slurm_env::{Form, SlurmPlace};
use crate::slurm::ask;
use crate::slurm::children::CommandError;
use crate::sys::capability::Capabilities;
use crate::sys::{files, memexec};

/// What is known of the output of the job.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// Where it goes, in a batch script.
    pub output: Option<JobOutput>,
    /// Slurm was asked and did not answer: what is to be said about it.
    pub silence: Option<String>,
}

/// Asks Slurm, in a batch script alone: agents are told by their supervisor, and thousands of nodes ask nobody.
pub(super) fn ask(process: &Process) -> Asked {
    let place = SlurmPlace::read(&process.known).ok().flatten();
    let Some(place) = place.filter(|place| place.form == Form::Batch) else { return Asked::default() };
    let caps = Capabilities::forced(process.var(env::RELIGHT_FORCE_FALLBACK).unwrap_or_default());
    match ask::stdout_of(&process.env, &place.job, caps) {
        Ok(file) => Asked { output: file.map(|file| look(process, file)), silence: None },
        // No Slurm command: there is nobody to ask.
        Err(CommandError::Start { .. }) => Asked::default(),
        Err(error) => silent(process, &place.job, &error),
    }
}

/// Without an answer an earlier run of the job says where the job's runs are: a job that was requeued goes on there.
fn silent(process: &Process, job: &str, error: &CommandError) -> Asked {
    if let Some(base) = runs::base_of_job(process, job)
        && let Some(dir) = base.parent()
    {
        let file = dir.join("output");
        let output = JobOutput { file, plain: true, writable: true, shared: true, with_submission: false };
        return Asked { output: Some(output), silence: None };
    }
    let silence = format!(
        "Slurm does not say where the job's output goes ({error}): the run directory lies in the directory of submission"
    );
    Asked { output: None, silence: Some(silence) }
}

fn look(process: &Process, file: PathBuf) -> JobOutput {
    let seen = std::fs::metadata(&file).ok();
    let opened = file.parent().and_then(|dir| files::open_dir(&dir.canonicalize().ok()?).ok());
    let served = opened.and_then(|dir| memexec::network_file_system(&dir).ok()).flatten();
    let submission = process.var(env::SLURM_SUBMIT_DIR).map(Path::new);
    let device = submission.and_then(|dir| Some(std::fs::metadata(dir).ok()?.dev()));
    JobOutput {
        plain: seen.as_ref().is_some_and(std::fs::Metadata::is_file),
        writable: file.parent().is_some_and(|dir| files::may_change(dir).is_ok()),
        shared: served.is_some(),
        with_submission: seen.is_some_and(|seen| device == Some(seen.dev())),
        file,
    }
}
