//! Ranks, agents and nodes are lost, and the run goes on.

use std::time::Duration;

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const SHORT: Training = Training { world: 4, steps: 30, step_time: "0.03", ckpt_every: 5, args: &[] };
const LONG: Training = Training { world: 4, steps: 150, step_time: "0.1", ckpt_every: 10, args: &[] };
const TWO: &[&str] = &["--nproc-per-node=2", "--max-restarts=3"];

fn srun(nodes: &str) -> Vec<&str> {
    SRUN.iter().copied().chain(["-N", nodes]).collect()
}

#[test]
fn a_rank_dies_and_the_same_nodes_go_on() {
    let Some(cluster) = Cluster::up(2) else { return };
    let training = Training { args: &["--fault=signal:3:12"], ..SHORT };
    let job = Job::start(&cluster, "dies", &srun("2"), TWO, training);
    let (ended, journal, _) = job.finishes(s(60), &[1, 2]);
    let root = journal.roots()[0].expect("a verdict");
    assert_eq!((root.rank, root.exit.as_str()), (3, "signal 9"));
    assert!(ended.stderr.contains("rank 3 (n2) died: SIGKILL"), "{}", ended.stderr);
    assert_eq!(journal.attempts.len(), 2);
}

#[test]
fn s39_a_node_without_power_is_replaced_and_comes_back_as_a_spare() {
    let Some(cluster) = Cluster::up(3) else { return };
    let options = [TWO, &["--nnodes=2", "--spares=1"]].concat();
    let job = Job::start(&cluster, "power", &srun("3"), &options, LONG);
    job.reached(0, 12);
    cluster.ok(&["power-off", "2"]);
    job.reached(1, 1);
    // The side that is cut off ends by itself: nothing of it trains on.
    cluster.ok(&["power-on", "2"]);
    let (ended, journal, _) = job.finishes(s(90), &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("n2"), "{}", ended.stderr);
}

#[test]
fn s38_an_agent_that_is_stopped_loses_its_ranks_and_returns_as_a_spare() {
    let Some(cluster) = Cluster::up(3) else { return };
    let options = [TWO, &["--nnodes=2", "--spares=1"]].concat();
    let job = Job::start(&cluster, "stopped", &srun("3"), &options, LONG);
    job.reached(0, 12);
    let agent = cluster.agent_on(2);
    cluster.signal_on(2, agent, "STOP");
    job.reached(1, 1);
    cluster.signal_on(2, agent, "CONT");
    let (_, journal, _) = job.finishes(s(90), &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 2);
}

#[test]
fn s37_an_agent_that_is_stopped_for_three_seconds_is_no_loss() {
    let Some(cluster) = Cluster::up(2) else { return };
    let job = Job::start(&cluster, "pause", &srun("2"), TWO, LONG);
    job.reached(0, 12);
    let agent = cluster.agent_on(2);
    // The pause itself is the fault.
    cluster.on_node(2, &format!("kill -STOP {agent}; sleep 3; kill -CONT {agent}"));
    let (_, journal, _) = job.finishes(s(60), &[1, 2]);
    assert_eq!(journal.attempts.len(), 1);
}

#[test]
fn the_first_node_is_lost_and_the_run_ends_everywhere() {
    let Some(cluster) = Cluster::up(3) else { return };
    let job = Job::start(
        &cluster,
        "first",
        &srun("3"),
        &["--nproc-per-node=1"],
        Training { world: 3, steps: 3000, ..LONG },
    );
    job.reached(0, 5);
    cluster.ok(&["kill-node", "1"]);
    cluster.nothing_left([2, 3], s(42));
    let shown = job.shown();
    assert_eq!(shown.matches("the run ends here").count(), 1, "{shown}");
}
