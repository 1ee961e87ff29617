//! The launcher's own processes die or stop.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::run::{Job, LONG, gone, signal, worker};
use crate::support::relight::{RelightCommand, Running, Scene};
use crate::support::wait::wait_for;
use crate::support::{leftovers, procfs};

/// A rank that is a wrapper: its program is a child, beside it a child that left its session and an orphan.
pub const WRAPPER: &str = "setsid sleep 1000 & (setsid sleep 1000 &); sleep 1000 & \"$@\"; exit $?";

/// The processes below the agent that are no workers, once there are as many as wanted.
pub fn below_the_agent(running: &Running, wanted: usize) -> Vec<i32> {
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
    // The lock's file, too: the agent removes it in its guardian's place.
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
    // By the guardian, with the grant; a busy machine may take its time.
    gone(&ranks, GRANT * 4);
    wait_for("the guardian to say so", LONG, || {
        let said = std::fs::read_to_string(job.scene.path("stderr")).unwrap_or_default();
        if said.contains("this node's grant ran out") { Ok(()) } else { Err(said) }
    });
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
fn an_agent_that_stays_stopped_without_a_grant_is_started_again() {
    let job = Job::new(2, 150);
    // No restart is paid for: nobody failed.
    let options = ["--max-restarts=0", "--grant=lease", "--lost-after=6"];
    let running = job.command(&options, &["--step-time=0.02"]).spawn();
    job.reaches(0, 1, 12);
    let agent = running.agent().expect("an agent runs below the guardian");
    signal(agent, Signal::SIGSTOP);
    let stopped = Instant::now();
    gone(&[agent], LONG);
    let took = stopped.elapsed();
    eprintln!("the agent was killed after {took:?}");
    assert!(took > Duration::from_secs(14), "{took:?}: before it could come back by itself");
    let (ended, journal) = job.finishes(running, LONG);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    assert!(journal.attempts.iter().skip(1).all(|a| !a.charged && a.first_failure.is_none()), "{journal:?}");
    for sentence in
        ["stands still 10 s after its grant ran out", "ended (SIGKILL); starting it again (1 of 3)"]
    {
        assert!(ended.stderr.contains(sentence), "{}", ended.stderr);
    }
}

#[test]
fn signals_of_no_meaning_end_no_guardian() {
    let job = Job::new(2, 100);
    let running = job.command(&["--max-restarts=0"], &["--step-time=0.02"]).spawn();
    job.reaches(0, 1, 5);
    // SIGRTMIN to SIGRTMAX have no name in nix.
    for number in [14, 16, 24, 26, 27, 29, 30, 34, 35, 50, 64] {
        let sent = std::process::Command::new("kill")
            .args([format!("-{number}"), running.pid().to_string()])
            .status();
        assert!(sent.is_ok_and(|status| status.success()), "{number}");
    }
    let (_, journal) = job.finishes(running, LONG);
    assert_eq!(journal.attempts.len(), 1);
}

/// Two ranks that ignore TERM, stopped with this grace; the agent, once they are being stopped.
fn stopping(scene: &Scene, grace: &str) -> (Running, i32) {
    let mut command = RelightCommand::run(scene);
    command.args(["--nproc-per-node=2", "--shutdown-timeout", grace, "--no-python"]);
    command.args(["sh", "-c", "trap '' TERM; : >up.$RANK; sleep 1000"]);
    let running = command.spawn();
    wait_for("both ranks", LONG, || {
        let there = |rank: u32| scene.path("exp").join(format!("up.{rank}")).exists();
        if there(0) && there(1) { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let agent = running.agent().expect("an agent runs below the guardian");
    signal(running.pid(), Signal::SIGTERM);
    wait_for("the stop", LONG, || {
        let said = std::fs::read_to_string(scene.path("stderr")).unwrap_or_default();
        if said.contains("stopping 2 ranks (SIGTERM)") { Ok(()) } else { Err(said) }
    });
    (running, agent)
}

#[test]
fn a_stop_ends_a_run_whose_agent_is_stopped() {
    let scene = Scene::new();
    let mut command = RelightCommand::run(&scene);
    command.args(["--nproc-per-node=2", "--no-python", "sleep", "1000"]);
    let running = command.spawn();
    below_the_agent(&running, 2);
    let agent = running.agent().expect("an agent runs below the guardian");
    signal(agent, Signal::SIGSTOP);
    wait_for("the stopped agent", LONG, || match procfs::read(agent) {
        Some(p) if p.state == 'T' => Ok(()),
        other => Err(format!("{other:?}")),
    });
    signal(running.pid(), Signal::SIGTERM);
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    assert!(ended.stderr.contains("stopped by SIGTERM. Exit 143."), "{}", ended.stderr);
    leftovers::assert_none(&scene);
}

#[test]
fn an_agent_that_never_ends_after_a_stop_is_killed_with_its_ranks() {
    let scene = Scene::new();
    // Once it has heard: nothing wakes it any more.
    let (running, agent) = stopping(&scene, "4s");
    signal(agent, Signal::SIGSTOP);
    let stopped = Instant::now();
    let ended = running.wait(LONG);
    let took = stopped.elapsed();
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("SIGTERM arrived 14 s ago and the agent on this node has not ended"), "{last}");
    assert!((12..25).contains(&took.as_secs()), "{took:?}");
    leftovers::assert_none(&scene);
}

#[test]
fn an_agent_that_dies_while_it_stops_ends_the_run_with_a_true_sentence() {
    let scene = Scene::new();
    let (running, agent) = stopping(&scene, "30s");
    signal(agent, Signal::SIGKILL);
    let ended = running.wait(LONG);
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap_or_default();
    let expected = "relight: the agent on this node ended (SIGKILL) while it was stopping (SIGTERM); ending";
    assert_eq!(last, expected, "{}", ended.stderr);
    leftovers::assert_none(&scene);
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
