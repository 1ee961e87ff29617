//! The run directory is on a file system that stands still for 30 s: nothing waits for it but what is written there.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training};
use crate::support::freezer::Freezer;
use crate::support::wait::wait_for;

const STALL: Duration = Duration::from_secs(30);

/// Ranks of the trainer on the nodes.
fn ranks(cluster: &Cluster) -> Vec<(u32, i32)> {
    let on = |node| {
        let ours = cluster.ours_on(node).into_iter();
        let ranks =
            ours.filter(|(_, line)| line.contains("toy_trainer.py --steps") && !line.contains("relight run"));
        ranks.map(move |(pid, _)| (node, pid)).collect::<Vec<_>>()
    };
    [1, 2].into_iter().flat_map(on).collect()
}

/// A run of two nodes whose run directory can be frozen.
fn job<'a>(cluster: &'a Cluster, bound: &str, name: &'static str, steps: u64) -> Job<'a> {
    fs::create_dir(Path::new(bound).join("runs")).unwrap();
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N2"]).collect();
    let training = Training { world: 4, steps, step_time: "0.1", ckpt_every: 10, args: &[] };
    let options = ["--nproc-per-node=2", "--max-restarts=3"];
    Job::start_in(cluster, &Path::new(bound).join("runs"), name, &launcher, &options, training)
}

fn all_stopped(cluster: &Cluster) {
    wait_for("all ranks to be stopped", Duration::from_secs(10), || match ranks(cluster) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
}

#[test]
fn a_shared_directory_that_stalls_for_30_s_costs_no_beat_and_delays_no_kill() {
    let Some(freezer) = Freezer::new() else { return };
    let bound = freezer.place();
    let bound = bound.to_str().unwrap();
    let Some(cluster) = Cluster::with(2, &["--bind", bound]) else { return };
    let job = job(&cluster, bound, "stalls", 400);
    job.reached(0, 12);
    let began = Instant::now();
    freezer.freeze(true);
    let at = job.log().reached(0, 0);
    // Twice the time after which a node is lost: training goes on.
    job.reached(0, at + 90);
    let victim = ranks(&cluster).into_iter().rfind(|(node, _)| *node == 2).expect("ranks on the second node");
    cluster.signal_on(2, victim.1, "KILL");
    all_stopped(&cluster);
    assert!(began.elapsed() < STALL, "the machine is too slow for this test: {:?}", began.elapsed());
    std::thread::sleep(STALL.saturating_sub(began.elapsed()));
    freezer.freeze(false);
    let (ended, journal, _) = job.finishes(Duration::from_secs(120), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    assert!(!ended.stderr.contains("is gone"), "no node was lost: {}", ended.stderr);
    drop(cluster);
}

#[test]
fn an_agent_that_starts_while_the_directory_stalls_waits_for_it() {
    let Some(freezer) = Freezer::new() else { return };
    let bound = freezer.place();
    let bound = bound.to_str().unwrap();
    let Some(cluster) = Cluster::with(2, &["--bind", bound]) else { return };
    let job = job(&cluster, bound, "starts", 100);
    job.reached(0, 12);
    let began = Instant::now();
    freezer.freeze(true);
    let agent = cluster.agent_on(2);
    cluster.signal_on(2, agent, "KILL");
    all_stopped(&cluster);
    // Its guardian has started another one, which is not there without the secret that lies in the directory.
    assert_ne!(cluster.agent_on(2), agent);
    assert!(began.elapsed() < STALL, "the machine is too slow for this test: {:?}", began.elapsed());
    std::thread::sleep(STALL.saturating_sub(began.elapsed()));
    freezer.freeze(false);
    let (ended, journal, _) = job.finishes(Duration::from_secs(120), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    drop(cluster);
}

#[test]
fn a_stop_while_the_directory_stalls_ends_the_run() {
    let Some(freezer) = Freezer::new() else { return };
    let bound = freezer.place();
    let bound = bound.to_str().unwrap();
    let Some(cluster) = Cluster::with(2, &["--bind", bound]) else { return };
    let job = job(&cluster, bound, "stops", 4000);
    job.reached(0, 12);
    freezer.freeze(true);
    let guardian = cluster
        .ours_on(1)
        .into_iter()
        .find(|(_, line)| line.contains("relight run") && !line.contains("srun"))
        .expect("a guardian on the first node");
    cluster.signal_on(1, guardian.0, "TERM");
    all_stopped(&cluster);
    // The end cannot be written: nobody waits for that. What tried to write is beyond any signal until the thaw.
    wait_for("guardians and agents to end", Duration::from_secs(30), || {
        let ours = [1, 2].into_iter().flat_map(|node| cluster.ours_on(node));
        let left: Vec<_> = ours.filter(|(_, line)| !line.contains("__worker")).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    freezer.freeze(false);
    cluster.nothing_left([1, 2], Duration::from_secs(10));
    let (ended, _, _) = job.wait(Duration::from_secs(30));
    // The code of a run that was stopped; the words for it may be lost with the worker that writes logs.
    assert_eq!(ended.code, 143, "{}", ended.stderr);
    drop(cluster);
}
