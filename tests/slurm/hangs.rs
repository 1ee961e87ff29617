//! Ranks of another node that do not advance: who is named, what is kept of it, and that it goes on.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training, events_of};
use crate::support::freezer::Freezer;
use crate::support::wait::{monotonic_ns, wait_for};

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const BEATS: Training = Training { world: 4, steps: 60, step_time: "0.1", ckpt_every: 5, args: &["--beat"] };
const FIVE: &[&str] =
    &["--nproc-per-node=2", "--max-restarts=3", "--heartbeat-timeout=5", "--phase-timeout=init=60"];

fn srun(nodes: &str) -> Vec<&str> {
    SRUN.iter().copied().chain(["-N", nodes]).collect()
}

fn wall_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// A file of the first incident of a run.
fn kept(cluster: &Cluster, run: &str, file: &str) -> String {
    let path = cluster.shared().join("runs").join(run).join("incidents/0000").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The line that names the culprit.
fn naming(said: &str) -> &str {
    said.lines()
        .find(|line| line.contains("-> stacks: "))
        .unwrap_or_else(|| panic!("nobody was named: {said}"))
}

#[test]
fn s22_a_stopped_rank_of_another_node_is_named() {
    let Some(cluster) = Cluster::up(2) else { return };
    let job = Job::start(&cluster, "stands", &srun("2"), FIVE, BEATS);
    job.reached(0, 12);
    let rank = job.log().pid(0, 3).expect("rank 3 has said its pid");
    let (fault_ms, fault) = (wall_ms(), monotonic_ns());
    cluster.signal_on(2, rank, "STOP");
    let (ended, journal, log) = job.finishes(s(90), &[1, 2]);
    let said = &ended.stderr;
    assert!(naming(said).contains("rank 3 (n2) is stopped by a signal (state T)"), "{said}");
    assert_eq!(journal.attempts.len(), 2, "{said}");
    let (root, found) = (journal.roots()[0].expect("a culprit"), &journal.found[0]);
    assert_eq!((root.rank, &found["culprits"]), (3, &serde_json::json!([[3, "n2"]])), "{found:#}");
    assert!(root.text.contains("3 ranks wait in reduce"), "the others are its victims: {}", root.text);
    // Of every rank of both nodes: where it was, what the kernel says, and its stack where it could write one.
    let rows = |file: &str| serde_json::from_str::<Value>(&kept(&cluster, "stands", file)).unwrap();
    for file in ["boards.json", "processes.json"] {
        let ranks: Vec<(u64, String)> = rows(file).as_array().unwrap().iter().map(row).collect();
        assert_eq!(
            ranks,
            [(0, "n1"), (1, "n1"), (2, "n2"), (3, "n2")].map(|(r, n)| (r, n.to_owned())),
            "{file}"
        );
    }
    let stacks = kept(&cluster, "stands", "stacks.txt");
    let of =
        |rank: &str| stacks.split("=== ").find(|part| part.starts_with(rank)).unwrap_or_default().to_owned();
    for rank in ["rank 0 (n1)", "rank 1 (n1)", "rank 2 (n2)"] {
        assert!(
            of(rank).contains("from its interpreter") && of(rank).contains("in reduce"),
            "{rank}: {stacks}"
        );
    }
    assert!(!of("rank 3 (n2)").is_empty(), "{stacks}");
    let seen = root.wall_ms.saturating_sub(fault_ms);
    assert!(seen <= 8_000, "it was seen after {seen} ms");
    let step = log.first("step", 1).expect("a step of the new attempt");
    let resumed = Duration::from_nanos(step.saturating_sub(fault));
    assert!(resumed <= s(15), "the next step came after {resumed:?}");
}

fn row(row: &Value) -> (u64, String) {
    (row["rank"].as_u64().unwrap(), row["node"].as_str().unwrap().to_owned())
}

/// Each rank beats for itself. The ranks of the second node stop their agent for 3 s and are silent meanwhile and for a
/// moment after it: longer than the limit, but nobody was there to see it.
const SLOW_AGENT: &str = "
import os, signal, time, relight
second = os.environ['GROUP_RANK'] == '1'
for step in range(60):
    relight.heartbeat(step)
    time.sleep(0.1)
    if second and step == 20:
        if os.environ['LOCAL_RANK'] == '0':
            agent = os.getppid()
            os.kill(agent, signal.SIGSTOP)
            time.sleep(3)
            os.kill(agent, signal.SIGCONT)
        else:
            time.sleep(3)
        time.sleep(0.7)
        print('was silent', flush=True)
";

#[test]
fn a_slow_agent_of_another_node_is_no_hang() {
    let Some(cluster) = Cluster::up(2) else { return };
    fs::write(cluster.shared().join("beats.py"), SLOW_AGENT).unwrap();
    let mut command = cluster.exec(&[]);
    let runs = cluster.shared().join("runs").display().to_string();
    command.args(srun("2")).args(["./relight", "run", "--run-dir", &runs, "--run-id=slow", "--lost-after=6"]);
    command.args(["--nproc-per-node=2", "--heartbeat-timeout=2", "--phase-timeout=init=60", "beats.py"]);
    let ended = command.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    assert_eq!(String::from_utf8_lossy(&ended.stdout).matches("was silent").count(), 2, "{said}");
    assert!(!said.contains("collecting stacks") && !said.contains("restart"), "{said}");
    assert_eq!(events_of(&cluster.shared().join("runs/slow"), "suspected"), Vec::<Value>::new());
    cluster.nothing_left([1, 2], s(5));
}

/// A rank that waits for a file system which stands still survives SIGKILL.
#[test]
fn s30_a_rank_that_cannot_be_killed_costs_its_node() {
    let Some(freezer) = Freezer::new() else { return };
    let bound = freezer.place();
    let bound = bound.to_str().unwrap();
    let Some(cluster) = Cluster::with(3, &["--bind", bound]) else { return };
    let fault: &'static str = format!("--fault=write={bound}/file:3:40").leak();
    let args: &'static [&'static str] = vec!["--beat", fault].leak();
    let options = [FIVE, &["--nnodes=2", "--spares=1"]].concat();
    let job = Job::start(&cluster, "stuck", &srun("3"), &options, Training { args, ..BEATS });
    job.reached(0, 5);
    freezer.freeze(true);
    let fault_at = wait_for("the fault", s(60), || {
        job.log().fault_at(0).ok_or_else(|| format!("step {}", job.log().reached(0, 0)))
    });
    job.reached(1, 12);
    let log = job.log();
    freezer.freeze(false);
    let (ended, journal, _) = job.finishes_but_for_slurm(s(120), &[1, 2, 3]);
    let said = &ended.stderr;
    assert!(naming(said).contains("rank 3 (n2) is in uninterruptible sleep (state D)"), "{said}");
    assert_eq!(journal.found[0]["culprits"], serde_json::json!([[3, "n2"]]), "{said}");
    assert!(said.contains("n3") && said.contains("takes slot 1"), "the spare takes its place: {said}");
    let resumed = Duration::from_nanos(log.first("step", 1).unwrap().saturating_sub(fault_at));
    assert!(resumed <= s(20), "the next step came after {resumed:?}");
}
