//! Wall clocks that are wrong, or are set while a run goes on: nothing is decided by them.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training, events_of, kinds_of};
use crate::support::wait::wait_for;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const SHORT: Training = Training { world: 4, steps: 40, step_time: "0.1", ckpt_every: 5, args: &[] };
const TWO: &[&str] = &["--nproc-per-node=2", "--max-restarts=3"];

/// `srun` on two nodes; on the one with this index relight's wall clock is off so.
fn srun(index: u32, clock: &str) -> Vec<String> {
    let set = format!(r#"[ "$SLURM_NODEID" = {index} ] && export RELIGHT_TEST_CLOCK={clock}; exec "$@""#);
    let words = SRUN.iter().copied().chain(["-N", "2", "sh", "-c"]).map(str::to_owned);
    words.chain([set, "sh".to_owned()]).collect()
}

fn start<'a>(cluster: &'a Cluster, name: &'static str, launcher: &[String], training: Training) -> Job<'a> {
    let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
    Job::start(cluster, name, &launcher, TWO, training)
}

/// Whoever fails on a node whose clock says something else is no earlier and no later for it.
#[test]
fn s77_a_clock_that_is_two_hours_off_changes_no_verdict() {
    let Some(cluster) = Cluster::up(2) else { return };
    let early = ["--fault=exit=3:1:30"];
    let late = ["--fault=exit=3:3:30"];
    let rows: [(&'static str, &str, &'static [&'static str], u64); 3] = [
        // The victims are on the node that lives in the past.
        ("behind", "-7200", early.to_vec().leak(), 1),
        // The root is on the node that lives in the future.
        ("ahead", "7200", late.to_vec().leak(), 3),
        // Its clock is set back in the middle of the run.
        ("back", "-7200@/tmp", late.to_vec().leak(), 3),
    ];
    for (name, clock, args, root) in rows {
        let flag = cluster.shared().join("set");
        let clock = clock.replace("/tmp", &flag.display().to_string());
        let job = start(&cluster, name, &srun(1, &clock), Training { args, ..SHORT });
        if clock.contains('@') {
            job.reached(0, 4);
            std::fs::write(&flag, "").unwrap();
        }
        let (ended, journal, _) = job.finishes(s(90), &[1, 2]);
        let named = journal.roots().first().and_then(|first| first.map(|first| first.rank));
        assert_eq!(named, Some(root), "{name}: {}", ended.stderr);
        assert_eq!(journal.found[0]["culprits"][0][0], root, "{name}: {:#}", journal.found[0]);
        assert_eq!(journal.attempts.len(), 2, "{name}: {}", ended.stderr);
        let off = cluster.shared().join("runs").join(name).join("agents/n2.jsonl");
        let said = std::fs::read_to_string(&off).unwrap_or_default();
        assert!(said.contains("the coordinator's"), "{name}: the clock was really off: {said}");
    }
}

#[test]
fn s78_the_clock_of_the_leader_is_set_and_nobody_times_out() {
    let Some(cluster) = Cluster::up(2) else { return };
    for (name, seconds) in [("forward", "7200"), ("backward", "-7200")] {
        let flag = cluster.shared().join(name);
        let job = start(
            &cluster,
            name,
            &srun(0, &format!("{seconds}@{}", flag.display())),
            Training { steps: 120, args: &["--beat"], ..SHORT },
        );
        job.reached(0, 12);
        std::fs::write(&flag, "").unwrap();
        let at = job.log().reached(0, 0);
        // Longer than beats, leases and a lost node take.
        job.reached(0, at + 60);
        let (ended, journal, _) = job.finishes(s(90), &[1, 2]);
        assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
        let run = cluster.shared().join("runs").join(name);
        for event in ["node_lost", "suspected", "rank_failed"] {
            assert_eq!(events_of(&run, event), Vec::<Value>::new(), "{event}\n{}", ended.stderr);
        }
        let kinds = kinds_of(&run);
        assert!(!kinds.iter().any(|kind| kind == "evict"), "{kinds:?}");
        was_set(&run, name);
    }
}

/// Events of the leader carry its wall clock: two of them are hours apart.
fn was_set(run: &std::path::Path, name: &str) {
    wait_for("events before and after", s(5), || {
        let text = std::fs::read_to_string(run.join("events.jsonl")).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let walls: Vec<u64> = events.filter_map(|event| event["wall_ms"].as_u64()).collect();
        let (least, most) =
            (walls.iter().min().copied().unwrap_or(0), walls.iter().max().copied().unwrap_or(0));
        if most - least > 7_000_000 { Ok(()) } else { Err(format!("{name}: {least} to {most}: {text}")) }
    });
}
