//! Failures that come together, in bad moments, or again and again.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::run::{Job, LONG, gone, notes, signal};
use crate::support::leftovers;
use crate::support::procfs;
use crate::support::relight::{RelightCommand, Running, Scene};

#[test]
fn two_ranks_killed_at_once_are_one_incident() {
    let job = Job::new(4, 40);
    let running = job.command(&["--max-restarts=1"], &["--step-time=0.02"]).spawn();
    let one = job.reaches(0, 1, 12);
    let two = job.so_far().pid(0, 2).expect("it started");
    signal(one, Signal::SIGKILL);
    signal(two, Signal::SIGKILL);
    let (ended, journal) = job.finishes(running, LONG);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    let roots = journal.roots();
    assert_eq!(roots.len(), 1);
    assert!(roots[0].is_some_and(|f| (f.rank == 1 || f.rank == 2) && f.exit == "signal 9"), "{roots:?}");
}

#[test]
fn a_stopped_rank_delays_no_restart() {
    let job = Job::new(4, 40);
    let running = job.command(&["--max-restarts=1"], &["--step-time=0.02"]).spawn();
    let victim = job.reaches(0, 2, 12);
    let stopped = job.so_far().pid(0, 3).expect("it started");
    signal(stopped, Signal::SIGSTOP);
    crate::support::wait::wait_for("a stopped rank", LONG, || match procfs::read(stopped) {
        Some(p) if p.state == 'T' => Ok(()),
        other => Err(format!("{other:?}")),
    });
    signal(victim, Signal::SIGKILL);
    job.finishes(running, LONG);
    // Its grace of 2 s is not waited for.
    let down = job.down(1);
    eprintln!("down for {down:?}");
    assert!(down < Duration::from_millis(1_500), "{down:?}");
}

#[test]
fn a_rank_deaf_to_sigterm_delays_a_restart_by_its_grace_and_no_more() {
    let job = Job::new(4, 40);
    let faults = ["--step-time=0.02", "--fault=ignore-term:3:1", "--fault=hang:3:13"];
    let running = job.command(&["--max-restarts=1"], &faults).spawn();
    let victim = job.reaches(0, 2, 12);
    let stopped = job.so_far().pid(0, 1).expect("it started");
    signal(stopped, Signal::SIGSTOP);
    signal(victim, Signal::SIGKILL);
    job.finishes(running, LONG);
    let down = job.down(1);
    eprintln!("down for {down:?}");
    assert!(down > Duration::from_millis(1_900) && down < Duration::from_millis(3_500), "{down:?}");
}

/// Forks orphans that end at random moments, itself ends in their midst.
const STORM: &str = "
import os, random, sys, time
for _ in range(60):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(random.random() * 0.6)
            os._exit(9)
        os._exit(3)
rank, attempt = int(os.environ['RANK']), int(os.environ['TORCHELASTIC_RESTART_COUNT'])
time.sleep(30 if attempt == 0 and rank != 2 else 0.3)
os._exit(7 if attempt == 0 else 0)
";

#[test]
fn a_storm_of_orphans_costs_no_rank_its_status() {
    for fallback in ["", "all"] {
        let scene = Scene::new();
        let mut command = RelightCommand::run(&scene);
        command.env("RELIGHT_FORCE_FALLBACK", fallback);
        command.args(["--nproc-per-node=4", "--max-restarts=1", "--no-python", "python3", "-c", STORM]);
        let ended = command.spawn().wait(LONG);
        assert_eq!(ended.code, 0, "{fallback:?}: {}", ended.stderr);
        let journal = crate::journal::Journal::read(&scene.path("run"), "scene");
        let roots = journal.roots();
        assert_eq!(roots.len(), 1);
        assert!(roots[0].is_some_and(|f| f.rank == 2 && f.exit == "code 7"), "{roots:?}");
        let ends: Vec<_> = notes(&scene, "rank_ended").into_iter().filter(|n| n["attempt"] == 1).collect();
        assert_eq!(ends.len(), 4, "{ends:?}");
        leftovers::assert_none(&scene);
    }
}

#[test]
fn attempt_numbers_are_never_used_again() {
    let job = Job::new(2, 30);
    let faults = [
        "--step-time=0.02",
        "--fault=signal=KILL:1:8:0",
        "--fault=signal=KILL:1:13:1",
        "--fault=hang:0:18:2",
    ];
    let ended = job.command(&["--max-restarts=1"], &faults).spawn().wait(LONG);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    leftovers::assert_none(&job.scene);
    assert_eq!(job.journal().attempts.len(), 2);
    // The same command again goes on with the history; this time the launcher itself is killed in attempt 2.
    let running = job.command(&["--max-restarts=1"], &faults).spawn();
    job.reaches(2, 0, 17);
    let below: Vec<i32> = procfs::below(running.pid()).iter().map(|p| p.pid).collect();
    signal(running.pid(), Signal::SIGKILL);
    running.wait(LONG);
    gone(&below, LONG);
    let again = job.command(&["--max-restarts=1"], &faults).spawn();
    let (_, journal) = job.finishes(again, LONG);
    let numbers: Vec<u64> = journal.attempts.iter().map(|a| a.number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    let mut seen: Vec<u64> = job.so_far().of("start").map(|e| e.attempt).collect();
    seen.dedup();
    assert_eq!(seen, [0, 1, 2, 3], "TORCHELASTIC_RESTART_COUNT");
}

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % limit
    }
}

/// Ranks of now, also those between fork and exec: the agent's children that are no workers.
fn ranks(running: &Running) -> Vec<i32> {
    let Some(agent) = running.agent() else { return Vec::new() };
    let children = procfs::all().into_values().filter(|p| p.ppid == agent && p.state != 'Z');
    children.filter(|p| !p.cmdline.contains("__worker")).map(|p| p.pid).collect()
}

#[test]
fn ranks_killed_at_random_moments_cost_no_step() {
    let seed = std::env::var("RELIGHT_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(crate::support::wait::monotonic_ns);
    eprintln!("RELIGHT_TEST_SEED={seed}");
    let mut dice = Dice(seed);
    let job = Job::new(4, 250);
    let mut running = job.command(&["--max-restarts=1000"], &["--step-time=0.02", "--quiet"]).spawn();
    let begun = Instant::now();
    let mut kills = 0;
    while begun.elapsed() < Duration::from_secs(20) && running.is_running() {
        // Half of them within or right behind the restart that the one before caused.
        let pause = if dice.below(2) == 0 { dice.below(60) } else { dice.below(2_500) };
        std::thread::sleep(Duration::from_millis(pause));
        let ranks = ranks(&running);
        if let Some(pid) = ranks.get(dice.below(ranks.len().max(1) as u64) as usize) {
            let how = [Signal::SIGKILL, Signal::SIGKILL, Signal::SIGTERM, Signal::SIGSEGV];
            signal(*pid, how[dice.below(4) as usize]);
            kills += 1;
        }
    }
    let (_, journal) = job.finishes(running, Duration::from_secs(150));
    let attempts = journal.attempts.len();
    eprintln!("{kills} kills, {attempts} attempts");
    assert!(attempts > 3, "{attempts} attempts of {kills} kills");
    assert_eq!(journal.roots().len(), attempts - 1, "one incident each");
}
