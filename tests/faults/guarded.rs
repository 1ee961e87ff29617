//! The launcher's own processes die or stop.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::run::{Job, LONG, gone, signal, worker};
use crate::support::relight::{RelightCommand, Running, Scene};
use crate::support::wait::wait_for;
use crate::support::{leftovers, procfs};

/// A rank that is a wrapper: its program is a child, beside it a child that left its session and an orphan.
const WRAPPER: &str = "setsid sleep 1000 & (setsid sleep 1000 &); sleep 1000 & \"$@\"; exit $?";

/// The processes below the agent that are no workers, once there are as many as wanted.
fn below_the_agent(running: &Running, wanted: usize) -> Vec<i32> {
    wait_for("the ranks and all below them", LONG, || {
        let agent = running.agent().ok_or("no agent")?;
        let found = procfs::below(agent).into_iter().filter(|p| p.state != 'Z' && !p.cmdline.contains(" __"));
        let found: Vec<i32> = found.map(|p| p.pid).collect();
        if found.len() == wanted { Ok(found) } else { Err(format!("{found:?}")) }
    })
}

#[test]
fn sigkill_of_the_guardian_takes_agent_and_ranks_with_it() {
    let scene = Scene::new();
    let mut command = RelightCommand::run(&scene);
    command.args(["--nproc-per-node=2", "--no-python", "sh", "-c", WRAPPER, "sh", "sleep", "1000"]);
    let running = command.spawn();
    let mut all = below_the_agent(&running, 2 * 5);
    let agent = running.agent().expect("an agent runs below the guardian");
    all.extend([agent, worker(&running, "store"), worker(&running, "logs")]);
    signal(running.pid(), Signal::SIGKILL);
    let killed = Instant::now();
    gone(&all, Duration::from_secs(10));
    eprintln!("all gone after {:?}", killed.elapsed());
    assert_eq!(running.wait(LONG).code, 128 + 9);
    // The lock's file of a guardian that could not remove it is no harm: it is free.
    std::fs::remove_dir_all(scene.path("runtime")).expect("a folder of the scene");
    leftovers::assert_none(&scene);
}

#[test]
fn a_grant_that_ends_kills_the_ranks_of_a_stopped_agent() {
    // T: lost - 0.7 s.
    const GRANT: Duration = Duration::from_millis(5_300);
    let job = Job::new(2, 400);
    let mut command = RelightCommand::run(&job.scene);
    // No restart is paid for: nobody failed.
    command.args(["--nproc-per-node=2", "--max-restarts=0", "--grant=lease", "--lost-after=6"]);
    command.args(["--no-python", "sh", "-c", WRAPPER, "sh", "python3"]).arg(crate::scenario::trainer());
    command.args(job.trainer_args()).args(["--step-time=0.02"]);
    let running = command.spawn();
    job.reaches(0, 1, 12);
    let ranks = below_the_agent(&running, 2 * 5);
    let agent = running.agent().expect("an agent runs below the guardian");
    signal(agent, Signal::SIGSTOP);
    let stopped = Instant::now();
    gone(&ranks, GRANT * 4);
    let took = stopped.elapsed();
    eprintln!("all ranks gone after {took:?}");
    assert!(took < GRANT + Duration::from_secs(1), "{took:?}");
    assert_eq!(procfs::read(agent).map(|p| p.state), Some('T'), "the agent itself is left alone");
    signal(agent, Signal::SIGCONT);
    let (_, journal) = job.finishes(running, LONG);
    let events = std::fs::read_to_string(job.scene.path("run/scene/events.jsonl")).unwrap_or_default();
    // The guardian may still be killing when the agent has its next grant: then that world falls too.
    assert!(matches!(journal.attempts.len(), 2 | 3), "{events}");
    for attempt in &journal.attempts[1..] {
        assert!(!attempt.charged && attempt.first_failure.is_none(), "{journal:?}");
    }
}

#[test]
fn a_stopped_agent_that_goes_on_in_time_changes_nothing() {
    let job = Job::new(2, 150);
    let options = ["--max-restarts=0", "--grant=lease", "--lost-after=6"];
    let running = job.command(&options, &["--step-time=0.02"]).spawn();
    job.reaches(0, 1, 12);
    let agent = running.agent().expect("an agent runs below the guardian");
    signal(agent, Signal::SIGSTOP);
    // Three seconds, all the while training goes on.
    let begun = Instant::now();
    let reached = job.so_far().reached(0, 0);
    wait_for("three seconds of training", LONG, || {
        let now = job.so_far().reached(0, 0);
        if begun.elapsed() >= Duration::from_secs(3) && now > reached {
            Ok(())
        } else {
            Err(format!("step {now}"))
        }
    });
    signal(agent, Signal::SIGCONT);
    let (_, journal) = job.finishes(running, LONG);
    assert_eq!(journal.attempts.len(), 1);
}

#[test]
fn killed_workers_cost_the_job_nothing() {
    let job = Job::new(2, 200);
    let running = job.command(&["--max-restarts=1"], &["--step-time=0.02"]).spawn();
    job.reaches(0, 1, 5);
    for (round, kind) in ["store", "logs", "logs", "store"].into_iter().enumerate() {
        let pid = worker(&running, kind);
        signal(pid, Signal::SIGKILL);
        gone(&[pid], LONG);
        let step = job.so_far().reached(0, 1);
        // Training does not wait for the new one.
        job.reaches(0, 1, step + 3 + round as u64);
    }
    // A failure right behind the loss of both workers.
    for kind in ["store", "logs"] {
        signal(worker(&running, kind), Signal::SIGKILL);
    }
    let rank = job.so_far().pid(0, 1).expect("it started");
    signal(rank, Signal::SIGKILL);
    let (ended, journal) = job.finishes(running, LONG);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    assert_eq!(journal.roots().len(), 1);
    for step in 1..=200 {
        assert!(ended.stdout.contains(&format!("step {step}/200 ")), "the line of step {step} is missing");
    }
}

#[test]
fn a_stopped_store_worker_stops_nothing_else() {
    let job = Job::new(2, 600);
    let options = ["--max-restarts=1", "--grant=lease", "--lost-after=6"];
    let mut running = job.command(&options, &["--step-time=0.02"]).spawn();
    let victim = job.reaches(0, 1, 12);
    let peer = job.so_far().pid(0, 0).expect("it started");
    let store = worker(&running, "store");
    signal(store, Signal::SIGSTOP);
    let stopped = Instant::now();
    job.reaches(0, 1, 30);
    signal(victim, Signal::SIGKILL);
    let killed = Instant::now();
    // Stopping needs no record.
    gone(&[victim, peer], Duration::from_secs(4));
    let down = killed.elapsed();
    job.reaches(1, 1, 1);
    let back = killed.elapsed();
    eprintln!("peer stopped after {down:?}, training again after {back:?}; worker replaced");
    assert!(back < Duration::from_secs(20), "{back:?}");
    // The one that was stopped was given up; whoever is left of it after 20 s goes on and harms nothing.
    wait_for("twenty seconds", LONG, || {
        let over = stopped.elapsed() >= Duration::from_secs(20) || !running.is_running();
        if over { Ok(()) } else { Err(format!("{:?}", stopped.elapsed())) }
    });
    signal(store, Signal::SIGCONT);
    let (ended, journal) = job.finishes(running, LONG);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
}
