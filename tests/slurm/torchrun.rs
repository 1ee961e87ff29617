//! Faults of torchrun that take two nodes to show; the list is in `tests/faults/torchrun.rs`.

use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training};
use crate::support::wait::wait_for;

#[test]
fn t06_without_restarts_a_failing_node_stops_the_others_at_once() {
    let Some(cluster) = Cluster::up(2) else { return };
    // The others do not notice by themselves: they sleep when it happens.
    let args: &[&str] =
        &["--fault=exit=7:3:12", "--fault=slow=300:0:12", "--fault=slow=300:1:12", "--fault=slow=300:2:12"];
    let training = Training { world: 4, steps: 400, step_time: "0.03", ckpt_every: 5, args };
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N2"]).collect();
    let options = ["--nproc-per-node=2", "--max-restarts=0"];
    let job = Job::start(&cluster, "last", &launcher, &options, training);
    wait_for("the failure of rank 3", Duration::from_secs(60), || {
        let said = job.shown();
        if said.contains("rank 3 (n2) failed: exit code 7") { Ok(()) } else { Err(said) }
    });
    let failed = Instant::now();
    let (ended, journal, _) = job.wait(Duration::from_secs(60));
    let took = failed.elapsed();
    assert_eq!((ended.code, journal.end_code), (1, Some(1)), "{}", ended.stderr);
    // Two seconds of grace; torchrun's other nodes wait for the timeout of a collective.
    assert!(took < Duration::from_secs(15), "{took:?}: {}", ended.stderr);
    assert!(ended.stderr.contains("  exitcode  : 7 (pid: "), "{}", ended.stderr);
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}
