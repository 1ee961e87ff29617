//! How a launch of several nodes begins.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training};

const TINY: Training = Training { world: 4, steps: 10, step_time: "0.02", ckpt_every: 5, args: &[] };
const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_first_node_that_comes_late_is_passed_over_and_joins() {
    let Some(cluster) = Cluster::up(2) else { return };
    let wait = r#"[ "$SLURM_NODEID" != 0 ] || sleep 13; exec "$@""#;
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N2", "sh", "-c", wait, "sh"]).collect();
    let job = Job::start(&cluster, "late", &launcher, &["--nproc-per-node=2"], TINY);
    let (ended, journal, _) = job.finishes(LIMIT, &[1, 2]);
    assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
}

#[test]
fn nodes_that_share_no_directory_say_so() {
    let Some(cluster) = Cluster::up(2) else { return };
    let runs = cluster.shared().join("runs");
    std::fs::create_dir(&runs).unwrap();
    // The second node has another directory under the same name.
    let own = format!("mkdir -p /local/runs && mount --bind /local/runs {}", runs.display());
    cluster.on_node(2, &own);
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N2"]).collect();
    let job = Job::start(&cluster, "apart", &launcher, &["--nproc-per-node=2", "--join-timeout=15"], TINY);
    let (ended, _, _) = job.wait(LIMIT);
    assert_ne!(ended.code, 0);
    assert!(ended.stderr.contains("n2"), "{}", ended.stderr);
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}

/// A job that was submitted twice, or a chained one that starts too early: the record that says who leads could be
/// appended by both.
#[test]
fn a_second_job_leaves_the_run_of_the_first_alone() {
    let Some(cluster) = Cluster::up(4) else { return };
    let training = Training { steps: 200, step_time: "0.1", ..TINY };
    let on =
        |nodes: &'static str| -> Vec<&str> { SRUN.iter().copied().chain(["-N2", "-w", nodes]).collect() };
    let job = Job::start(&cluster, "twice", &on("n1,n2"), &["--nproc-per-node=2"], training);
    job.reached(0, 5);
    let began = Instant::now();
    let mut second = cluster.exec(&[]);
    second.args(on("n3,n4")).args(Job::line(&cluster, "twice", &["--nproc-per-node=2"], training));
    let refused = second.output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("run twice belongs to job 1, which has not ended (RUNNING)"), "{said}");
    assert!(said.contains("hint: wait for it, or end it: scancel 1"), "{said}");
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    let (ended, journal, _) = job.finishes(LIMIT, &[1, 2, 3, 4]);
    assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
    // Once it has ended, whoever comes hears that.
    let mut third = cluster.exec(&[]);
    third.args(on("n3,n4")).args(Job::line(&cluster, "twice", &["--nproc-per-node=2"], training));
    let finished = third.output().unwrap();
    assert_eq!(finished.status.code(), Some(0), "{}", String::from_utf8_lossy(&finished.stderr));
}
