//! The rendezvous store of the ranks, as ranks without torch see it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use crate::commit_log::CommitLog;
use crate::journal::Journal;
use crate::run::LONG;
use crate::scenario::trainer;
use crate::support::leftovers;
use crate::support::relight::{Ended, RelightCommand, Scene};
use crate::support::wait::wait_for;

fn run(scene: &Scene, options: &[&str], what: &str) -> Ended {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/store.py");
    let mut command = RelightCommand::run(scene);
    command.args(["--nproc-per-node=2"]).args(options).arg(script).arg(scene.path("exp")).arg(what);
    let ended = command.spawn().wait(LONG);
    leftovers::assert_none(scene);
    ended
}

fn read(scene: &Scene, name: &str) -> String {
    fs::read_to_string(scene.path("exp").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn the_store_outlives_rank_0_and_every_attempt_has_its_own() {
    let scene = Scene::new();
    let ended = run(&scene, &["--max-restarts=1"], "outlives");
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(read(&scene, "outlived"), "from 0", "{}", ended.stderr);
    assert_ne!(read(&scene, "port-0"), read(&scene, "port-1"));
    assert!(ended.stderr.contains("rank 0") && ended.stderr.contains("SIGKILL"), "{}", ended.stderr);
}

#[test]
fn who_never_reached_the_store_is_in_the_journal() {
    let scene = Scene::new();
    let ended = run(&scene, &["--max-restarts=0"], "missing");
    assert_eq!(ended.code, 1, "{}\n{}", ended.stdout, ended.stderr);
    let journal = scene.path("run").join("scene/journal");
    let records =
        fs::read_dir(&journal).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let records: Vec<String> = records.filter(|record| record.contains("\"incident\"")).collect();
    let said = |record: &String| {
        record.contains("rank 1 (") && record.contains(") never reached the store (1 of 2 ranks did)")
    };
    assert!(records.iter().any(said), "{records:#?}\n{}", ended.stderr);
}

#[test]
fn rank_0_hosts_the_store_where_that_is_asked_for() {
    let scene = Scene::new();
    let script = "import os, socket\n\
        assert os.environ['TORCHELASTIC_USE_AGENT_STORE'] == 'False'\n\
        listener = socket.create_server((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])))\n\
        print('hosts')\n";
    fs::write(scene.path("exp").join("hosts.py"), script).unwrap();
    let mut command = RelightCommand::run(&scene);
    command.args(["--rdzv-store=rank0", "--max-restarts=0", "hosts.py"]);
    let ended = command.spawn().wait(LONG);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("hosts"), "{}", ended.stdout);
}

/// Rank 0 of the attempts below `conflicts` tells its port and waits until somebody has it; then it is the trainer.
const MEETS: &str = r#"conflicts=$1; shift
if [ "$RANK" = 0 ] && [ "$TORCHELASTIC_RESTART_COUNT" -lt "$conflicts" ]; then
    echo "$MASTER_PORT" >"port.$TORCHELASTIC_RESTART_COUNT.new"
    mv "port.$TORCHELASTIC_RESTART_COUNT.new" "port.$TORCHELASTIC_RESTART_COUNT"
    while [ ! -e "go.$TORCHELASTIC_RESTART_COUNT" ]; do sleep 0.02; done
fi
exec python3 "$@""#;

/// The trainer in two ranks, which somebody else, this process, hinders for so many attempts. What could be had of the ports.
fn hindered(scene: &Scene, conflicts: u64, options: &[&str]) -> (Ended, Vec<std::io::Result<TcpListener>>) {
    let mut command = RelightCommand::run(scene);
    command.args(["--nproc-per-node=2"]).args(options).args(["--no-python", "sh", "-c", MEETS, "sh"]);
    command.arg(conflicts.to_string()).arg(trainer());
    command.args(["--steps=20", "--step-time=0.01", "--ckpt-every=0", "--log"]).arg(scene.path("commit.log"));
    let running = command.spawn();
    let exp = scene.path("exp");
    let mut taken = Vec::new();
    for attempt in 0..conflicts {
        let port: u16 = wait_for("the port of an attempt", LONG, || {
            let text = fs::read_to_string(exp.join(format!("port.{attempt}")));
            text.map(|text| text.trim().parse().unwrap()).map_err(|error| error.to_string())
        });
        // With SO_REUSEADDR, as every server has it.
        taken.push(TcpListener::bind(("0.0.0.0", port)));
        fs::write(exp.join(format!("go.{attempt}")), "").unwrap();
    }
    (running.wait(LONG), taken)
}

#[test]
fn s48_the_port_of_rank_0_is_taken_and_the_ranks_meet_at_another_one() {
    let scene = Scene::new();
    // No restart was asked for, and none is counted.
    let (ended, taken) = hindered(&scene, 1, &["--rdzv-store=rank0", "--max-restarts=0"]);
    let port = taken[0].as_ref().unwrap().local_addr().unwrap().port();
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let line = ended.stderr.lines().find(|line| line.contains(&format!("port {port} of ")));
    let said = line
        .is_some_and(|line| line.ends_with("was taken by another process; starting again on the same node"));
    assert!(said, "{}", ended.stderr);
    let journal = Journal::read(&scene.path("run"), "scene");
    assert_eq!(journal.attempts.len(), 2, "{journal:#?}");
    assert!(!journal.attempts[1].charged, "{journal:#?}");
    let log = CommitLog::read(&scene.path("commit.log"));
    let (failed, next) = (log.first("start", 0).unwrap(), log.first("step", 1).unwrap());
    let took = Duration::from_nanos(next - failed);
    assert!(took <= Duration::from_secs(10), "{took:?}\n{}", ended.stderr);
    leftovers::assert_none(&scene);
}

#[test]
fn a_port_that_is_taken_twice_running_is_a_failure_as_every_other() {
    let scene = Scene::new();
    let (ended, _taken) = hindered(&scene, 2, &["--rdzv-store=rank0", "--max-restarts=0"]);
    assert_eq!(ended.code, 1, "{}\n{}", ended.stdout, ended.stderr);
    assert_eq!(ended.stderr.matches("was taken by another process").count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains("Address already in use"), "{}", ended.stderr);
    assert_eq!(Journal::read(&scene.path("run"), "scene").attempts.len(), 2);
    leftovers::assert_none(&scene);
}

#[test]
fn s48_nobody_gets_the_port_of_a_store_that_the_agent_hosts() {
    let scene = Scene::new();
    let (ended, taken) = hindered(&scene, 1, &["--max-restarts=0"]);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let refused = taken[0].as_ref().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse, "{}", ended.stderr);
    assert_eq!(Journal::read(&scene.path("run"), "scene").attempts.len(), 1);
    leftovers::assert_none(&scene);
}
