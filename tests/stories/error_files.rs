//! What ranks leave in their error files (as torch's `@record` writes them): the report at the end has it, whatever else
//! lies in its place is survived, and whoever started the launcher finds the root in its own.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use super::support::relight::{RelightCommand, Scene};
use super::support::{leftovers, procfs};
use super::{LONG, golden, look, play, run_dir, script};

/// Notes an error as `@record` does and says nothing else; the others stay.
const NOTES: &str = "\
import json, os, time
def leave(text, at=None):
    stack = 'Traceback (most recent call last):\\n  File \"/w/collate.py\", line 41, in f\\n    x\\n' + text + '\\n'
    extra = {'py_callstack': stack, 'timestamp': str(int(at or time.time()))}
    with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as f:
        json.dump({'message': {'message': text, 'extraInfo': extra}}, f)
if os.environ['RANK'] == '1':
    leave(\"KeyError: 'labels'\")
    os._exit(3)
time.sleep(120)
";

/// The error file of a rank of the scene's first attempt.
fn file_of(scene: &Scene, local_rank: u32) -> PathBuf {
    run_dir(scene).join(format!("logs/scene_n01/attempt_0/{local_rank}/error.json"))
}

#[test]
fn the_report_has_what_the_rank_noted() {
    let scene = Scene::new();
    script(&scene, "train.py", NOTES);
    let ended = play(&scene, 3, &["--max-restarts=0"], &["train.py"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    golden!(scene, "error_file", ended.stderr);
    let (_, why) = look(&scene, &["why"]);
    assert!(why.contains("KeyError: 'labels' in collate.py:41"), "{why}");
    assert!(why.contains(&format!("  noted in  {}\n", file_of(&scene, 1).display())), "{why}");
    leftovers::assert_none(&scene);
}

/// Leaves something else in the place of the file, then fails with a traceback.
const STRANGE: &str = "\
import os, socket, sys
path, kind = os.environ['TORCHELASTIC_ERROR_FILE'], sys.argv[1]
good = '{\"message\": \"from the file\", \"timestamp\": 1}'
if kind == 'half':
    open(path, 'w').write(good[:20])
elif kind == 'binary':
    open(path, 'wb').write(bytes(range(256)) * 16)
elif kind == 'huge':
    open(path, 'w').truncate(1 << 40)
elif kind == 'long':
    open(path, 'w').write(good + ' ' * (2 << 20))
elif kind == 'deep':
    open(path, 'w').write('[' * 500_000)
elif kind == 'fifo':
    os.mkfifo(path)
elif kind == 'link':
    open(path + '.real', 'w').write(good)
    os.symlink(path + '.real', path)
elif kind == 'directory':
    os.mkdir(path)
elif kind == 'socket':
    os.chdir(os.path.dirname(path))
    socket.socket(socket.AF_UNIX).bind('error.json')
elif kind == 'gone':
    import shutil
    shutil.rmtree(os.path.dirname(path))
raise ValueError('from the output')
";

#[test]
fn whatever_lies_in_its_place_is_survived() {
    let kinds =
        ["none", "half", "binary", "huge", "long", "deep", "fifo", "link", "directory", "socket", "gone"];
    for kind in kinds {
        let scene = Scene::new();
        script(&scene, "train.py", STRANGE);
        let ended = play(&scene, 1, &["--max-restarts=0"], &["train.py", kind]);
        assert_eq!(ended.code, 1, "{kind}: {}", ended.stderr);
        let at = |text: &str| ended.stderr.lines().any(|line| line.contains(text));
        assert!(at("ended: rank 0 (n01) failed: ValueError: from the output"), "{kind}: {}", ended.stderr);
        assert!(at("  error_file: <N/A>") && !at("from the file"), "{kind}: {}", ended.stderr);
        assert!(ended.took < Duration::from_secs(20), "{kind}: {:?}", ended.took);
        leftovers::assert_none(&scene);
    }
}

#[test]
fn the_plain_form_and_a_signal() {
    let scene = Scene::new();
    let text = "\
import json, os
json.dump({'message': 'shard 17 is gone', 'timestamp': 1}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w'))
os.kill(os.getpid(), 9)
";
    script(&scene, "train.py", text);
    let ended = play(&scene, 1, &["--max-restarts=0"], &["train.py"]);
    for line in [
        "rank 0 (n01) died: SIGKILL: shard 17 is gone; it was the only rank",
        "  traceback : shard 17 is gone",
        "  (SIGKILL)\n",
    ] {
        assert!(ended.stderr.contains(line), "{line}: {}", ended.stderr);
    }
    assert!(ended.stderr.contains(file_of(&scene, 0).to_str().unwrap()), "{}", ended.stderr);
}

/// Rank 0 notes an error and then takes long to end, as a program does whose collectives do not return; rank 1 fails of
/// it later and ends first.
const SLOW_TO_END: &str = "\
import os, signal, time
if os.environ['RANK'] == '0':
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    leave('ValueError: the root')
    time.sleep(120)
first = os.environ['TORCHELASTIC_ERROR_FILE'].replace('/1/', '/0/')
# Such files have whole seconds.
while not os.path.exists(first) or time.time() < os.stat(first).st_mtime + 2.5:
    time.sleep(0.01)
leave('RuntimeError: timed out waiting for a peer')
os._exit(1)
";

#[test]
fn who_noted_an_error_first_is_the_root_though_it_had_to_be_killed() {
    let scene = Scene::new();
    let leave = NOTES.split("if os.environ").next().unwrap();
    script(&scene, "train.py", &format!("{leave}{SLOW_TO_END}"));
    let ended = play(&scene, 2, &["--max-restarts=0", "--shutdown-timeout=0.2"], &["train.py"]);
    let (_, root) = ended.stderr.split_once("Root Cause (first observed failure):").expect("a report");
    assert!(root.contains("rank      : 0 (") && root.contains("ValueError: the root"), "{}", ended.stderr);
    let (_, why) = look(&scene, &["why"]);
    assert!(why.contains("what      rank 0 (n01)"), "{why}");
    leftovers::assert_none(&scene);
}

#[test]
fn whoever_started_the_launcher_finds_the_root() {
    let scene = Scene::new();
    script(&scene, "train.py", NOTES);
    let own = scene.path("home").join("error.json");
    fs::write(&own, "what was there before, and is longer than what comes".repeat(100)).unwrap();
    let start = |program: &[&str]| {
        let mut command = RelightCommand::run(&scene);
        command.env(super::NODE.0, super::NODE.1).env("TORCHELASTIC_ERROR_FILE", &own);
        command.args(["--nproc-per-node=2", "--max-restarts=0"]).args(program).spawn().wait(LONG)
    };
    let ended = start(&["train.py"]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let left: Value = serde_json::from_slice(&fs::read(&own).unwrap()).unwrap();
    let message = &left["message"];
    assert_eq!(message["message"], "KeyError: 'labels'", "{left}");
    assert_eq!(message["errorCode"], 3);
    let noted: Value = serde_json::from_slice(&fs::read(file_of(&scene, 1)).unwrap()).unwrap();
    assert_eq!(message["extraInfo"]["timestamp"], noted["message"]["extraInfo"]["timestamp"]);
    assert!(message["extraInfo"]["py_callstack"].as_str().unwrap().contains("collate.py"), "{left}");
    leftovers::assert_none(&scene);
}

#[test]
fn a_launcher_within_a_rank_hands_its_root_on() {
    let scene = Scene::new();
    script(&scene, "inner.py", NOTES);
    // In the place of a training script that starts a launcher of its own.
    let outer = "\
import os, sys
os.execv(sys.argv[1], sys.argv[1:2] + ['run', '--nproc-per-node=2', '--max-restarts=0', '--run-id=inner', 'inner.py'])
";
    script(&scene, "outer.py", outer);
    let binary = super::support::relight::binary();
    let ended = play(&scene, 1, &["--max-restarts=0"], &["outer.py", binary.to_str().unwrap()]);
    assert_eq!(ended.code, 1, "{}", ended.stderr);
    let last = ended.stderr.rsplit("Root Cause (first observed failure):").next().unwrap();
    assert!(
        last.contains("rank      : 0 (local_rank: 0)") && last.contains("KeyError: 'labels'"),
        "{}",
        ended.stderr
    );
    leftovers::assert_none(&scene);
}

/// Fails at once, then when it is told to, then not.
const TWICE: &str = "\
import os, time
attempt = os.environ['TORCHELASTIC_RESTART_COUNT']
if attempt == '1':
    os.write(1, b'up\\n')
    while not os.path.exists('go'):
        time.sleep(0.01)
os._exit(0 if attempt == '2' else 5)
";

#[test]
fn who_reads_them_may_hang_and_nobody_waits_long() {
    let scene = Scene::new();
    script(&scene, "train.py", TWICE);
    let launcher = super::run(&scene, 1, &["--max-restarts=2"], &["train.py"]).spawn();
    super::until_up(&scene, 1);
    let readers: Vec<_> =
        procfs::below(launcher.pid()).into_iter().filter(|p| p.cmdline.contains("__worker probe")).collect();
    assert!(!readers.is_empty(), "nobody reads");
    // As in a system call that does not return.
    for reader in &readers {
        kill(Pid::from_raw(reader.pid), Signal::SIGSTOP).unwrap();
    }
    script(&scene, "go", "");
    let ended = launcher.wait(LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let report = fs::read(run_dir(&scene).join("incidents/0001/report.json")).unwrap();
    let report: Value = serde_json::from_slice(&report).unwrap();
    assert!(report["running_ms"].as_u64().is_some_and(|ms| (900..8_000).contains(&ms)), "{report}");
    leftovers::assert_none(&scene);
}
