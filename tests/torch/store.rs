//! The rendezvous store with torch's own clients.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use relight::torch_store::{COUNT_AFTER, Limits, MOST_BUFFERED, Opening, Server, listen};

use crate::support::leftovers;
use crate::support::relight::{RelightCommand, Scene};
use crate::{RUN, python};

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

/// The last line of a script that talks to this store.
fn ask(server: &Server, name: &str, args: &[&str]) -> Option<String> {
    let (at, python) = (server.address(), python()?);
    let mut command = Command::new(python);
    command.arg(script(name)).arg(at.ip().to_string()).arg(at.port().to_string()).args(args);
    let out = command.env_remove("TORCHELASTIC_USE_AGENT_STORE").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{name} {args:?}: {}\n{said}", out.status);
    String::from_utf8_lossy(&out.stdout).lines().last().map(str::to_owned)
}

#[test]
fn torchs_clients_get_the_answers_of_torchs_server() {
    let server = serve(8);
    let Some(last) = ask(&server, "store_ops.py", &["1", "10000"]) else { return };
    assert_eq!(last, "same 10000");
}

#[test]
fn gloo_groups_of_2_8_and_32_ranks() {
    for world in [2_u32, 8, 32] {
        let server = serve(world);
        let Some(last) = ask(&server, "store_gloo.py", &[&world.to_string()]) else { return };
        assert_eq!(last, format!("sum {} of {world}", world * (world + 1) / 2));
    }
}

/// What torchrun 2.15 fails at: its second attempt finds the addresses of the first in the store.
#[test]
fn gloo_ranks_are_restarted_in_place() {
    let Some(python) = python() else { return };
    let scene = Scene::new();
    let mut command = RelightCommand::run(&scene);
    command.env("PYTHON_EXEC", &python).args(["--nproc-per-node=2", "--max-restarts=3"]);
    let ended = command.arg(script("store_restart.py")).spawn().wait(RUN);
    leftovers::assert_none(&scene);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("attempt 2: 6"), "{}\n{}", ended.stdout, ended.stderr);
    for dead in ["rank 0", "rank 1"] {
        let said = |line: &str| line.contains(dead) && line.contains("SIGKILL");
        assert!(ended.stderr.lines().any(said), "{dead}: {}", ended.stderr);
    }
}
