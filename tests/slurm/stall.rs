//! The run directory is on a file system that stands still for 30 s: nothing waits for it but what is written there.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::freezer::Freezer;
use crate::job::{Job, SRUN, Training};
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

#[test]
fn a_shared_directory_that_stalls_for_30_s_costs_no_beat_and_delays_no_kill() {
    let Some(freezer) = Freezer::new() else { return };
    let bound = freezer.place();
    let bound = bound.to_str().unwrap();
    let Some(cluster) = Cluster::with(2, &["--bind", bound]) else { return };
    fs::create_dir(Path::new(bound).join("runs")).unwrap();
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N2"]).collect();
    let training = Training { world: 4, steps: 400, step_time: "0.1", ckpt_every: 10, args: &[] };
    let options = ["--nproc-per-node=2", "--max-restarts=3"];
    let job =
        Job::start_in(&cluster, &Path::new(bound).join("runs"), "stalls", &launcher, &options, training);
    job.reached(0, 12);
    let began = Instant::now();
    freezer.freeze(true);
    let at = job.log().reached(0, 0);
    // Twice the time after which a node is lost: training goes on.
    job.reached(0, at + 90);
    let victim = ranks(&cluster).into_iter().rfind(|(node, _)| *node == 2).expect("ranks on the second node");
    cluster.signal_on(2, victim.1, "KILL");
    wait_for("all ranks to be stopped", Duration::from_secs(10), || match ranks(&cluster) {
        left if left.is_empty() => Ok(()),
        left => Err(format!("{left:?}")),
    });
    assert!(began.elapsed() < STALL, "the machine is too slow for this test: {:?}", began.elapsed());
    std::thread::sleep(STALL.saturating_sub(began.elapsed()));
    freezer.freeze(false);
    let (ended, journal, _) = job.finishes(Duration::from_secs(120), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    assert!(!ended.stderr.contains("is gone"), "no node was lost: {}", ended.stderr);
    drop(cluster);
}
