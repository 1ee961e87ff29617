//! What a rank is born with: a session of its own, and an input that is empty, but for the first one at a terminal.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::run::LONG;
use crate::support::leftovers;
use crate::support::relight::{Ended, RelightCommand, Scene};

const LOOK: &str = "
import json, os, sys
look = {'leads': os.getsid(0) == os.getpid() == os.getpgid(0), 'stdin': os.readlink('/proc/self/fd/0'),
        'tty': os.isatty(0), 'empty': os.isatty(0) or sys.stdin.read() == '', 'fds': sorted(os.listdir('/proc/self/fd'))}
open(sys.argv[1] + os.environ['LOCAL_RANK'], 'w').write(json.dumps(look))
";

/// Runs the launcher under a terminal of its own.
const TERMINAL: &str = "
import os, pty, sys
sys.exit(os.WEXITSTATUS(pty.spawn(sys.argv[1:])))
";

fn looks(scene: &Scene, ended: &Ended) -> BTreeMap<u32, Value> {
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let read = |rank: u32| {
        let text = std::fs::read_to_string(scene.path(&format!("look{rank}"))).expect("the rank wrote it");
        (rank, serde_json::from_str::<Value>(&text).expect("JSON"))
    };
    let looks: BTreeMap<u32, Value> = (0..3).map(read).collect();
    for look in looks.values() {
        assert_eq!(look["leads"], true, "{look}");
        // The fourth is the listing itself.
        assert_eq!(look["fds"].as_array().map(Vec::len), Some(4), "{look}");
    }
    leftovers::assert_none(scene);
    looks
}

fn arguments(command: &mut RelightCommand, scene: &Scene) {
    command.args(["--nproc-per-node=3", "--no-python", "python3", "-c", LOOK]).arg(scene.path("look"));
}

#[test]
fn without_a_terminal_every_input_is_empty() {
    let scene = Scene::new();
    let mut command = RelightCommand::run(&scene);
    arguments(&mut command, &scene);
    for (rank, look) in looks(&scene, &command.spawn().wait(LONG)) {
        assert_eq!((&look["stdin"], &look["empty"]), (&"/dev/null".into(), &true.into()), "rank {rank}");
    }
}

#[test]
fn at_a_terminal_the_first_rank_may_read_it() {
    let scene = Scene::new();
    let mut command = RelightCommand::run(&scene);
    arguments(&mut command, &scene);
    command.behind(&["python3", "-c", TERMINAL]);
    let looks = looks(&scene, &command.spawn().wait(LONG));
    assert_eq!(looks[&0]["tty"], true, "{looks:?}");
    for rank in [1, 2] {
        assert_eq!(looks[&rank]["stdin"], "/dev/null", "{looks:?}");
    }
}
