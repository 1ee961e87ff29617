//! The rendezvous store of the ranks, as ranks without torch see it.

use std::fs;
use std::path::Path;

use crate::run::LONG;
use crate::support::leftovers;
use crate::support::relight::{Ended, RelightCommand, Scene};

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
