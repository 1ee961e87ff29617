//! Where the run directory lies, and that a run is found from any shell.

use std::fs;
use std::path::PathBuf;

use crate::slurm::{Job, LONG};
use crate::support::leftovers;
use crate::support::relight::RelightCommand;

/// Runs a batch script's command that ends at once; gives what it said.
fn run(job: &Job) -> String {
    let ended = job.run("pass").spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    leftovers::assert_none(&job.scene);
    ended.stderr
}

/// The output of the job, as Slurm has it.
fn output(job: &Job, file: &str) -> PathBuf {
    let path = job.scene.path(file);
    job.leave("stdout", &path.display().to_string());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "").unwrap();
    path
}

fn is_run(job: &Job, place: &str) -> bool {
    job.scene.path(place).join(".relight/7.0/run.json").is_file()
}

#[test]
fn a_run_lies_beside_the_output_of_the_job() {
    let job = Job::new(2);
    // The line's own output goes elsewhere: that says nothing.
    let output = output(&job, "my logs/exp-7.out");
    let said = run(&job);
    assert!(is_run(&job, "my logs") && !is_run(&job, "exp"), "{said}");
    // In the batch script, by every command.
    let look = |mut command: RelightCommand, args: &[&str]| {
        let ended = command.args(args).spawn().wait(LONG);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        ended.stdout
    };
    assert!(look(job.relight(), &["status"]).contains("finished"));
    let shown = look(job.relight(), &["config", "show", "--origin", "train.py"]);
    assert!(shown.contains("(default: beside the job's output)"), "{shown}");
    // Agents of a plain line of srun are told the place.
    let told = look(job.relight(), &["slurm", "env"]);
    let line = format!("export RELIGHT_RUN_DIR='{}'\n", job.scene.path("my logs/.relight").display());
    assert!(told.ends_with(&line), "{told}");
    assert!(!look(RelightCommand::bare(&job.scene), &["slurm", "env"]).contains("RUN_DIR"));
    // From a login node, where nothing tells of the job.
    let login = || RelightCommand::bare(&job.scene);
    assert!(look(login(), &["status", "7.0"]).contains("finished"));
    assert!(look(login(), &["why", "7.0"]).contains("7.0"));
    // Requeued while Slurm does not answer: the run goes on where it is.
    job.leave("silent", "");
    let mut again = job.run("pass");
    again.env("SLURM_RESTART_COUNT", "1");
    let ended = again.spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(!ended.stderr.contains("Slurm does not say"), "{}", ended.stderr);
    assert!(!job.scene.path("exp/.relight").exists(), "{}", ended.stderr);
    assert!(output.is_file());
    leftovers::assert_none(&job.scene);
}

#[test]
fn what_is_said_comes_first() {
    let job = Job::new(1);
    output(&job, "logs/7.out");
    let mut command = job.run("pass");
    command.env("RELIGHT_RUN_DIR", job.scene.path("chosen"));
    let ended = command.spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(job.scene.path("chosen/7.0/run.json").is_file());
    assert!(!job.scene.path("logs/.relight").exists());
}

#[test]
fn an_output_that_is_no_file_is_no_place() {
    let job = Job::new(1);
    job.leave("stdout", "/dev/null");
    let said = run(&job);
    assert!(is_run(&job, "exp"), "{said}");
}

#[test]
fn a_slurm_that_does_not_answer_is_named() {
    let job = Job::new(1);
    output(&job, "logs/7.out");
    job.leave("silent", "");
    let said = run(&job);
    assert!(
        said.starts_with(
            "relight: Slurm does not say where the job's output goes (scontrol failed: slurm_load_jobs error"
        ),
        "{said}"
    );
    assert!(is_run(&job, "exp"), "{said}");
}
