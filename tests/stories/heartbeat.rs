//! The heartbeat board between a real agent and real ranks, and the Python client's own tests.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use relight::domain::board::{Feeder, Phase, Sample, read};

use super::support::leftovers;
use super::support::procfs;
use super::support::relight::{Running, Scene};
use super::support::wait::wait_for;
use super::{LONG, play, run, running, script, until_up};

/// Beats once, says that it is up, and stays.
const BEAT: &str = "
import os, time, relight
with relight.section('warm up', timeout=60):
    relight.heartbeat(41 + int(os.environ['RANK']))
    relight.phase('checkpoint').__enter__()
    os.write(1, b'up\\n')
    time.sleep(120)
";

/// The page of each rank that lives, by local rank, and who was started as that rank.
fn pages(scene: &Scene) -> Vec<(u32, PathBuf, i32)> {
    let variable = |environ: &[u8], name: &str| {
        let entry = environ.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(name.as_bytes()));
        entry.map(|value| String::from_utf8(value.to_vec()).unwrap())
    };
    let mut found: Vec<(u32, PathBuf, i32)> = procfs::with_environment(&scene.mark())
        .iter()
        .filter_map(|process| {
            let environ = fs::read(format!("/proc/{}/environ", process.pid)).ok()?;
            let rank = variable(&environ, "LOCAL_RANK=")?.parse().ok()?;
            Some((rank, variable(&environ, "RELIGHT_BOARD=")?.into(), process.pid))
        })
        .collect();
    found.sort();
    found
}

fn stop(running: Running) {
    kill(Pid::from_raw(running.pid()), Signal::SIGTERM).unwrap();
    running.wait(LONG);
}

fn sample(page: &PathBuf) -> Option<Sample> {
    read(&fs::read(page).unwrap())
}

#[test]
fn ranks_beat_on_pages_of_their_own() {
    let scene = Scene::new();
    let running = running(&scene, 2, &[], BEAT);
    let pages = pages(&scene);
    assert_eq!(pages.len(), 2, "{pages:?}");
    for (rank, page, pid) in &pages {
        let found = sample(page).unwrap();
        assert_eq!((found.pid, found.feeder), (u32::try_from(*pid).unwrap(), Feeder::Client));
        assert_eq!((found.step, found.phase), (Some(41 + u64::from(*rank)), Phase::Checkpoint));
        assert_eq!(
            (found.sections[0].name.as_str(), found.sections[0].timeout_ms),
            ("warm up", Some(60_000))
        );
        assert!(found.stack_signal.is_some());
    }
    stop(running);
    assert!(pages.iter().all(|(_, page, _)| !page.exists()));
    leftovers::assert_none(&scene);
}

#[test]
fn the_grandchild_of_a_wrapper_beats() {
    let scene = Scene::new();
    script(&scene, "beat.py", BEAT);
    script(&scene, "wrap.sh", "\"$PYTHON\" beat.py\ntrue\n");
    let mut command = run(&scene, 1, &["--no-python"], &["/bin/sh", "wrap.sh"]);
    let running = command.env("PYTHON", "python3").spawn();
    until_up(&scene, 1);
    let pages = pages(&scene);
    let [(_, page, shell), (_, same, python)] = pages.as_slice() else { panic!("{pages:?}") };
    assert_eq!(page, same);
    let owner = i32::try_from(sample(page).unwrap().pid).unwrap();
    let parent = procfs::read(owner).unwrap().ppid;
    assert!([(*shell, *python), (*python, *shell)].contains(&(parent, owner)), "{pages:?}");
    stop(running);
    leftovers::assert_none(&scene);
}

#[test]
fn an_attempt_begins_with_fresh_pages() {
    let scene = Scene::new();
    let text = "
import os, sys, time, relight
if os.environ['RELIGHT_ATTEMPT'] == '0':
    relight.heartbeat(7)
    sys.exit(3)
os.write(1, b'up\\n')
time.sleep(120)
";
    let running = running(&scene, 1, &["--max-restarts=1"], text);
    let pages = pages(&scene);
    assert!(pages[0].1.ends_with("attempt-1/0"), "{pages:?}");
    assert_eq!(sample(&pages[0].1), None);
    assert!(!pages[0].1.with_file_name("../attempt-0").exists());
    stop(running);
    leftovers::assert_none(&scene);
}

/// Nobody looks at a page in the moment between a word and an end.
#[test]
fn who_asks_for_the_end_and_goes_is_heard() {
    let scene = Scene::new();
    script(&scene, "nan.py", "import sys, relight\nrelight.request_stop('the loss is NaN')\nsys.exit(1)\n");
    let ended = play(&scene, 2, &["--max-restarts=3"], &["nan.py"]);
    assert_eq!(ended.code, 93, "{}", ended.stderr);
    assert!(ended.stderr.contains("asked for the end of the run: the loss is NaN"), "{}", ended.stderr);
    leftovers::assert_none(&scene);
}

#[test]
fn a_rank_that_spoils_its_page_spoils_nothing_else() {
    let scene = Scene::new();
    let text = "
import os
path = os.environ['RELIGHT_BOARD']
def spoil(data):
    with open(path, 'r+b') as file: file.write(data)
spoil(os.urandom(4096))
spoil(b'rlboard1' + os.urandom(4088))
os.truncate(path, 10)
os.unlink(path)
os.mkfifo(path)
os.mkfifo(path + '.stacks')
import time
time.sleep(0.5)
";
    script(&scene, "spoil.py", text);
    let ended = play(&scene, 2, &[], &["spoil.py"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    leftovers::assert_none(&scene);
}

#[test]
fn hooks_can_be_switched_off() {
    let scene = Scene::new();
    let text = "
import os, sys
entries = os.environ['PYTHONPATH'].split(':')
import relight
print('paths', [os.path.basename(entry) for entry in entries], any(f.__class__ is type and f.__name__ == 'Finder' for f in sys.meta_path))
";
    script(&scene, "look.py", text);
    let said = |option: &[&str]| {
        let mut command = run(&scene, 1, option, &["look.py"]);
        let ended = command.env("PYTHONPATH", "/mine").spawn().wait(LONG);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.stdout.lines().find_map(|line| line.strip_prefix("paths ").map(str::to_owned)).unwrap()
    };
    assert_eq!(said(&["--run-id=on"]), "['start', 'mine', 'python'] True");
    assert_eq!(said(&["--run-id=off", "--heartbeat-hooks=off"]), "['mine', 'python'] False");
    leftovers::assert_none(&scene);
}

#[test]
fn an_agent_that_was_killed_leaves_nothing() {
    let scene = Scene::new();
    let running = running(&scene, 1, &["--max-restarts=1"], BEAT);
    let before = pages(&scene)[0].1.clone();
    kill(Pid::from_raw(running.agent().unwrap()), Signal::SIGKILL).unwrap();
    wait_for("a new page", LONG, || {
        let now = pages(&scene);
        if now.iter().any(|(_, page, _)| *page != before) { Ok(()) } else { Err(format!("{now:?}")) }
    });
    assert!(!before.exists(), "the next agent removes what the one before left");
    stop(running);
    leftovers::assert_none(&scene);
}

/// `tests/python`: the client against the layout, the start-up module against a stand-in for torch.
#[test]
fn the_python_clients_own_tests() {
    let root = env!("CARGO_MANIFEST_DIR");
    let mut python = Command::new("python3");
    python.args(["-W", "error", "-m", "unittest", "discover", "-s", "tests/python"]).current_dir(root);
    let said = python.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}
