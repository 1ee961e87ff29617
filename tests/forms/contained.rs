//! Agents in a container: no command of Slurm is there, and what they need to know the supervisor asks for them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::slurm::{Job, LONG};
use crate::support::leftovers;

/// The first rank dies as if Slurm had ended it; the next world ends at once.
const DIES: &str = "open('ranks', 'a').write('{RANK} {TORCHELASTIC_RESTART_COUNT}\\n'.format(**os.environ))
if os.environ['TORCHELASTIC_RESTART_COUNT'] != '0': sys.exit(0)
while not os.path.exists('go'): time.sleep(0.02)
if os.environ['RANK'] == '0': os.kill(os.getpid(), signal.SIGTERM)
time.sleep(1000)";

/// On its PATH there is a Python and nothing else.
fn contain(job: &Job, nodes: u32) {
    let inside = job.scene.path("inside");
    fs::create_dir(&inside).unwrap();
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    let python = String::from_utf8(asked.stdout).unwrap();
    symlink(Path::new(python.trim()).canonicalize().unwrap(), inside.join("python3")).unwrap();
    for node in 1..=nodes {
        job.leave(
            &format!("env-n{node}"),
            &serde_json::json!({ "PATH": inside.display().to_string() }).to_string(),
        );
    }
}

#[test]
fn the_supervisor_asks_slurm_whether_the_job_is_being_ended() {
    for (state, code, attempts) in [("RUNNING", 0, 2), ("COMPLETING", 143, 1)] {
        let job = Job::new(2);
        contain(&job, 2);
        job.leave("squeue.7", state);
        let mut running = job.run(DIES).spawn();
        job.wait_for_lines("ranks", 2, &mut running);
        let guardian = job.wait_for_step(1)["tasks"][0].as_i64().unwrap() as i32;
        // A warning that an agent hears, too: the death is Slurm's doing, and what it means to do is asked.
        kill(Pid::from_raw(guardian), Signal::SIGUSR2).unwrap();
        fs::write(job.scene.path("exp/go"), "").unwrap();
        let ended = running.wait(LONG);
        assert_eq!(ended.code, code, "{state}: {}", ended.stderr);
        assert_eq!(
            job.squeues(),
            ["--noheader --format=%T --states=all --jobs=7"],
            "{state}: {}",
            ended.stderr
        );
        let ranks = fs::read_to_string(job.scene.path("exp/ranks")).unwrap();
        assert_eq!(ranks.lines().count(), 2 * attempts, "{state}: {ranks}{}", ended.stderr);
        leftovers::assert_none(&job.scene);
    }
}
