//! The rendezvous store with torch's own clients.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use relight::torch_store::{COUNT_AFTER, Limits, MOST_BUFFERED, Opening, Server, listen};

use crate::support::leftovers;
use crate::support::relight::{RelightCommand, Scene};
use crate::{RUN, old_python, python};

fn serve(world: u32) -> Server {
    let opening = Opening {
        places: Vec::new(),
        world,
        limits: Limits::default(),
        most: 1024,
        buffered: MOST_BUFFERED,
        count_after: COUNT_AFTER,
        tell: Box::new(|_| ()),
    };
    listen(IpAddr::from([127, 0, 0, 1]), 0).unwrap().serve(opening).unwrap()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torch").join(name)
}

/// The last line of a script that talks to this store with this torch.
fn ask(python: &OsString, server: &Server, name: &str, args: &[&str]) -> String {
    let at = server.address();
    let mut command = Command::new(python);
    command.arg(script(name)).arg(at.ip().to_string()).arg(at.port().to_string()).args(args);
    let out = command.env_remove("TORCHELASTIC_USE_AGENT_STORE").output().unwrap();
    let said = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{name} {args:?}: {}\n{}{}", out.status, said.0, said.1);
    eprint!("{}", said.0);
    said.0.lines().last().unwrap_or_default().to_owned()
}

/// Every operation, 10,000 random ones one at a time (1,250 with the older kind), and 10,000 that twelve clients ask at once;
/// `kind` of torch's own server is compared.
fn same_answers(python: &OsString, kind: &str) {
    assert_eq!(ask(python, &serve(8), "store_ops.py", &["1", "10000", kind]), "same 10000");
}

fn gloo_groups(python: &OsString) {
    for world in [2_u32, 8, 32] {
        let last = ask(python, &serve(world), "store_gloo.py", &[&world.to_string()]);
        assert_eq!(last, format!("sum {} of {world}", world * (world + 1) / 2));
    }
}

fn restarts_in_place(python: &OsString) {
    let scene = Scene::new();
    let mut command = RelightCommand::run(&scene);
    command.env("PYTHON_EXEC", python).args(["--nproc-per-node=2", "--max-restarts=3"]);
    let ended = command.arg(script("store_restart.py")).spawn().wait(RUN);
    leftovers::assert_none(&scene);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("attempt 2: 6"), "{}\n{}", ended.stdout, ended.stderr);
    for dead in ["rank 0", "rank 1"] {
        let said = |line: &str| line.contains(dead) && line.contains("SIGKILL");
        assert!(ended.stderr.lines().any(said), "{dead}: {}", ended.stderr);
    }
}

#[test]
fn torchs_clients_get_the_answers_of_torchs_server() {
    let Some(python) = python() else { return };
    same_answers(&python, "libuv");
}

/// The one that it had before, and still has.
#[test]
fn torchs_clients_get_the_answers_of_torchs_older_server() {
    let Some(python) = python() else { return };
    same_answers(&python, "plain");
}

#[test]
fn gloo_groups_of_2_8_and_32_ranks() {
    let Some(python) = python() else { return };
    gloo_groups(&python);
}

/// What torchrun 2.15 fails at: its second attempt finds the addresses of the first in the store.
#[test]
fn gloo_ranks_are_restarted_in_place() {
    let Some(python) = python() else { return };
    restarts_in_place(&python);
}

/// The floor: clients of torch 2.1 and that server of its own which it starts by itself.
#[test]
fn clients_of_torch_2_1_get_the_answers_of_its_server() {
    let Some(python) = old_python() else { return };
    same_answers(&python, "plain");
}

#[test]
fn gloo_groups_of_torch_2_1() {
    let Some(python) = old_python() else { return };
    gloo_groups(&python);
}

#[test]
fn gloo_ranks_of_torch_2_1_are_restarted_in_place() {
    let Some(python) = old_python() else { return };
    restarts_in_place(&python);
}
