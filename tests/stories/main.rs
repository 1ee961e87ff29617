//! What a user sees and may do wrong, on the real program: whole consoles as golden files, refusals, signals, and the
//! commands that look at a run.

#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    clippy::unwrap_used
)]

#[path = "../support/mod.rs"]
mod support;

mod console;
mod error_files;
mod hang;
mod heartbeat;
mod inspecting;
mod machines;
mod orders;
mod policy;
mod refusals;
mod signals;
mod strangers;
mod surroundings;
mod user;
mod why_hang;

use std::path::{Path, PathBuf};
use std::time::Duration;

use support::relight::{Ended, RelightCommand, Running, Scene, binary};
use support::wait::wait_for;

/// Everything that a run may take on a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// The name that nodes have in golden files.
const NODE: (&str, &str) = ("SLURMD_NODENAME", "n01");

/// Says that it is up, in one write, and stays.
const STAY: &str = "import os, time\nos.write(1, b'up\\n')\ntime.sleep(120)\n";

/// A program in the scene's working directory.
fn script(scene: &Scene, name: &str, text: &str) -> PathBuf {
    let path = scene.path("exp").join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// `relight run` with so many ranks.
fn run(scene: &Scene, nproc: u32, options: &[&str], program: &[&str]) -> RelightCommand {
    let mut command = RelightCommand::run(scene);
    command.arg(format!("--nproc-per-node={nproc}")).args(options).args(program).env(NODE.0, NODE.1);
    command
}

/// The same from beginning to end.
fn play(scene: &Scene, nproc: u32, options: &[&str], program: &[&str]) -> Ended {
    run(scene, nproc, options, program).spawn().wait(LONG)
}

/// A program that stays, once each rank is up.
fn running(scene: &Scene, nproc: u32, options: &[&str], text: &str) -> Running {
    script(scene, "stay.py", text);
    let running = run(scene, nproc, options, &["stay.py"]).spawn();
    until_up(scene, nproc);
    running
}

/// Waits until so many ranks have said `up`.
fn until_up(scene: &Scene, ranks: u32) {
    wait_for("ranks to be up", LONG, || {
        let said = std::fs::read_to_string(scene.path("stdout")).unwrap_or_default();
        if said.lines().filter(|l| *l == "up").count() >= ranks as usize { Ok(()) } else { Err(said) }
    });
}

/// Another command of the program: exit code, and both streams one after the other.
fn ask(scene: &Scene, args: &[&str]) -> (i32, String) {
    let mut command = scene.command(binary());
    let said = command.args(args).env(NODE.0, NODE.1).env("TZ", "UTC").output().unwrap();
    let text = [said.stdout, said.stderr].concat();
    (said.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

/// A command for the scene's run.
fn look(scene: &Scene, args: &[&str]) -> (i32, String) {
    let folder = scene.path("run");
    ask(scene, &[args, &["--run-dir", folder.to_str().unwrap()]].concat())
}

/// The scene's run directory.
fn run_dir(scene: &Scene) -> PathBuf {
    scene.path("run").join("scene")
}

/// Golden text: what differs from run to run has names.
fn filters(scene: &Scene) -> Vec<(String, &'static str)> {
    let literal = |path: &Path| {
        let escape = |c: char| if c.is_ascii_punctuation() { format!("\\{c}") } else { c.to_string() };
        path.to_str().unwrap().chars().map(escape).collect::<String>()
    };
    let pattern = |text: &str| text.to_owned();
    vec![
        (literal(&scene.path("")).trim_end_matches("\\/").to_owned(), "[SCENE]"),
        (literal(Path::new(env!("CARGO_MANIFEST_DIR"))), "[REPOSITORY]"),
        (pattern(r"python \S+ \(PATH\)"), "python [PYTHON] (PATH)"),
        (pattern(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}"), "[STAMP]"),
        (pattern(r"\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d"), "[STAMP]"),
        (pattern(r"\d\d:\d\d:\d\d"), "[TIME]"),
        (pattern(r"OMP_NUM_THREADS=\d+"), "OMP_NUM_THREADS=[CORES]"),
        (pattern(r"pid(:?) \d+"), "pid$1 [PID]"),
        (pattern(r"\b\d+(\.\d+)? s\b"), "[N] s"),
        (pattern(r"\b\d+(\.\d+)? (k?B)\b"), "[SIZE]"),
    ]
}

macro_rules! golden {
    ($scene:expr, $name:literal, $text:expr) => {{
        let filters = $crate::filters(&$scene);
        let filters: Vec<(&str, &str)> = filters.iter().map(|(p, r)| (p.as_str(), *r)).collect();
        insta::with_settings!({ filters => filters, prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!($name, $text);
        });
    }};
}
pub(crate) use golden;
