//! What the scenarios that need more than a row share: a job that is under way, and its journal and events.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::commit_log::CommitLog;
use crate::journal::Journal;
use crate::scenario::trainer;
use crate::support::leftovers;
use crate::support::procfs::{self, Process};
use crate::support::relight::{Ended, RelightCommand, Running, Scene};
use crate::support::wait::wait_for;

/// Long enough for anything on a loaded machine.
pub const LONG: Duration = Duration::from_secs(90);

/// A training job of the toy trainer.
pub struct Job {
    /// Its folders.
    pub scene: Scene,
    /// The trainer's log.
    pub log: PathBuf,
    world: u64,
    steps: u64,
}

impl Job {
    /// Nothing runs yet.
    pub fn new(world: u64, steps: u64) -> Self {
        let scene = Scene::new();
        let log = scene.path("commit.log");
        Self { scene, log, world, steps }
    }

    /// The launcher with these options of its own and these of the trainer.
    pub fn command(&self, options: &[&str], trainer_args: &[&str]) -> RelightCommand {
        let mut command = RelightCommand::run(&self.scene);
        command.arg(format!("--nproc-per-node={}", self.world)).args(options).arg(trainer());
        command.args(self.trainer_args()).args(trainer_args);
        command
    }

    /// Options of the trainer that every job of this size has.
    pub fn trainer_args(&self) -> Vec<String> {
        let place = |path: PathBuf| path.to_str().expect("a plain path").to_owned();
        let mut args = vec![format!("--steps={}", self.steps), "--ckpt-every=5".into(), "--log".into()];
        args.extend([
            place(self.log.clone()),
            "--ckpt-dir".into(),
            place(self.scene.path("exp").join("ckpt")),
        ]);
        args
    }

    /// The trainer's log so far.
    pub fn so_far(&self) -> CommitLog {
        CommitLog::read_so_far(&self.log)
    }

    /// Waits until a rank has done a step in an attempt; its process.
    pub fn reaches(&self, attempt: u64, rank: u64, step: u64) -> i32 {
        wait_for(&format!("step {step} of rank {rank} in attempt {attempt}"), LONG, || {
            let log = self.so_far();
            match (log.reached(attempt, rank), log.pid(attempt, rank)) {
                (at, Some(pid)) if at >= step => Ok(pid),
                (at, pid) => Err(format!("step {at}, pid {pid:?}, newest attempt {}", log.newest_attempt())),
            }
        })
    }

    /// Waits for the end and judges the whole: code 0, the known result, every step done, nothing left.
    pub fn finishes(&self, running: Running, timeout: Duration) -> (Ended, Journal) {
        let ended = running.wait(timeout);
        let context = format!("{}\n{}", ended.stdout, ended.stderr);
        leftovers::assert_none(&self.scene);
        assert_eq!(ended.code, 0, "{context}");
        let expected = self.golden();
        assert!(ended.stdout.contains(&format!("final hash {expected}")), "not {expected}:\n{context}");
        let log = CommitLog::read(&self.log);
        assert!(log.of("end").all(|e| e.all["hash"] == expected.as_str()), "{context}");
        log.check(self.world, self.steps, 5);
        let journal = self.journal();
        assert_eq!(journal.end_code, Some(0), "{context}");
        (ended, journal)
    }

    fn golden(&self) -> String {
        let mut command = self.scene.command("python3");
        command.arg(trainer()).arg("--print-hash-only").arg(format!("--steps={}", self.steps));
        let output = command.arg(format!("--world={}", self.world)).output().expect("python3 starts");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The journal.
    pub fn journal(&self) -> Journal {
        Journal::read(&self.scene.path("run"), "scene")
    }

    /// How long the world was down before an attempt ran, as the launcher says.
    pub fn down(&self, attempt: u64) -> Duration {
        let events = notes(&self.scene, "attempt_running");
        let note = events.iter().find(|note| note["attempt"] == attempt);
        let down = &note.unwrap_or_else(|| panic!("attempt {attempt} never ran: {events:?}"))["down"];
        let number = |name: &str| down[name].as_u64().expect("a number");
        Duration::from_secs(number("secs")) + Duration::from_nanos(number("nanos"))
    }
}

/// The notes of one kind in the event log of the run `scene`.
pub fn notes(scene: &Scene, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(scene.path("run/scene/events.jsonl")).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    let lines = complete.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event is JSON"));
    lines.filter_map(|line| line["note"].get(kind).cloned()).collect()
}

/// A signal to a process that may be gone already.
pub fn signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Waits until none of these processes runs.
pub fn gone(pids: &[i32], limit: Duration) {
    wait_for("the end of processes", limit, || {
        let alive = |pid: &&i32| procfs::read(**pid).is_some_and(|p| p.state != 'Z' && p.state != 'X');
        let left: Vec<_> = pids.iter().filter(alive).filter_map(|pid| procfs::read(*pid)).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
}

/// A worker of the launcher.
pub fn worker(running: &Running, kind: &str) -> i32 {
    let wanted = format!("__worker {kind}");
    wait_for(&wanted, LONG, || {
        let below = procfs::below(running.pid());
        let found = below.iter().find(|p: &&Process| p.cmdline.ends_with(&wanted) && p.state != 'Z');
        found.map(|p| p.pid).ok_or_else(|| format!("{below:?}"))
    })
}
