//! 200 restarts in one run: the launcher stays as it was.

use std::time::Duration;

use crate::commit_log::CommitLog;
use crate::journal::Journal;
use crate::scenario::{launcher_pids, trainer};
use crate::support::procfs::{Usage, usage};
use crate::support::relight::{RelightCommand, Scene};
use crate::support::{leftovers, wait::wait_for};

const CYCLES: u64 = 200;

#[test]
fn s86_two_hundred_restarts_leave_memory_files_and_threads_flat() {
    let scene = Scene::new();
    let log = scene.path("commit.log");
    let mut command = RelightCommand::run(&scene);
    // Without the site's packages Python starts twice as fast, and its start is most of a cycle.
    command.args(["--nproc-per-node=2", "--max-restarts=1000", "--no-python", "python3", "-I", "-S"]);
    command.arg(trainer());
    command.args(["--steps=3", "--step-time=0", "--ckpt-every=0", "--quiet", "--log"]).arg(&log);
    for attempt in 0..CYCLES {
        command.arg(format!("--fault=signal=KILL:1:2:{attempt}"));
    }
    let mut running = command.spawn();
    let mut samples: Vec<(u64, Usage)> = Vec::new();
    // How long all of them take is the machine's business, and what else it does; each of them comes.
    while running.is_running() {
        let before = samples.last().map(|(attempt, _)| *attempt);
        let next = wait_for("the next restart, or the end", Duration::from_secs(60), || {
            let attempt = CommitLog::newest_attempt_in(&log);
            let moved = before.is_none_or(|before| before < attempt);
            if moved || !running.is_running() { Ok(attempt) } else { Err(format!("attempt {attempt}")) }
        });
        samples.push((next, usage(&launcher_pids(running.pid()))));
    }
    let ended = running.wait(Duration::from_secs(30));
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let journal = Journal::read(&scene.path("run"), "scene");
    assert_eq!(journal.attempts.len() as u64, CYCLES + 1);
    assert!(journal.roots().iter().all(|root| root.is_some_and(|f| f.rank == 1 && f.exit == "signal 9")));
    CommitLog::read(&log).check(2, 3, 0);
    let early = typical(&samples, CYCLES / 10, CYCLES * 3 / 10);
    let late = typical(&samples, CYCLES * 8 / 10, CYCLES);
    eprintln!("{CYCLES} restarts in {:?}: {early:?} to {late:?}", ended.took);
    assert!(late.threads <= early.threads + 1, "threads grew: {early:?} to {late:?}");
    assert!(late.files <= early.files + 4, "open files grew: {early:?} to {late:?}");
    assert!(late.private_kib <= early.private_kib + 2_048, "memory grew: {early:?} to {late:?}");
    leftovers::assert_none(&scene);
}

/// Medians over the samples of some attempts.
fn typical(samples: &[(u64, Usage)], from: u64, to: u64) -> Usage {
    let chosen: Vec<Usage> =
        samples.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, usage)| *usage).collect();
    let median = |field: fn(&Usage) -> u64| {
        let mut values: Vec<u64> = chosen.iter().map(field).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().expect("samples were taken")
    };
    Usage {
        processes: median(|u| u.processes),
        threads: median(|u| u.threads),
        files: median(|u| u.files),
        private_kib: median(|u| u.private_kib),
    }
}
