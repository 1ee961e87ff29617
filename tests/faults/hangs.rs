//! Ranks that do not advance, by the numbers of the project's list of scenarios: who is named, and that it goes on.

use std::fs;
use std::time::Duration;

use crate::run::LONG;
use crate::support::leftovers;
use crate::support::relight::{Ended, RelightCommand, Scene};

const PROGRAM: &str = include_str!("hang.py");

/// Three ranks of the program with this fault, to their end.
fn play(scene: &Scene, options: &[&str], fault: &str) -> Ended {
    fs::write(scene.path("exp").join("train.py"), PROGRAM).unwrap();
    nix::unistd::mkfifo(&scene.path("exp").join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut command = RelightCommand::run(scene);
    command.args(["--nproc-per-node=3", "--max-restarts=1"]).args(options).args(["train.py", fault]);
    command.spawn().wait(LONG)
}

/// The run ends well, and so often it was started again.
fn ends(ended: &Ended, restarts: usize) {
    let said = &ended.stderr;
    assert_eq!(ended.code, 0, "{}\n{said}", ended.stdout);
    assert_eq!(
        said.matches("restarting (change: --hang-action, --heartbeat-timeout)").count(),
        restarts,
        "{said}"
    );
}

/// A hang with an explicit limit: what people read, and what is kept.
fn named(fault: &str, options: &[&str], said: &[&str]) {
    let scene = Scene::new();
    let began = std::time::Instant::now();
    let ended = play(&scene, options, fault);
    ends(&ended, 1);
    let line = ended.stderr.lines().find(|line| line.contains("-> stacks: ")).unwrap_or_default().to_owned();
    for text in said {
        assert!(line.contains(text), "'{text}' is not in the line that names the culprit:\n{}", ended.stderr);
    }
    let dir = line.rsplit_once("-> stacks: ").unwrap().1.to_owned();
    for file in ["boards.json", "processes.json", "stacks.txt", "report.json"] {
        let text = fs::read_to_string(format!("{dir}/{file}")).unwrap_or_default();
        assert!(text.contains("rank"), "{dir}/{file}: '{text}'");
    }
    // Limit and look, the ranks' stop, two starts of Python on a loaded machine.
    assert!(began.elapsed() < Duration::from_secs(60), "it took {:?}", began.elapsed());
    leftovers::assert_none(&scene);
}

const THREE: &[&str] = &["--heartbeat-timeout=3", "--phase-timeout=init=60"];

#[test]
fn s22_a_stopped_rank_is_named() {
    named("stop", THREE, &["rank 1 (", "is stopped by a signal (state T)"]);
}

#[test]
fn s23_a_rank_that_waits_for_data_is_named() {
    named("data", THREE, &["2 ranks wait in barrier; rank 1 (", "load()"]);
}

#[test]
fn s24_a_rank_that_holds_its_interpreter_is_named() {
    named("regex", THREE, &["2 ranks wait in barrier; rank 1 (", "burns CPU"]);
}

#[test]
fn s25_a_rank_that_spins_is_named() {
    named("spin", THREE, &["2 ranks wait in barrier; rank 1 (", "burns CPU in train.py:", "spin()"]);
}

#[test]
fn s26_ranks_that_wait_for_different_things_are_named() {
    let options = [THREE, &["--nproc-per-node=2"]].concat();
    let said =
        ["rank 0 (", "waits in barrier, called in train.py:", "first_right()", "rank 1 (", "first_left()"];
    named("order", &options, &said);
}

#[test]
fn s29_nobody_is_blamed_for_a_file_system() {
    named("storage", THREE, &["all 3 ranks wait for a file system", "no node is to blame"]);
}

#[test]
fn s30_a_rank_in_uninterruptible_sleep_is_named() {
    named("stuck", THREE, &["rank 1 (", "is in uninterruptible sleep (state D)"]);
}

#[test]
fn s32_a_checkpoint_has_its_own_limit() {
    named(
        "checkpoint",
        &["--heartbeat-timeout=600", "--phase-timeout=checkpoint=3"],
        &["2 ranks wait in barrier; rank 1 (", "load()"],
    );
}

/// What takes long and is no hang: nothing is said of it, and nothing ends.
#[test]
fn s21_and_s31_a_slow_start_and_a_section_are_no_hang() {
    for fault in ["start", "sections"] {
        let scene = Scene::new();
        let ended = play(&scene, THREE, fault);
        ends(&ended, 0);
        assert!(!ended.stderr.contains("collecting stacks"), "{fault}: {}", ended.stderr);
    }
}

/// Those that wait for a rank in a section are silent, and wait as long as that one may take.
#[test]
fn s31_who_waits_for_a_section_of_another_rank_is_no_hang() {
    let scene = Scene::new();
    let ended = play(&scene, THREE, "section");
    ends(&ended, 0);
    assert!(ended.stderr.contains("waiting: another rank is given more time"), "{}", ended.stderr);
}

/// The same with limits that were learned: a first step that compiles, an evaluation and a section without a time of its
/// own, each fifty times as long as a step.
#[test]
fn s31_what_takes_long_once_is_no_hang_of_a_learned_limit() {
    let scene = Scene::new();
    let ended = play(&scene, &["--hang-floor=1"], "long");
    ends(&ended, 0);
    assert!(!ended.stderr.contains("restart"), "{}", ended.stderr);
    assert_eq!(ended.stdout.matches("took its time").count(), 9, "{}", ended.stdout);
    leftovers::assert_none(&scene);
}

/// One rank does something alone, the others wait for it in a collective: it has a time of its own.
#[test]
fn s31_who_waits_for_an_evaluation_of_one_rank_is_no_hang() {
    let scene = Scene::new();
    let ended = play(&scene, &["--hang-floor=1"], "alone");
    ends(&ended, 0);
    let said = &ended.stderr;
    assert!(said.contains("waiting: another rank is given more time"), "{said}");
    assert!(said.contains("advances again after"), "{said}");
}

#[test]
fn s20_a_crash_before_the_first_sign_is_a_crash() {
    let scene = Scene::new();
    let ended = play(&scene, THREE, "crash");
    ends(&ended, 0);
    assert!(ended.stderr.contains("rank 1 (") && ended.stderr.contains("restart 1 of 1"), "{}", ended.stderr);
}

/// A limit that was learned looks into it and waits.
#[test]
fn s28_a_pause_of_all_ranks_is_waited_out() {
    let scene = Scene::new();
    let ended = play(&scene, &["--hang-floor=1"], "pause");
    ends(&ended, 0);
    let said = &ended.stderr;
    assert!(said.contains("collecting stacks") && said.contains("advances again after"), "{said}");
}

#[test]
fn a_program_that_never_beats_is_warned_of_and_left_alone() {
    let scene = Scene::new();
    fs::write(scene.path("exp").join("train.py"), "import time\ntime.sleep(6)\n").unwrap();
    let mut command = RelightCommand::run(&scene);
    command.args(["--nproc-per-node=2", "--hang-floor=200ms", "train.py"]);
    let ended = command.spawn().wait(LONG);
    ends(&ended, 0);
    let said = &ended.stderr;
    assert_eq!(said.matches("has given no sign").count(), 1, "{said}");
    assert!(said.contains("nothing is done before the first step"), "{said}");
}

#[test]
fn a_hang_may_end_the_run_or_be_only_said() {
    let scene = Scene::new();
    let options = ["--heartbeat-timeout=3", "--phase-timeout=init=60", "--hang-action=stop"];
    let ended = play(&scene, &options, "stop");
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("(--hang-action stop)"), "{}", ended.stderr);
    let scene = Scene::new();
    let options = ["--heartbeat-timeout=2", "--phase-timeout=init=60", "--hang-action=warn"];
    let ended = play(&scene, &options, "pause");
    ends(&ended, 0);
    assert!(ended.stderr.contains("nothing is done (--hang-action warn)"), "{}", ended.stderr);
}
