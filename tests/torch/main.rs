//! A real training job: PyTorch DDP loses a rank and ends with the weights and the accuracy of a run that did not.
//!
//! Needs a Python with torch and scikit-learn, named by RELIGHT_TORCH_PYTHON: `scripts/test --torch` makes one. Without
//! it the tests say so and are counted as skipped.
#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    clippy::unwrap_used
)]

mod environment;
mod events;
mod lightning;
mod parser;
#[allow(dead_code)]
#[path = "../forms/slurm.rs"]
mod slurm;
#[path = "../support/mod.rs"]
mod support;

mod record;
mod store;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use support::relight::{Ended, RelightCommand, Running, Scene};
use support::wait::wait_for;
use support::{leftovers, procfs};

const PYTHON: &str = "RELIGHT_TORCH_PYTHON";
/// Importing torch in two processes takes long on a machine that has other things to do.
const RUN: Duration = Duration::from_secs(240);

/// The Python with torch; without one the reason, said so that `scripts/test` counts the test as skipped.
fn python() -> Option<OsString> {
    let python = std::env::var_os(PYTHON).filter(|python| !python.is_empty());
    if python.is_none() {
        eprintln!("skipped: {PYTHON} is not set (`scripts/test --torch` makes such a Python)");
    }
    python
}

fn start(scene: &Scene, python: &OsString, args: &[&str]) -> Running {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/ddp.py");
    let mut command = RelightCommand::run(scene);
    command.env("PYTHON_EXEC", python).args(["--nproc-per-node=2", "--max-restarts=3"]);
    command.arg(script).arg("--ckpt-dir").arg(checkpoints(scene)).args(args);
    command.spawn()
}

fn checkpoints(scene: &Scene) -> PathBuf {
    scene.path("exp").join("ckpt")
}

/// The last line of a run: steps, hash of the weights, accuracy.
fn result(ended: &Ended) -> String {
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let mut lines = ended.stdout.lines().rev().filter_map(|line| line.find("steps ").map(|at| &line[at..]));
    let line = lines.find(|line| line.contains("weights sha256"));
    line.unwrap_or_else(|| panic!("no result\n{}\n{}", ended.stdout, ended.stderr)).trim().to_owned()
}

/// The step behind which attempt 1 went on.
fn resumed_behind(ended: &Ended) -> u64 {
    let line = ended.stdout.lines().find(|line| line.contains("attempt 1: 2 ranks"));
    let line = line.unwrap_or_else(|| panic!("no second attempt\n{}\n{}", ended.stdout, ended.stderr));
    let step = line.rsplit(' ').next().and_then(|step| step.trim().parse().ok());
    step.unwrap_or_else(|| panic!("no step in {line:?}"))
}

/// One test with three runs, because all of them are compared with the first.
#[test]
fn ddp_ends_as_if_no_rank_had_died() {
    let Some(python) = python() else { return };
    let golden = unkilled(&python);
    killed_by_itself(&python, &golden);
    killed_from_outside(&python, &golden);
}

fn unkilled(python: &OsString) -> String {
    let scene = Scene::new();
    let ended = start(&scene, python, &[]).wait(RUN);
    leftovers::assert_none(&scene);
    assert!(!ended.stdout.contains("attempt 1:"), "a restart, and nobody disturbed it: {}", ended.stdout);
    result(&ended)
}

fn killed_by_itself(python: &OsString, golden: &str) {
    let scene = Scene::new();
    let ended = start(&scene, python, &["--kill-rank", "1", "--kill-step", "130"]).wait(RUN);
    leftovers::assert_none(&scene);
    assert_eq!(result(&ended), golden);
    assert_eq!(resumed_behind(&ended), 125, "the last checkpoint before step 130");
    blamed(&ended, 1);
}

fn killed_from_outside(python: &OsString, golden: &str) {
    let scene = Scene::new();
    let mut running = start(&scene, python, &["--step-time", "0.02"]);
    let second = checkpoints(&scene).join("step_00000050.pt");
    wait_for("the second checkpoint", RUN, || {
        if second.exists() {
            return Ok(());
        }
        assert!(running.is_running(), "the run ended early");
        Err(format!("{:?} files", fs::read_dir(checkpoints(&scene)).map(Iterator::count)))
    });
    let victim = rank(&running, 0).expect("rank 0 is there");
    kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
    let ended = running.wait(RUN);
    leftovers::assert_none(&scene);
    assert_eq!(result(&ended), golden);
    let behind = resumed_behind(&ended);
    assert!(behind >= 50 && behind.is_multiple_of(25), "{behind}");
    blamed(&ended, 0);
}

fn blamed(ended: &Ended, rank: u64) {
    let line =
        ended.stderr.lines().find(|line| line.contains(&format!("rank {rank} ")) && line.contains("died"));
    assert!(line.is_some_and(|line| line.contains("SIGKILL")), "{}", ended.stderr);
}

/// The process of a rank, by its environment.
fn rank(running: &Running, rank: u64) -> Option<i32> {
    let wanted = format!("RANK={rank}");
    procfs::below(running.pid()).into_iter().map(|p| p.pid).find(|pid| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let has = |entry: &str| environ.split(|b| *b == 0).any(|e| e == entry.as_bytes());
        has(&wanted) && has("TORCHELASTIC_RESTART_COUNT=0")
    })
}
