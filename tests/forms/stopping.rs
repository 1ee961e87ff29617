//! Signals to the batch script.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::slurm::{Job, LONG};
use crate::support::leftovers;

#[test]
fn a_stop_goes_to_the_ranks_and_never_to_srun() {
    let job = Job::new(2);
    let script = "\
def stop(*_):
    open('stopped', 'a').write('1\\n')
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
open('ready', 'a').write('1\\n')
while True: time.sleep(0.02)";
    let mut running = job.run(script).spawn();
    job.wait_for_lines("ready", 2, &mut running);
    kill(Pid::from_raw(running.pid()), Signal::SIGTERM).unwrap();
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(ended.took < LONG / 2);
    let stopped = std::fs::read_to_string(job.scene.path("exp/stopped")).unwrap_or_default();
    assert_eq!(stopped.lines().count(), 2, "{}", ended.stderr);
    assert!(!job.scene.path("slurm/forced").exists(), "srun was signalled");
    assert!(job.scancels().is_empty(), "{:?}", job.scancels());
    leftovers::assert_none(&job.scene);
}

/// Something that is no agent, and never finds anybody.
fn deaf(job: &Job) -> crate::support::relight::RelightCommand {
    let path = job.scene.path("bin/relight");
    std::fs::write(&path, "#!/bin/sh\necho 1 >>started\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = job.script("");
    let mut command = job.relight();
    command.args(["srun", "--"]).arg(path).arg("run").arg(script);
    command
}

#[test]
fn agents_that_no_coordinator_tells_are_told_by_slurm() {
    let job = Job::new(2);
    let mut running = deaf(&job).spawn();
    job.wait_for_lines("started", 2, &mut running);
    job.wait_for_step(1);
    let asked = std::time::Instant::now();
    kill(Pid::from_raw(running.pid()), Signal::SIGTERM).unwrap();
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(asked.elapsed() >= Duration::from_secs(3));
    assert_eq!(job.scancels().first().map(String::as_str), Some("--signal=15 7.0"), "{:?}", job.scancels());
    assert!(!job.scene.path("slurm/forced").exists(), "srun was signalled");
    leftovers::assert_none(&job.scene);
}

#[test]
fn agents_that_end_without_a_word_are_a_failure() {
    let job = Job::new(2);
    let mut running = deaf(&job).spawn();
    job.wait_for_lines("started", 2, &mut running);
    let step = job.wait_for_step(1);
    for task in step["tasks"].as_array().unwrap() {
        kill(Pid::from_raw(task.as_i64().unwrap() as i32), Signal::SIGKILL).unwrap();
    }
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert_eq!(
        ended.stderr,
        "relight: error: every agent has ended and none of them left a result; what srun said last stands above (it returned 0)\n"
    );
    leftovers::assert_none(&job.scene);
}
