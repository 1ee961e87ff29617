//! Faults of torchrun that take two nodes to show; the list is in `tests/faults/torchrun.rs`.

use std::fs;
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
    let options = ["--nproc-per-node=2", "--max-restarts=0", "--rdzv-store=rank0"];
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

/// Notes an error as torch's `@record` does, and says nothing; the others stay.
const NOTES: &str = "\
import json, os, time
if os.environ['RANK'] == '3':
    stack = 'Traceback (most recent call last):\\n  File \"/w/collate.py\", line 41, in f\\n    x\\nKeyError: 7\\n'
    extra = {'py_callstack': stack, 'timestamp': str(int(time.time()))}
    with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:
        json.dump({'message': {'message': 'KeyError: 7', 'extraInfo': extra}}, f)
    os._exit(3)
time.sleep(120)
";

#[test]
fn what_a_rank_on_another_node_noted_is_the_root_in_the_report() {
    let Some(cluster) = Cluster::up(2) else { return };
    fs::write(cluster.shared().join("notes.py"), NOTES).unwrap();
    let mut command = cluster.exec(&[]);
    command.args(SRUN).args(["-N2", "./relight", "run", "--run-dir"]).arg(cluster.shared().join("runs"));
    command.args(["--run-id=notes", "--nproc-per-node=2", "--max-restarts=0", "notes.py"]);
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("notes.py FAILED").count(), 1, "once for all nodes: {said}");
    let (_, root) = said.split_once("Root Cause (first observed failure):").expect("a report");
    for text in ["  host      : n2", "  rank      : 3 (local_rank: 1)", "  KeyError: 7", "line 41, in f"] {
        assert!(root.contains(text), "{text}: {said}");
    }
    let file = root.lines().find_map(|line| line.strip_prefix("  error_file: ")).expect("a file");
    assert!(fs::read_to_string(file).is_ok_and(|text| text.contains("KeyError: 7")), "{file}: {said}");
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}
