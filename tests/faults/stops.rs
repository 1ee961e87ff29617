//! Failures that come back: the run is ended with 93 after it was made sure of once, and the reason is told.

use std::fs;

use serde_json::json;

use crate::attribution::Group;
use crate::journal::Journal;
use crate::run::{Job, LONG};
use crate::support::leftovers;
use crate::support::relight::{Ended, RelightCommand, Scene};

/// Ranks that wait for each other in the wrong order, at the same step of every attempt.
const ORDER: &str = "
import os, pathlib, time, relight
RANK = int(os.environ['RANK'])
ROOM = pathlib.Path('room') / os.environ['TORCHELASTIC_RESTART_COUNT']
def barrier(name):
    (ROOM / f'{name}.{RANK}').touch()
    while not all((ROOM / f'{name}.{rank}').exists() for rank in range(2)):
        time.sleep(0.01)
def first_left():
    barrier('left')
def first_right():
    barrier('right')
ROOM.mkdir(parents=True, exist_ok=True)
for step in range(20):
    relight.heartbeat(step)
    if step == 7:
        first_left() if RANK else first_right()
    barrier(step)
    time.sleep(0.02)
";

/// It ended with 93 after this many attempts.
fn stopped(scene: &Scene, ended: &Ended, attempts: usize) -> Journal {
    assert_eq!(ended.code, 93, "{}\n{}", ended.stdout, ended.stderr);
    let journal = Journal::read(&scene.path("run"), "scene");
    assert_eq!(
        (journal.attempts.len(), journal.end_code, journal.found.len()),
        (attempts, Some(93), attempts),
        "{}",
        ended.stderr
    );
    leftovers::assert_none(scene);
    journal
}

#[test]
fn s26_a_deadlock_that_comes_back_ends_the_run() {
    let scene = Scene::new();
    fs::write(scene.path("exp").join("train.py"), ORDER).unwrap();
    let mut command = RelightCommand::run(&scene);
    command.args(["--nproc-per-node=2", "--heartbeat-timeout=3", "--phase-timeout=init=60", "train.py"]);
    let ended = command.spawn().wait(LONG);
    let journal = stopped(&scene, &ended, 2);
    for found in &journal.found {
        assert_eq!((&found["owner"], &found["cause"]), (&json!("user"), &json!("hang")), "{found:#}");
        let culprits = found["culprits"].as_array().unwrap();
        assert_eq!(culprits.len(), 2, "both are named: {found:#}");
    }
    assert!(
        ended.stderr.contains("restarted once to make sure; it failed at the same step 7"),
        "{}",
        ended.stderr
    );
}

#[test]
fn s27_tensors_of_different_sizes_end_the_run_after_one_confirmation() {
    let job = Job::new(2, 30);
    let fault =
        "--fault=terminate=[enforce fail at pair.cc] op.preamble.length <= op.nbytes. 4096 vs 2048:1:13:*";
    // What it says of its step is heard once a second.
    let trainer = ["--step-time=0.02", "--beat", "--fault=slow=2.5:1:13:*", fault];
    let ended = job.command(&[], &trainer).spawn().wait(LONG);
    let journal = stopped(&job.scene, &ended, 2);
    for found in &journal.found {
        assert_eq!((&found["owner"], &found["culprits"][0][0]), (&json!("user"), &json!(1)), "{found:#}");
    }
    assert!(
        ended.stderr.contains("restarted once to make sure; it failed at the same step 13"),
        "{}",
        ended.stderr
    );
}

#[test]
fn s57_memory_that_is_used_up_again_ends_the_run_with_advice() {
    let group = match Group::new("again", 400 << 20) {
        Ok(group) => group,
        Err(why) => {
            eprintln!("skipped: no memory cgroup of our own can be made here: {why}");
            return;
        }
    };
    let job = Job::new(2, 30);
    let mut command = job.command(&[], &["--step-time=0.02", "--fault=memory=2000:1:13:*"]);
    let ended = command.behind(&group.within()).spawn().wait(LONG);
    let journal = stopped(&job.scene, &ended, 2);
    for found in &journal.found {
        assert_eq!((&found["owner"], &found["confidence"]), (&json!("memory"), &json!("high")), "{found:#}");
    }
    assert!(ended.stderr.contains("it ran out of memory again: ask for more (--mem)"), "{}", ended.stderr);
}

/// Every rank hangs in a file system, again and again: nobody is blamed, and it does not go on for ever.
#[test]
fn a_hang_that_nobody_is_blamed_for_counts() {
    let scene = Scene::new();
    let text = "import relight\nrelight.heartbeat(7)\nopen('fifo').read()\n";
    fs::write(scene.path("exp").join("train.py"), text).unwrap();
    nix::unistd::mkfifo(&scene.path("exp").join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = RelightCommand::run(&scene);
    let options =
        ["--nproc-per-node=2", "--max-restarts=1", "--heartbeat-timeout=2", "--phase-timeout=init=60"];
    command.args(options).arg("train.py");
    let ended = command.spawn().wait(LONG);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let journal = Journal::read(&scene.path("run"), "scene");
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    assert!(journal.attempts[1].charged && journal.attempts[1].first_failure.is_none(), "{journal:#?}");
    for found in &journal.found {
        assert_eq!((&found["owner"], &found["culprits"]), (&json!("storage"), &json!([])), "{found:#}");
    }
    assert!(ended.stderr.contains("the one restart that was allowed is used"), "{}", ended.stderr);
    leftovers::assert_none(&scene);
}
