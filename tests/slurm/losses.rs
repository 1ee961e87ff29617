//! Ranks, agents and nodes are lost, and the run goes on.

use std::time::Duration;

use serde_json::Value;

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training, events_of, kinds_of};
use crate::stories::golden;

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

/// What a command of relight says on a node about a run of this cluster.
fn asked_on(cluster: &Cluster, node: &str, command: &[&str], run: &str) -> String {
    let runs = cluster.shared().join("runs").display().to_string();
    let mut ask = cluster.exec(&["--node", node]);
    let said = ask.arg("./relight").args(command).args(["--run-dir", &runs, run]).output().unwrap();
    assert!(said.status.success(), "{command:?}: {said:?}");
    String::from_utf8_lossy(&said.stdout).into_owned()
}

#[test]
fn why_names_node_rank_and_evidence_on_every_node() {
    let Some(cluster) = Cluster::up(3) else { return };
    let training = Training { world: 3, args: &["--fault=exception=boom:1:12"], ..SHORT };
    let options = ["--nproc-per-node=1", "--max-restarts=3"];
    let job = Job::start(&cluster, "asked", &srun("3"), &options, training);
    job.finishes(s(60), &[1, 2, 3]);
    let told = asked_on(&cluster, "3", &["why"], "asked");
    assert_eq!(told, asked_on(&cluster, "1", &["why"], "asked"), "the same on the first node");
    // Whether the others were stopped before they missed their peer is a matter of milliseconds.
    let line = |line: &str| match line.trim_start() {
        because if because.starts_with("because") && because.contains("lost a peer") => None,
        victims if victims.starts_with("victims   ranks 0, 2: ") => {
            Some("  victims   ranks 0, 2: [HOW]".to_owned())
        }
        _ => Some(line.to_owned()),
    };
    let told: Vec<String> = told.lines().filter_map(line).collect();
    golden(&cluster, "0", "why_over_nodes", &told.join("\n"));
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
    let run = cluster.shared().join("runs/pause");
    assert_eq!(events_of(&run, "node_lost"), Vec::<Value>::new());
    let kinds = kinds_of(&run);
    assert!(!kinds.iter().any(|kind| kind == "evict"), "{kinds:?}");
}

/// The node that leads is lost like this.
fn first_node_lost(how: &str, ends_on: &[u32]) {
    // Slurm's own end of the job would hide ours.
    let Some(cluster) = Cluster::patient(3) else { return };
    let training = Training { world: 3, steps: 3000, ..LONG };
    let job = Job::start(&cluster, "first", &srun("3"), &["--nproc-per-node=1"], training);
    job.reached(0, 5);
    cluster.ok(&[how, "1"]);
    cluster.nothing_left(ends_on.to_vec(), s(40));
    let shown = job.shown();
    assert_eq!(shown.matches("the run ends here").count(), 1, "{shown}");
}

#[test]
fn the_first_node_is_lost_and_the_run_ends_everywhere() {
    first_node_lost("kill-node", &[2, 3]);
}

#[test]
fn the_first_node_loses_its_network_and_the_run_ends_everywhere() {
    // It trains on for no longer than its grant, and ends, too.
    first_node_lost("power-off", &[1, 2, 3]);
}

#[test]
fn s12_all_ranks_of_a_node_die_together_and_the_node_is_named_once() {
    let Some(cluster) = Cluster::up(2) else { return };
    let job = Job::start(&cluster, "together", &srun("2"), TWO, LONG);
    job.reached(0, 12);
    let ranks: Vec<String> = cluster
        .ours_on(2)
        .into_iter()
        .filter(|(_, line)| line.contains("toy_trainer.py --steps") && !line.contains("relight run"))
        .map(|(pid, _)| pid.to_string())
        .collect();
    assert_eq!(ranks.len(), 2, "{ranks:?}");
    cluster.on_node(2, &format!("kill -9 {}", ranks.join(" ")));
    let (ended, journal, _) = job.finishes(s(60), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "one incident\n{}", ended.stderr);
    let blamed =
        ended.stderr.lines().filter(|line| line.contains("relight:") && line.contains("(n2)")).count();
    assert_eq!(blamed, 1, "{}", ended.stderr);
    let run = cluster.shared().join("runs/together");
    let failed = events_of(&run, "rank_failed");
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["first"]["node"], "n2", "{failed:?}");
    assert_eq!(kinds_of(&run).iter().filter(|kind| *kind == "incident").count(), 1);
}

#[test]
fn s13_two_nodes_lost_together_are_one_new_attempt() {
    let Some(cluster) = Cluster::up(5) else { return };
    let options = ["--nproc-per-node=1", "--nnodes=3", "--spares=2", "--max-restarts=3"];
    let training = Training { world: 3, ..LONG };
    let job = Job::start(&cluster, "both", &srun("5"), &options, training);
    job.reached(0, 12);
    cluster.ok(&["kill-node", "2", "3"]);
    let (ended, journal, _) = job.finishes_but_for_slurm(s(90), &[1, 4, 5]);
    assert_eq!(journal.attempts.len(), 2, "one new attempt\n{}", ended.stderr);
    assert!(ended.stderr.contains("n2") && ended.stderr.contains("n3"), "{}", ended.stderr);
    let run = cluster.shared().join("runs/both");
    let mut lost: Vec<String> = events_of(&run, "node_lost").iter().map(|e| e["node"].to_string()).collect();
    lost.sort();
    assert_eq!(lost, ["\"n2\"", "\"n3\""], "both are named, each once");
    assert_eq!(kinds_of(&run).iter().filter(|kind| *kind == "incident").count(), 1, "one recovery");
    // The verdict holds both, whoever was noticed first.
    let report = std::fs::read_to_string(run.join("incidents/0000/report.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    let mut lost: Vec<&str> = report["lost"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    lost.sort_unstable();
    assert_eq!(lost, ["n2", "n3"], "{report:#}");
}

#[test]
fn a_killed_node_is_the_cause_and_no_rank_that_lost_its_peer() {
    let Some(cluster) = Cluster::up(4) else { return };
    let options = [TWO, &["--nnodes=3", "--spares=1"]].concat();
    let job = Job::start(&cluster, "cause", &srun("4"), &options, Training { world: 6, ..LONG });
    job.reached(0, 12);
    cluster.ok(&["kill-node", "3"]);
    let (ended, journal, _) = job.finishes_but_for_slurm(s(90), &[1, 2, 4]);
    let told = &ended.stderr;
    let lines: Vec<&str> = told.lines().filter(|line| line.contains("relight:")).collect();
    let with = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!((with("is gone"), with("n3 is gone: ")), (1, 1), "{told}");
    assert_eq!((with(" failed"), with(" died"), with("it was a spare")), (0, 0, 0), "{told}");
    assert_eq!(with("n3 lost; n4 (spare 1 of 1) takes slot 2, ranks 4-5"), 1, "{told}");
    let [_, next] = journal.attempts.as_slice() else { panic!("{journal:#?}\n{told}") };
    assert!(next.after_incident && !next.charged && next.first_failure.is_none(), "{journal:#?}");
    assert_eq!(journal.verdicts, [None], "{told}");
}

#[test]
fn s42_a_link_that_flaps_is_tolerated() {
    let Some(cluster) = Cluster::up(2) else { return };
    let job = Job::start(&cluster, "flaps", &srun("2"), TWO, LONG);
    job.reached(0, 12);
    for _ in 0..5 {
        cluster.ok(&["power-off", "2"]);
        // The flap itself is the fault.
        std::thread::sleep(s(1));
        cluster.ok(&["power-on", "2"]);
        std::thread::sleep(s(1));
    }
    let (ended, journal, _) = job.finishes(s(90), &[1, 2]);
    assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
    let events = cluster.shared().join("runs").join("flaps").join("events.jsonl");
    let events = std::fs::read_to_string(events).unwrap();
    assert!(events.contains("beats_late"), "an event counts it: {events}");
    let run = cluster.shared().join("runs/flaps");
    let late = events_of(&run, "beats_late");
    assert!(late.iter().all(|e| e["node"] == "n2") && !late.is_empty(), "one each: {late:?}");
    assert_eq!(events_of(&run, "node_lost"), Vec::<Value>::new());
}

/// Between an agent and its coordinator: every byte comes later, by 0.3 s and a little.
const SLOW_LINE: &str = include_str!("slow_line.py");

#[test]
fn s43_a_slow_line_is_no_death() {
    let Some(cluster) = Cluster::up(2) else { return };
    std::fs::write(cluster.shared().join("slow_line.py"), SLOW_LINE).unwrap();
    let hint = cluster.shared().join("runs").join("slow").join("coordinator");
    let wrapper = format!(
        r#"[ "$SLURM_NODEID" = 0 ] || python3 slow_line.py {} >/dev/null 2>&1 & [ "$SLURM_NODEID" = 0 ] || sleep 2; exec "$@""#,
        hint.display()
    );
    let launcher: Vec<&str> = srun("2").into_iter().chain(["sh", "-c", &wrapper, "sh"]).collect();
    let job = Job::start(&cluster, "slow", &launcher, TWO, LONG);
    let (ended, journal, _) = job.finishes(s(90), &[]);
    assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
    let run = cluster.shared().join("runs/slow");
    assert_eq!(events_of(&run, "node_lost"), Vec::<Value>::new());
    let passed = std::fs::read_to_string(cluster.shared().join("slow_line.passed")).unwrap_or_default();
    assert!(
        passed.trim().parse::<u64>().unwrap_or(0) >= 2,
        "control and beats went over the slow line: {passed:?}"
    );
}

#[test]
fn s53_a_node_that_fails_first_twice_running_is_replaced() {
    let Some(cluster) = Cluster::up(3) else { return };
    let options = [TWO, &["--nnodes=2", "--spares=1"]].concat();
    let training = Training { args: &["--fault=signal=KILL:2:12:0", "--fault=signal=KILL:3:17:1"], ..SHORT };
    let job = Job::start(&cluster, "twice", &srun("3"), &options, training);
    let (ended, journal, _) = job.finishes(s(60), &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 3, "{}", ended.stderr);
    assert!(ended.stderr.contains("n3") && ended.stderr.contains("slot 1"), "{}", ended.stderr);
    // Not at the first failure, but at the second; and taken out, by a record.
    let run = cluster.shared().join("runs/twice");
    let filled = events_of(&run, "slot_filled");
    assert_eq!(filled.len(), 1, "{filled:?}");
    assert_eq!(
        (&filled[0]["why"], &filled[0]["instead_of"], &filled[0]["node"]),
        (&Value::from("evicted"), &Value::from("n2"), &Value::from("n3")),
        "{filled:?}"
    );
    assert_eq!(kinds_of(&run).iter().filter(|kind| *kind == "evict").count(), 1);
}

/// What the image of one node lacks.
const LACKS: &str = "\
import os, runpy, sys
if os.environ['SLURMD_NODENAME'] != 'n2':
    sys.path.insert(0, 'lib')
import labels
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name='__main__')
";

#[test]
fn s11_a_module_that_one_node_lacks_costs_that_node() {
    let Some(cluster) = Cluster::up(3) else { return };
    let shared = cluster.shared();
    std::fs::create_dir(shared.join("lib")).unwrap();
    std::fs::write(shared.join("lib/labels.py"), "").unwrap();
    std::fs::write(shared.join("lacks.py"), LACKS).unwrap();
    let mut line = Job::line(&cluster, "lacks", &["--nproc-per-node=2", "--nnodes=2", "--spares=1"], SHORT);
    let program = line.iter().position(|word| word == "toy_trainer.py").unwrap();
    line.insert(program, "lacks.py".to_owned());
    let mut command = cluster.exec(&[]);
    command.args(srun("3")).args(line);
    let began = std::time::Instant::now();
    let job = Job::spawn(&cluster, "lacks", command, SHORT);
    let (ended, journal, _) = job.finishes(s(60), &[1, 2, 3]);
    assert!(began.elapsed() < s(40), "it took {:?}", began.elapsed());
    let found = &journal.found;
    assert!(found.iter().all(|found| found["nodes"] == serde_json::json!(["n2"])), "{found:#?}");
    assert!(ended.stderr.contains("labels"), "{}", ended.stderr);
    let run = shared.join("runs/lacks");
    let filled = events_of(&run, "slot_filled");
    assert_eq!((&filled[0]["instead_of"], &filled[0]["node"]), (&"n2".into(), &"n3".into()), "{filled:?}");
    assert_eq!(kinds_of(&run).iter().filter(|kind| *kind == "evict").count(), 1);
}

#[test]
fn s60_a_full_log_directory_costs_logs_and_nothing_else() {
    let Some(cluster) = Cluster::with(2, &["--local-size", "1m"]) else { return };
    let options = [TWO, &["--log-dir=/local/logs", "--redirects=3", "--tee=3"]].concat();
    let training = Training { args: &["--fault=flood=4:2:8", "--fault=signal=KILL:3:20"], ..SHORT };
    let job = Job::start(&cluster, "full", &srun("2"), &options, training);
    let (ended, journal, _) = job.finishes(s(90), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    // Said once, and how much is in no file: some of the 40 MB that rank 2 wrote.
    assert_eq!(ended.stderr.matches("cannot be written: ENOSPC").count(), 1, "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("of output are in no file").count(), 1, "{}", ended.stderr);
    let of_the_node = cluster.shared().join("runs/full/agents/n2.jsonl");
    let said = std::fs::read_to_string(of_the_node).unwrap();
    let lost = said.lines().find_map(|line| {
        let event: Value = serde_json::from_str(line).ok()?;
        event["note"]["logs_lost"]["bytes"].as_u64()
    });
    assert!(lost.is_some_and(|bytes| bytes > 1_000_000), "{said}");
}

#[test]
fn without_a_spare_the_run_waits_and_then_ends() {
    let Some(cluster) = Cluster::up(2) else { return };
    let options = [TWO, &["--join-timeout=10"]].concat();
    let job = Job::start(&cluster, "alone", &srun("2"), &options, LONG);
    job.reached(0, 12);
    cluster.ok(&["kill-node", "2"]);
    cluster.nothing_left([1], s(60));
    let shown = job.shown();
    assert!(shown.contains("n2 is gone") && shown.contains("Exit 1"), "{shown}");
}

#[test]
fn both_ways_of_tracking_processes_do() {
    for proctrack in ["linuxproc", "cgroup"] {
        let Some(cluster) = Cluster::with(2, &["--proctrack", proctrack]) else { return };
        let training = Training { args: &["--fault=signal:3:12"], ..SHORT };
        let job = Job::start(&cluster, "tracked", &srun("2"), TWO, training);
        let (_, journal, _) = job.finishes(s(60), &[1, 2]);
        assert_eq!(journal.attempts.len(), 2, "{proctrack}");
    }
}

#[test]
fn an_ordinary_user_needs_no_rights() {
    let Some(cluster) = Cluster::up(2) else { return };
    let training = Training { args: &["--fault=signal:3:12"], ..SHORT };
    let job = Job::start_as(&cluster, "nobody", "user", &srun("2"), TWO, training);
    let (_, journal, _) = job.finishes(s(60), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2);
}
