//! Nodes that come back: as spares, whatever kept them away, and never thrown out.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training, events_of, kinds_of};
use crate::support::freezer::Freezer;
use crate::support::wait::wait_for;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const LONG: Training = Training { world: 4, steps: 150, step_time: "0.1", ckpt_every: 10, args: &[] };
const ONE_SPARE: &[&str] = &["--nproc-per-node=2", "--max-restarts=3", "--nnodes=2", "--spares=1"];

fn three() -> Vec<&'static str> {
    SRUN.iter().copied().chain(["-N3"]).collect()
}

/// The node was lost once, it came back to wait as a spare, and nobody was thrown out.
fn came_back_as_a_spare(run: &Path, node: &str) {
    let of_node = |name: &str| {
        let events = events_of(run, name);
        events.into_iter().filter(|e| e["node"] == node).collect::<Vec<_>>()
    };
    assert_eq!(of_node("node_lost").len(), 1, "{:?}", events_of(run, "node_lost"));
    let back = of_node("node_back");
    assert!(back.iter().any(|e| e["spare"] == true), "{node} came back: {back:?}");
    let kinds = kinds_of(run);
    assert!(!kinds.iter().any(|kind| kind == "evict"), "{kinds:?}");
}

#[test]
fn s39_a_node_without_power_is_replaced_and_comes_back_as_a_spare() {
    let Some(cluster) = Cluster::patient(3) else { return };
    let gate = cluster.gate();
    let training = Training { args: &["--fault=write=gate:0:40:1"], ..LONG };
    let job = Job::start(&cluster, "power", &three(), ONE_SPARE, training);
    job.reached(0, 12);
    let off = Instant::now();
    cluster.ok(&["power-off", "2"]);
    job.reached(1, 1);
    // Not after the timeout of a collective, which is ten minutes and more: 6 s of silence, and a restart.
    assert!(off.elapsed() < s(30), "{:?}", off.elapsed());
    // Alone, it trains on for no longer than its grant and writes no checkpoint: the log of the trainer says so below.
    cluster.ok(&["power-on", "2"]);
    job.stands(2, "spare", s(60));
    job.reached(1, 39);
    std::fs::read(gate).expect("the rank that waits there writes");
    let (ended, journal, _) = job.finishes(s(90), &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("n2"), "{}", ended.stderr);
    came_back_as_a_spare(&cluster.shared().join("runs/power"), "n2");
}

/// Stops processes of the second node for 60 s while the others train on.
fn stopped_for_a_minute(cluster: &Cluster, name: &'static str, whole_node: bool) {
    let training = Training { steps: 800, ..LONG };
    let job = Job::start(cluster, name, &three(), ONE_SPARE, training);
    job.reached(0, 12);
    let all = |signal: &str| {
        let agent = cluster.agent_on(2);
        let pids: Vec<i32> = if whole_node {
            cluster.ours_on(2).into_iter().map(|(pid, _)| pid).collect()
        } else {
            vec![agent]
        };
        for pid in pids {
            cluster.signal_on(2, pid, signal);
        }
    };
    all("STOP");
    let stopped = std::time::Instant::now();
    job.stands(2, "lost", s(20));
    job.reached(1, 1);
    // The minute itself is the fault.
    std::thread::sleep(s(60).saturating_sub(stopped.elapsed()));
    all("CONT");
    job.stands(2, "spare", s(20));
    let (ended, journal, _) = job.finishes(s(120), &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    came_back_as_a_spare(&cluster.shared().join("runs").join(name), "n2");
}

#[test]
fn s38_an_agent_that_is_stopped_for_a_minute_loses_its_ranks_and_returns_as_a_spare() {
    let Some(cluster) = Cluster::up(3) else { return };
    stopped_for_a_minute(&cluster, "stopped", false);
}

#[test]
fn s38_a_node_that_stands_still_for_a_minute_returns_as_a_spare() {
    let Some(cluster) = Cluster::up(3) else { return };
    stopped_for_a_minute(&cluster, "frozen", true);
}

#[test]
fn a_node_with_a_process_that_survives_sigkill_is_dirty_until_it_is_gone() {
    let Some(freezer) = Freezer::new() else { return };
    let bound = freezer.place();
    let bound = bound.to_str().unwrap();
    let Some(cluster) = Cluster::with(3, &["--bind", bound]) else { return };
    // Rank 3 waits in the kernel for a file system that stands still, and rank 0 dies.
    let stuck: &'static str = Box::leak(format!("--fault=write={bound}/file:3:12").into_boxed_str());
    let args: &'static [&'static str] =
        Box::leak(Box::new([stuck, "--fault=slow=2:0:12", "--fault=signal=KILL:0:12"]));
    let job = Job::start(&cluster, "dirty", &three(), ONE_SPARE, Training { steps: 300, args, ..LONG });
    job.reached(0, 9);
    freezer.freeze(true);
    // The world that counted on n2 never began.
    job.reached(2, 1);
    job.stands(2, "dirty", s(20));
    let dirty = job.events("node_dirty");
    assert_eq!(dirty[0]["node"], "n2", "{dirty:?}");
    assert_eq!(dirty[0]["survivors"][0][1], "D", "{dirty:?}");
    let shown = job.shown();
    assert!(shown.contains("survived SIGKILL; no ranks there until it is gone"), "{shown}");
    assert!(shown.contains("n2 has a process that survived SIGKILL; n3 "), "{shown}");
    freezer.freeze(false);
    job.stands(2, "spare", s(30));
    wait_for("its return to be said", s(10), || {
        let shown = job.shown();
        if shown.contains("n2 is back: it waits as a spare") { Ok(()) } else { Err(shown) }
    });
    let (ended, journal, _) = job.finishes(s(90), &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 3, "{}", ended.stderr);
    let charged: Vec<bool> = journal.attempts.iter().map(|a| a.charged).collect();
    assert_eq!(charged, [false, true, false], "{}", ended.stderr);
    assert!(job_was_not_lost(&cluster, "dirty"), "{}", ended.stderr);
    drop(cluster);
}

/// Dirty is not lost, and nobody was thrown out.
fn job_was_not_lost(cluster: &Cluster, name: &str) -> bool {
    let run = cluster.shared().join("runs").join(name);
    events_of(&run, "node_lost").is_empty() && !kinds_of(&run).iter().any(|kind| kind == "evict")
}

/// As gang scheduling does it: every process of the step stands still, and goes on a minute later.
#[test]
fn a_job_that_is_suspended_for_a_minute_goes_on() {
    let Some(cluster) = Cluster::patient(2) else { return };
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N2"]).collect();
    let options = ["--nproc-per-node=2", "--max-restarts=3"];
    let job = Job::start(&cluster, "suspended", &launcher, &options, Training { steps: 300, ..LONG });
    job.reached(0, 12);
    let on_ctl = |words: &[&str]| {
        let said = cluster.exec(&[]).args(words).output().unwrap();
        assert!(said.status.success(), "{words:?}: {said:?}");
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    };
    let id = on_ctl(&["squeue", "-h", "-o", "%i"]);
    on_ctl(&["scontrol", "suspend", &id]);
    // The minute itself is the fault.
    std::thread::sleep(s(60));
    on_ctl(&["scontrol", "resume", &id]);
    let (ended, journal, _) = job.finishes(s(120), &[1, 2]);
    // Whoever slept blames nobody; but every grant was over, and ranks do not run without one.
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    assert!(!journal.attempts[1].charged, "{}", ended.stderr);
    let run = cluster.shared().join("runs/suspended");
    assert_eq!(events_of(&run, "node_lost"), Vec::<serde_json::Value>::new());
    assert!(!kinds_of(&run).iter().any(|kind| kind == "evict"), "{}", ended.stderr);
}
