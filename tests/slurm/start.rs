//! How a launch of several nodes begins.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::job::{Job, SRUN, Training, events_of, kinds_of};
use crate::support::wait::wait_for;

const TINY: Training = Training { world: 4, steps: 10, step_time: "0.02", ckpt_every: 5, args: &[] };
const LIMIT: Duration = Duration::from_secs(60);

/// A line of srun whose first node starts its agent only when somebody makes this file.
fn held_back(nodes: &'static str, gate: &Path) -> Vec<String> {
    let wait = format!(
        r#"[ "$SLURM_NODEID" != 0 ] || until [ -e '{}' ]; do sleep 0.1; done; exec "$@""#,
        gate.display()
    );
    let line = SRUN.iter().copied().chain(["-N", nodes, "sh", "-c", wait.as_str(), "sh"]);
    line.map(str::to_owned).collect()
}

/// Who led, one name for each `lead` record.
fn leaders(run: &Path) -> Vec<String> {
    let said = events_of(run, "leads");
    said.iter().map(|e| e["node"].as_str().unwrap_or_default().to_owned()).collect()
}

const ONE_SPARE: &[&str] = &["--nproc-per-node=2", "--nnodes=2", "--spares=1"];

#[test]
fn a_first_node_that_never_starts_its_agent_is_passed_over() {
    let Some(cluster) = Cluster::up(3) else { return };
    let gate = cluster.shared().join("go");
    let launcher = held_back("3", &gate);
    let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
    let began = Instant::now();
    let job = Job::start(&cluster, "never", &launcher, ONE_SPARE, TINY);
    // It trains to its end without the first node, whose task goes on waiting.
    job.reached(0, 1);
    assert!(began.elapsed() >= Duration::from_secs(10), "{:?}", began.elapsed());
    let run = cluster.shared().join("runs/never");
    wait_for("the end to be written", LIMIT, || match kinds_of(&run) {
        kinds if kinds.iter().any(|kind| kind == "end") => Ok(()),
        kinds => Err(format!("{kinds:?}\n{}", job.shown())),
    });
    let first = cluster.ours_on(1);
    assert!(!first.iter().any(|(_, line)| line.contains("__agent")), "{first:?}");
    assert_eq!(leaders(&run), ["n2"]);
    assert_eq!(kinds_of(&run).iter().filter(|kind| *kind == "lead").count(), 1);
    // Only so that Slurm's task ends: an agent this late finds that the run is over.
    std::fs::write(&gate, "").unwrap();
    let (ended, journal, _) = job.finishes(LIMIT, &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("n2 leads in the place of n1"), "{}", ended.stderr);
}

#[test]
fn a_first_node_that_comes_late_can_only_join() {
    let Some(cluster) = Cluster::up(3) else { return };
    let gate = cluster.shared().join("go");
    let launcher = held_back("3", &gate);
    let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
    let training = Training { steps: 100, step_time: "0.1", ..TINY };
    let job = Job::start(&cluster, "late", &launcher, ONE_SPARE, training);
    job.reached(0, 1);
    std::fs::write(&gate, "").unwrap();
    job.stands(1, "spare", Duration::from_secs(20));
    let run = cluster.shared().join("runs/late");
    let (ended, journal, _) = job.finishes(LIMIT, &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
    assert_eq!(leaders(&run), ["n2"], "{}", ended.stderr);
    assert_eq!(kinds_of(&run).iter().filter(|kind| *kind == "lead").count(), 1);
}

/// Answers no question for a name, and writes down that there was one.
const NO_NAMES: &str = r#"
import socket, sys
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind(("127.0.0.1", 53))
open(sys.argv[1] + ".ready", "w").close()
while True:
    question, _ = line.recvfrom(4096)
    with open(sys.argv[1], "ab") as file:
        file.write(question[12:] + b"\n")
"#;

#[test]
fn nodes_are_reached_by_slurms_addresses_and_no_name_is_looked_up() {
    let Some(cluster) = Cluster::up(2) else { return };
    let shared = cluster.shared();
    let place = |node: u32, leaf: &str| shared.join(format!("names.{node}{leaf}"));
    std::fs::write(shared.join("no_names.py"), NO_NAMES).unwrap();
    for (name, text) in [
        (
            "nsswitch.conf",
            "passwd: files
group: files
hosts: dns
",
        ),
        (
            "resolv.conf",
            "nameserver 127.0.0.1
options timeout:5 attempts:1
",
        ),
    ] {
        std::fs::write(shared.join(name), text).unwrap();
        for node in [1, 2] {
            let file = shared.join(name).display().to_string();
            let bound = cluster.on_node(node, &format!("mount --bind {file} /etc/{name} && echo done"));
            assert_eq!(bound, "done", "/etc/{name}");
        }
    }
    let mut servers = Vec::new();
    for node in [1, 2] {
        let (script, file) = (shared.join("no_names.py"), place(node, ""));
        let mut server = cluster.exec(&["--node", &node.to_string()]);
        servers.push(server.arg("python3").args([script, file]).spawn().unwrap());
        wait_for("the name server", LIMIT, || {
            if place(node, ".ready").exists() { Ok(()) } else { Err("not there".to_owned()) }
        });
        let known = cluster.on_node(node, "timeout 1 getent hosts n1 n2");
        assert_eq!(known, "", "no name resolves on n{node}");
        assert!(place(node, "").exists(), "and who asks is seen");
        std::fs::remove_file(place(node, "")).unwrap();
    }
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N2"]).collect();
    let training = Training { args: &["--fault=signal:3:5"], ..TINY };
    let job =
        Job::start(&cluster, "unnamed", &launcher, &["--nproc-per-node=2", "--max-restarts=3"], training);
    let (ended, journal, _) = job.finishes(LIMIT, &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    for node in [1, 2] {
        let asked = std::fs::read(place(node, "")).unwrap_or_default();
        assert!(asked.is_empty(), "n{node} asked for a name: {}", String::from_utf8_lossy(&asked));
    }
    // They go with the cluster.
    drop(cluster);
    for mut server in servers {
        let _ = server.wait();
    }
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
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    // Each leads in a directory of its own, and neither has a majority: nothing was started.
    for (other, runs) in [("n2", runs.clone()), ("n1", PathBuf::from("/local/runs"))] {
        let said =
            format!("; {other} never came: was relight started there, and does it see this run directory?");
        assert!(ended.stderr.contains(&said), "{}", ended.stderr);
        let node = if other == "n2" { 1 } else { 2 };
        let kinds = cluster.on_node(node, &format!("cat {}/apart/journal/*", runs.display()));
        assert!(kinds.contains("\"kind\": \"lead\"") && !kinds.contains("\"kind\": \"attempt\""), "{kinds}");
    }
    cluster.nothing_left([1, 2], Duration::from_secs(5));
}

/// A node whose mount failed sees an empty directory under the name of the run directory: it makes a run of its own there, and
/// must not disturb that of the others.
#[test]
fn a_node_that_sees_another_directory_leads_nobody() {
    let Some(cluster) = Cluster::up(3) else { return };
    let runs = cluster.shared().join("runs");
    std::fs::create_dir(&runs).unwrap();
    let own = format!("mkdir -p /local/runs && mount --bind /local/runs {} && echo done", runs.display());
    assert_eq!(cluster.on_node(3, &own), "done");
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N3"]).collect();
    let options = [ONE_SPARE, &["--join-timeout=15"]].concat();
    // Until that node has tried to lead.
    let training = Training { steps: 300, step_time: "0.1", ..TINY };
    let job = Job::start(&cluster, "strays", &launcher, &options, training);
    let (ended, journal, _) = job.finishes_but_for_slurm(Duration::from_secs(120), &[1, 2, 3]);
    assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
    let kinds = cluster.on_node(3, &format!("cat {}/strays/journal/*", runs.display()));
    assert!(kinds.contains("\"kind\": \"lead\"") && !kinds.contains("\"kind\": \"attempt\""), "{kinds}");
    assert!(ended.stderr.contains("; never came: n1, n2: was relight started there"), "{}", ended.stderr);
}

/// A node that reads an old copy of the run directory, secret and all, is told by what the coordinator has just written.
#[test]
fn a_node_that_reads_an_old_copy_of_the_directory_is_named() {
    let Some(cluster) = Cluster::up(2) else { return };
    let launcher: Vec<&str> = SRUN.iter().copied().chain(["-N2"]).collect();
    let training = Training { steps: 150, step_time: "0.1", ..TINY };
    let options = ["--nproc-per-node=2", "--max-restarts=3"];
    let job = Job::start(&cluster, "copied", &launcher, &options, training);
    job.reached(0, 5);
    let runs = cluster.shared().join("runs").display().to_string();
    let copy = format!("cp -a {runs} /local/copy && mount --bind /local/copy {runs} && echo done");
    assert_eq!(cluster.on_node(2, &copy), "done");
    // The next coordinator writes what the copy does not have.
    let agent = cluster.agent_on(1);
    cluster.signal_on(1, agent, "KILL");
    let (ended, journal, _) = job.finishes(Duration::from_secs(120), &[1, 2]);
    assert_eq!(journal.attempts.len(), 2, "{}", ended.stderr);
    let run = cluster.shared().join("runs/copied");
    let unproven = events_of(&run, "unproven");
    assert!(
        !unproven.is_empty() && unproven.iter().all(|e| e["node"] == "n2"),
        "{unproven:?}\n{}",
        ended.stderr
    );
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
