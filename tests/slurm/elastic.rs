//! `--nnodes MIN:MAX`: the last call, and worlds that shrink and grow at a restart.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cluster::Cluster;
use crate::commit_log::CommitLog;
use crate::job::{Job, SRUN, Training, events_of};
use crate::support::wait::wait_for;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Its result does not depend on the size of the world. `world`: the ranks that are there in every one.
const ELASTIC: Training =
    Training { world: 4, steps: 250, step_time: "0.1", ckpt_every: 10, args: &["--global-batch=24"] };

/// Rank 0, and so every rank, stands still at step 30 until the gate is read: in the first attempt, or in the one that
/// follows a loss. What a test waits for comes before the end of the training then, however slow the machine is.
const HELD: [&[&str]; 2] = [
    &["--global-batch=24", "--fault=write=gate:0:30:0"],
    &["--global-batch=24", "--fault=write=gate:0:30:1"],
];

fn srun(nodes: &str) -> Vec<&str> {
    SRUN.iter().copied().chain(["-N", nodes]).collect()
}

/// How many ranks each attempt had.
fn worlds(log: &CommitLog) -> Vec<usize> {
    let ranks =
        |attempt| log.of("start").filter(|e| e.attempt == attempt).map(|e| e.rank).collect::<BTreeSet<_>>();
    (0..=log.newest_attempt()).map(|attempt| ranks(attempt).len()).collect()
}

fn says(job: &Job, text: &str, limit: Duration) {
    wait_for(&format!("the console to say {text:?}"), limit, || {
        let shown = job.shown();
        if shown.contains(text) { Ok(()) } else { Err(shown) }
    });
}

/// Kills one rank of the run on this node.
fn kill_a_rank(cluster: &Cluster, node: u32) {
    let ranks = cluster.ours_on(node).into_iter();
    let mut ranks =
        ranks.filter(|(_, line)| line.contains("toy_trainer.py --steps") && !line.contains("relight run"));
    let (pid, _) = ranks.next().expect("a rank");
    cluster.on_node(node, &format!("kill -9 {pid}"));
}

#[test]
fn s51_a_node_that_is_lost_for_good_makes_the_world_smaller() {
    let Some(cluster) = Cluster::up(3) else { return };
    let options = ["--nproc-per-node=2", "--nnodes=2:3", "--max-restarts=3"];
    let job = Job::start(&cluster, "shrinks", &srun("3"), &options, ELASTIC);
    job.reached(0, 12);
    cluster.ok(&["kill-node", "3"]);
    let (ended, journal, log) = job.finishes_but_for_slurm(s(120), &[1, 2]);
    assert_eq!((journal.attempts.len(), worlds(&log)), (2, vec![6, 4]), "{}", ended.stderr);
    let told = &ended.stderr;
    for text in [
        "2 to 3 nodes x 2 ranks",
        "waiting 5 s for n3 or another node, then going on with 2 of 3 nodes",
        "2 of 3 nodes: n3 missing; the world shrinks to 4 ranks",
    ] {
        assert_eq!(told.matches(text).count(), 1, "{text:?}\n{told}");
    }
    let resized = events_of(&cluster.shared().join("runs/shrinks"), "resized");
    assert_eq!((&resized[0]["nodes"], &resized[0]["was"], resized.len()), (&2.into(), &3.into(), 1));
}

#[test]
fn s51_below_min_the_run_ends_with_a_clear_sentence() {
    let Some(cluster) = Cluster::up(3) else { return };
    let options = ["--nproc-per-node=2", "--nnodes=2:3", "--join-timeout=10"];
    let job = Job::start(&cluster, "below", &srun("3"), &options, Training { steps: 3000, ..ELASTIC });
    job.reached(0, 12);
    cluster.ok(&["kill-node", "3"]);
    job.reached(1, 1);
    cluster.ok(&["kill-node", "2"]);
    let (ended, journal, log) = job.wait(s(90));
    assert_eq!((journal.end_code, worlds(&log)), (Some(1), vec![6, 4]), "{}", ended.stderr);
    let last =
        "ended: waited 10 s for at least 2 nodes that can run ranks (--nnodes 2:3), 1 is there. Exit 1.";
    assert_eq!(ended.stderr.matches(last).count(), 1, "{}", ended.stderr);
    cluster.nothing_left([1], s(5));
}

#[test]
fn a_node_that_comes_after_the_last_call_is_taken_in_at_the_next_restart() {
    let Some(cluster) = Cluster::up(3) else { return };
    let gate = cluster.gate();
    let wrapper = r#"[ "$SLURM_NODEID" != 2 ] || while [ ! -e go ]; do sleep 0.1; done; exec "$@""#;
    let launcher: Vec<&str> = srun("3").into_iter().chain(["sh", "-c", wrapper, "sh"]).collect();
    let options = ["--nproc-per-node=2", "--nnodes=2:3", "--last-call=4", "--max-restarts=3"];
    let job = Job::start(&cluster, "late", &launcher, &options, Training { args: HELD[0], ..ELASTIC });
    job.reached(0, 29);
    std::fs::write(cluster.shared().join("go"), "").unwrap();
    says(&job, "n3 came late: it waits as a spare and is taken in at the next restart", s(60));
    job.stands(3, "spare", s(60));
    std::fs::read(gate).expect("the rank that waits there writes");
    job.reached(0, 39);
    assert_eq!(job.log().newest_attempt(), 0, "nobody restarts to grow\n{}", job.shown());
    kill_a_rank(&cluster, 2);
    let (ended, journal, log) = job.finishes(s(120), &[1, 2, 3]);
    assert_eq!((journal.attempts.len(), worlds(&log)), (2, vec![4, 6]), "{}", ended.stderr);
    for text in [
        "2 of 3 nodes: n3 has not come; the world starts with 4 ranks",
        "3 of 3 nodes: n3 joins; the world grows to 6 ranks",
    ] {
        assert_eq!(ended.stderr.matches(text).count(), 1, "{text:?}\n{}", ended.stderr);
    }
}

#[test]
fn a_node_that_comes_back_is_taken_in_at_the_next_restart() {
    let Some(cluster) = Cluster::patient(3) else { return };
    cluster.gate();
    let options = ["--nproc-per-node=2", "--nnodes=2:3", "--max-restarts=3"];
    let job = Job::start(&cluster, "back", &srun("3"), &options, Training { args: HELD[1], ..ELASTIC });
    job.reached(0, 12);
    cluster.ok(&["power-off", "2"]);
    // From here on the next world is one without it. Its agent looks for the coordinator for half a minute.
    says(&job, "2 of 3 nodes: n2 missing; the world shrinks to 4 ranks", s(60));
    cluster.ok(&["power-on", "2"]);
    says(&job, "n2 is back: it waits as a spare", s(120));
    job.reached(1, 29);
    kill_a_rank(&cluster, 1);
    let (ended, _, log) = job.finishes(s(120), &[1, 2, 3]);
    assert_eq!(worlds(&log), [6, 4, 6], "{}", ended.stderr);
    let grows = "3 of 3 nodes: n2 joins; the world grows to 6 ranks";
    assert_eq!(ended.stderr.matches(grows).count(), 1, "{}", ended.stderr);
}
