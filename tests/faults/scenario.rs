//! One scenario: start, break, wait, judge.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::commit_log::CommitLog;
use crate::journal::Journal;
use crate::support::relight::{Ended, RelightCommand, Running, Scene};
use crate::support::wait::{monotonic_ns, wait_for};
use crate::support::{leftovers, procfs};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The scenario's number.
    pub number: u32,
    /// Ranks.
    pub world: u64,
    /// `--max-restarts`.
    pub max_restarts: u32,
    /// Steps of the job.
    pub steps: u64,
    /// Seconds a step takes.
    pub step_time: &'static str,
    /// Steps between checkpoints; 0: none.
    pub ckpt_every: u64,
    /// More arguments of the trainer: its faults.
    pub args: &'static [&'static str],
    /// Variables of the launcher.
    pub env: &'static [(&'static str, &'static str)],
    /// What is done from outside.
    pub inject: Inject,
    /// What the launcher may use.
    pub limit: Limit,
    /// Its exit code; with 0 the whole oracle applies.
    pub code: i32,
    /// First failure of each incident: rank and how it ended; none when no rank is to blame.
    pub roots: &'static [Option<(u64, &'static str)>],
    /// Texts that the console must show.
    pub console: &'static [&'static str],
    /// Longest time from a fault to the first failure's time in the journal.
    pub detect: Duration,
    /// Longest time from a fault to the first step of the next attempt.
    pub resume: Duration,
    /// Longest time of the run.
    pub total: Duration,
}

/// What is done from outside.
#[derive(Clone, Copy, Debug)]
pub enum Inject {
    /// The trainer does it by itself.
    Nothing,
    /// A signal to a rank of attempt 0 once it has done a step.
    Kill { rank: u64, after_step: u64, signal: Signal },
    /// SIGKILL to the agent once rank 0 has done a step.
    KillAgent { after_step: u64 },
}

/// What the launcher may use.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// As much as it likes.
    None,
    /// Started under this limit of open files.
    OpenFiles(u32),
    /// Guardian, agent and workers together never above this.
    Pss { kib: u64 },
}

/// The trainer beside this test.
pub fn trainer() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/toy_trainer.py")
}

/// Plays a row and judges it.
pub fn play(row: &Row) {
    let scene = Scene::new();
    let log = scene.path("commit.log");
    let mut running = launch(row, &scene, &log);
    let injected = inject(row.inject, &log, &running);
    if let Limit::Pss { kib } = row.limit {
        watch_memory(&mut running, kib, &log, row.total);
    }
    let ended = running.wait(row.total);
    let journal = Journal::read(&scene.path("run"), "scene");
    let log = CommitLog::read(&log);
    let context = format!(
        "scenario {}\n{journal:#?}\n--- stdout\n{}\n--- stderr\n{}",
        row.number,
        short(&ended.stdout),
        short(&ended.stderr)
    );
    let judged = std::panic::catch_unwind(|| judge(row, &scene, &ended, &journal, &log, injected));
    let shared: Vec<&str> = log.of("grandchild").filter_map(|child| child.all["shm"].as_str()).collect();
    let left: Vec<&&str> = shared.iter().filter(|path| fs::remove_file(path).is_ok()).collect();
    leftovers::assert_none(&scene);
    for child in log.of("grandchild") {
        leftovers::assert_port_free(
            child.all["port"].as_u64().and_then(|p| u16::try_from(p).ok()).expect("a port"),
        );
    }
    assert!(left.is_empty(), "left in shared memory: {left:?}\n{context}");
    if let Err(panic) = judged {
        eprintln!("{context}");
        std::panic::resume_unwind(panic);
    }
}

fn launch(row: &Row, scene: &Scene, log: &Path) -> Running {
    let mut command = RelightCommand::run(scene);
    command
        .arg(format!("--nproc-per-node={}", row.world))
        .arg(format!("--max-restarts={}", row.max_restarts));
    command.arg(trainer()).arg(format!("--steps={}", row.steps)).args(["--step-time", row.step_time]);
    command.arg(format!("--ckpt-every={}", row.ckpt_every)).arg("--log").arg(log);
    if row.ckpt_every > 0 {
        command.arg("--ckpt-dir").arg(scene.path("exp").join("ckpt"));
    }
    command.args(row.args);
    for (name, value) in row.env {
        command.env(name, value);
    }
    if let Limit::OpenFiles(limit) = row.limit {
        command.open_files(limit);
    }
    command.spawn()
}

/// Carries the injection out; the instant at which it was done.
fn inject(what: Inject, log: &Path, running: &Running) -> Option<u64> {
    let (rank, after_step) = match what {
        Inject::Nothing => return None,
        Inject::Kill { rank, after_step, .. } => (rank, after_step),
        Inject::KillAgent { after_step } => (0, after_step),
    };
    let limit = Duration::from_secs(30);
    let rank_pid = wait_for("the step of the injection", limit, || {
        let log = CommitLog::read_so_far(log);
        match (log.reached(0, rank), log.pid(0, rank)) {
            (step, Some(pid)) if step >= after_step => Ok(pid),
            (step, pid) => Err(format!("rank {rank} (pid {pid:?}) is behind step {step}")),
        }
    });
    let (pid, signal) = match what {
        Inject::Kill { signal, .. } => (rank_pid, signal),
        _ => (running.agent().expect("an agent runs below the guardian"), Signal::SIGKILL),
    };
    let at = monotonic_ns();
    kill(Pid::from_raw(pid), signal).expect("it is alive");
    Some(at)
}

/// Processes of the launcher: everything below the guardian but the ranks and what is below those.
pub fn launcher_pids(guardian: i32) -> Vec<i32> {
    let below = procfs::below(guardian).into_iter();
    let own =
        below.filter(|p| p.cmdline.contains(" __agent") || p.cmdline.contains(" __worker")).map(|p| p.pid);
    std::iter::once(guardian).chain(own).collect()
}

fn watch_memory(running: &mut Running, kib: u64, log: &Path, total: Duration) {
    let mut most = procfs::Usage::default();
    wait_for("the floods to end", total, || {
        let now = procfs::usage(&launcher_pids(running.pid()));
        if now.private_kib > most.private_kib {
            most = now;
        }
        let log = CommitLog::read_so_far(log);
        if log.of("end").next().is_some() || !running.is_running() { Ok(()) } else { Err(format!("{now:?}")) }
    });
    assert!(most.private_kib <= kib, "the launcher used {most:?}");
}

fn judge(row: &Row, scene: &Scene, ended: &Ended, journal: &Journal, log: &CommitLog, injected: Option<u64>) {
    let console = format!("{}\n{}", ended.stdout, ended.stderr);
    assert!(!console.contains("panicked at"), "the launcher panicked");
    assert_eq!(ended.code, row.code, "exit code");
    for text in row.console {
        assert!(console.contains(text), "the console does not show {text:?}");
    }
    if matches!(row.limit, Limit::Pss { .. }) {
        accounted(row.world, &console);
    }
    assert_eq!(journal.end_code, Some(u64::try_from(row.code).expect("a code")), "code of the end record");
    if row.code != 0 {
        return;
    }
    let expected = golden(row, scene);
    assert!(ended.stdout.contains(&format!("final hash {expected}")), "the final hash is not {expected}");
    assert!(log.of("end").all(|e| e.all["hash"] == expected.as_str()), "a rank ended with another hash");
    log.check(row.world, row.steps, row.ckpt_every);
    attempts(row, scene, journal, log);
    bounds(row, journal, log, injected);
}

/// The last line of each flood was shown, or it was said that lines are missing.
fn accounted(world: u64, console: &str) {
    for rank in 0..world {
        let shown = console.contains(&format!("flood over: rank {rank}"));
        assert!(shown || console.contains(" bytes dropped]"), "the end of rank {rank}'s flood is missing");
    }
}

fn golden(row: &Row, scene: &Scene) -> String {
    let mut command = scene.command("python3");
    command.arg(trainer()).arg("--print-hash-only").arg(format!("--steps={}", row.steps));
    let output = command.arg(format!("--world={}", row.world)).output().expect("python3 starts");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn attempts(row: &Row, scene: &Scene, journal: &Journal, log: &CommitLog) {
    let numbers: Vec<u64> = journal.attempts.iter().map(|a| a.number).collect();
    assert_eq!(numbers, (0..=row.roots.len() as u64).collect::<Vec<_>>(), "attempts of the journal");
    assert_eq!(log.newest_attempt(), row.roots.len() as u64, "attempts of the commit log");
    let wanted: Vec<_> =
        row.roots.iter().map(|root| root.map(|(rank, exit)| (rank, exit.to_owned()))).collect();
    let settled: Vec<_> = journal.roots().iter().map(|f| f.map(|f| (f.rank, f.exit.clone()))).collect();
    assert_eq!(settled, wanted, "first failures of the settled verdicts");
    for incident in 0..row.roots.len() {
        let report = scene.path(&format!("run/scene/incidents/{incident:04}/report.json"));
        let text = fs::read_to_string(&report).unwrap_or_default();
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{}: {text:?}", report.display());
    }
    for (attempt, root) in journal.attempts.iter().skip(1).zip(row.roots) {
        assert!(attempt.after_incident, "attempt {} has a cause", attempt.number);
        assert_eq!(attempt.charged, root.is_some(), "only a rank's failure is charged");
        let first = attempt.first_failure.as_ref().map(|f| f.rank);
        assert_eq!(
            first,
            root.map(|(rank, _)| rank),
            "first failure as known when attempt {} was opened",
            attempt.number
        );
    }
}

fn bounds(row: &Row, journal: &Journal, log: &CommitLog, injected: Option<u64>) {
    let offset = wall_minus_monotonic_ms();
    for (broken, next) in journal.attempts.iter().zip(journal.attempts.iter().skip(1)) {
        let last_step = log.of("step").filter(|e| e.attempt == broken.number).map(|e| e.t).max();
        let fault = if broken.number == 0 { injected } else { None };
        let Some(fault) = fault.or(log.fault_at(broken.number)).or(last_step) else { continue };
        if let Some(failure) = &next.first_failure {
            let late = i128::from(failure.wall_ms) - (i128::from(fault / 1_000_000) + offset);
            assert!(
                late <= row.detect.as_millis() as i128,
                "attempt {}: seen {late} ms after the fault",
                broken.number
            );
        }
        let Some(step) = log.first("step", next.number) else { continue };
        let took = Duration::from_nanos(step.saturating_sub(fault));
        assert!(took <= row.resume, "attempt {}: its first step came {took:?} after the fault", next.number);
    }
}

fn wall_minus_monotonic_ms() -> i128 {
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .expect("the clock is set")
        .as_millis();
    wall as i128 - i128::from(monotonic_ns() / 1_000_000)
}

/// Console text for messages: floods are cut.
fn short(text: &str) -> String {
    let keep = 6_000;
    let printable: String = text.chars().filter(|c| *c == '\n' || !c.is_control()).collect();
    let from = printable.char_indices().rev().nth(keep).map_or(0, |(at, _)| at);
    printable[from..].to_owned()
}
