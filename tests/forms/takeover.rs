//! A run that another job began: it goes on only when that job has ended.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::slurm::{Job, LONG};
use crate::support::relight::RelightCommand;
use crate::support::wait::wait_for;
use crate::support::{leftovers, procfs};

const WAIT: &str = "open('ranks', 'a').write('{TORCHELASTIC_RESTART_COUNT}\\n'.format(**os.environ))
while not os.path.exists('go'): time.sleep(0.02)";

/// The line of job 8, whose node is another one: no lock of this machine keeps it from the run.
fn of_job_8(job: &Job) -> RelightCommand {
    let mut command = run(job);
    let elsewhere = job.scene.path("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    fs::set_permissions(&elsewhere, fs::Permissions::from_mode(0o700)).unwrap();
    command.env("SLURM_JOB_ID", "8").env("XDG_RUNTIME_DIR", &elsewhere);
    command
}

fn run(job: &Job) -> RelightCommand {
    let mut command = job.relight();
    command.args(["run", "--run-id", "chain", "--lost-after", "6"]).arg(job.script(WAIT));
    command
}

fn ends(command: &mut RelightCommand) -> (i32, String) {
    let ended = command.spawn().wait(LONG);
    (ended.code, ended.stderr)
}

#[test]
fn a_run_that_another_job_trains_is_left_alone() {
    let job = Job::new(1);
    let mut first = run(&job).spawn();
    job.wait_for_lines("ranks", 1, &mut first);
    job.leave("squeue.7", "RUNNING");
    let (code, said) = ends(&mut of_job_8(&job));
    assert_eq!(code, 2, "{said}");
    assert_eq!(
        said,
        "relight: error: run chain belongs to job 7, which has not ended (RUNNING)\n\
         relight: hint: wait for it, or end it: scancel 7; another --run-id starts a new run\n"
    );
    assert_eq!(job.squeues(), ["--noheader --jobs=7 --format=%T"]);
    // Another command line would move the directory away from under it.
    let (code, said) = ends(of_job_8(&job).arg("other"));
    assert_eq!(code, 2, "{said}");
    // Nobody can be asked: no end was seen.
    job.leave("squeue.7", "error: Unable to contact slurm controller");
    let (code, said) = ends(&mut of_job_8(&job));
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("Slurm does not say whether it has ended: error: Unable to contact"), "{said}");
    fs::write(job.scene.path("exp/go"), "").unwrap();
    let ended = first.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(fs::read_to_string(job.scene.path("exp/ranks")).unwrap(), "0\n");
    // With its end there nobody is asked.
    let asked = job.squeues().len();
    let (code, said) = ends(&mut of_job_8(&job));
    assert_eq!(code, 0, "{said}");
    assert_eq!(job.squeues().len(), asked);
    leftovers::assert_none(&job.scene);
}

#[test]
fn a_run_whose_job_has_ended_without_a_word_goes_on() {
    let job = Job::new(1);
    let mut first = run(&job).spawn();
    job.wait_for_lines("ranks", 1, &mut first);
    let step = job.wait_for_step(1);
    let guardian = i32::try_from(step["tasks"][0].as_i64().unwrap()).unwrap();
    let srun = i32::try_from(step["srun"].as_i64().unwrap()).unwrap();
    // As when a node loses power, supervisor first: it would start another agent.
    let of_the_step: Vec<i32> =
        procfs::below(guardian).iter().map(|p| p.pid).chain([guardian, srun]).collect();
    for pid in std::iter::once(first.pid()).chain(of_the_step) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    first.wait(LONG);
    // What was killed takes nothing away.
    for file in fs::read_dir(job.scene.path("runtime/relight")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    job.leave("squeue.7", "COMPLETING");
    let mut second = of_job_8(&job).spawn();
    wait_for("it to wait for the end of job 7", LONG, || {
        let said = fs::read_to_string(job.scene.path("stderr")).unwrap_or_default();
        let line = "relight: run chain belongs to 7, which is ending: waiting for its end";
        if said.contains(line) { Ok(()) } else { Err(said) }
    });
    fs::remove_file(job.scene.path("slurm/squeue.7")).unwrap();
    job.wait_for_lines("ranks", 2, &mut second);
    fs::write(job.scene.path("exp/go"), "").unwrap();
    let ended = second.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert_eq!(fs::read_to_string(job.scene.path("exp/ranks")).unwrap(), "0\n1\n");
    leftovers::assert_none(&job.scene);
}
