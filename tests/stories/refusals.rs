//! Run directories that cannot be used: a sentence, exit code 2, and nothing changed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::support::leftovers;
use super::support::relight::Scene;
use super::support::wait::wait_for;
use super::{golden, look, play, run_dir, running, script};

/// A run that failed: a journal of four records.
const FAIL: &str = "import os\nos.write(1, b'what a rank said\\n')\nos._exit(3)\n";

fn failed_run() -> Scene {
    let scene = Scene::new();
    script(&scene, "train.py", FAIL);
    assert_eq!(again(&scene).0, 1);
    scene
}

fn again(scene: &Scene) -> (i32, String) {
    let ended = play(scene, 2, &["--max-restarts=0"], &["train.py"]);
    (ended.code, ended.stdout + &ended.stderr)
}

/// Starts it once more without touching the files that hold the first one's output.
fn again_of(scene: &Scene, program: &str) -> (i32, String) {
    let mut command = scene.command(super::binary());
    command.args(["run", "--run-id=scene", "--run-dir"]).arg(scene.path("run")).arg(program);
    let said = command.output().unwrap();
    (said.status.code().unwrap_or(-1), String::from_utf8_lossy(&said.stderr).into_owned())
}

fn record(scene: &Scene, seq: u64) -> PathBuf {
    run_dir(scene).join("journal").join(format!("{seq:020}"))
}

/// Every file with its content and permissions.
fn contents(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let (path, meta) = (entry.path(), entry.metadata().unwrap());
            if meta.is_dir() {
                todo.push(path);
            } else if meta.is_file() {
                found.insert(path.clone(), (meta.permissions().mode(), fs::read(path).unwrap()));
            }
        }
    }
    found
}

/// Breaks something in the directory of a run that failed, and starts the run again.
fn refused(what: &str, damage: impl FnOnce(&Scene)) -> String {
    let scene = failed_run();
    damage(&scene);
    let before = contents(&scene.path("run"));
    let (code, said) = again(&scene);
    assert_eq!(code, 2, "{what}: {said}");
    assert_eq!(contents(&scene.path("run")), before, "{what}: something was changed");
    let commands: [&[&str]; 6] =
        [&["status"], &["why"], &["events"], &["events", "--replay"], &["logs"], &["inject", "kill-rank"]];
    for command in commands {
        let (code, said) = look(&scene, command);
        assert!((0..=2).contains(&code) && !said.contains("panicked"), "{what}: {command:?}: {code} {said}");
    }
    leftovers::assert_none(&scene);
    let root = scene.path("").to_str().unwrap().trim_end_matches('/').to_owned();
    format!("# {what}\n{}\n", said.replace(&root, "[SCENE]"))
}

#[test]
fn damaged_and_foreign_directories() {
    let json = |scene: &Scene| run_dir(scene).join("run.json");
    let mut said = String::new();
    said += &refused("run.json is torn", |s| fs::write(json(s), "{\"v\":").unwrap());
    said += &refused("run.json is empty", |s| fs::write(json(s), "").unwrap());
    said += &refused("run.json is of a newer version", |s| {
        let text = fs::read_to_string(json(s)).unwrap();
        let newer = text.replacen("\"v\": 1", "\"v\": 99", 1);
        assert_ne!(text, newer);
        fs::write(json(s), newer).unwrap();
    });
    said += &refused("run.json is gone", |s| fs::remove_file(json(s)).unwrap());
    said += &refused("a record in the middle is damaged", |s| fs::write(record(s, 1), "garbage").unwrap());
    said += &refused("a record in the middle is gone", |s| fs::remove_file(record(s, 1)).unwrap());
    said += &refused("the last record is damaged", |s| fs::write(record(s, 3), "garbage").unwrap());
    said += &refused("the last record is empty", |s| fs::write(record(s, 3), "").unwrap());
    said += &refused("a record is of a newer version", |s| {
        let text = fs::read_to_string(record(s, 3)).unwrap();
        fs::write(record(s, 3), text.replacen("\"v\": 1", "\"v\": 9", 1)).unwrap();
    });
    said += &refused("the secret is damaged", |s| fs::write(run_dir(s).join("secret"), "x").unwrap());
    said += &refused("others may read the secret", |s| {
        let mode = fs::Permissions::from_mode(0o644);
        fs::set_permissions(run_dir(s).join("secret"), mode).unwrap();
    });
    said += &refused("it is a symbolic link", |s| {
        fs::rename(run_dir(s), s.path("run/elsewhere")).unwrap();
        symlink("elsewhere", run_dir(s)).unwrap();
    });
    said += &refused("it is somebody's directory", |s| {
        fs::remove_dir_all(run_dir(s)).unwrap();
        fs::create_dir(run_dir(s)).unwrap();
        fs::write(run_dir(s).join("notes.txt"), "mine").unwrap();
    });
    said += &refused("it is a file", |s| {
        fs::remove_dir_all(run_dir(s)).unwrap();
        fs::write(run_dir(s), "mine").unwrap();
    });
    let scene = Scene::new();
    golden!(scene, "refused", said);
}

#[test]
fn a_damaged_journal_is_said_by_everything_that_reads_it() {
    let scene = failed_run();
    fs::write(record(&scene, 1), "garbage").unwrap();
    let commands: [&[&str]; 4] = [&["status"], &["why"], &["events"], &["events", "--replay"]];
    for command in commands {
        let (code, said) = look(&scene, command);
        assert!(code == 1 && said.contains("record 1 cannot be read"), "{command:?}: {code} {said}");
    }
    // What the ranks printed lies beside the journal.
    for number in [1, 0] {
        fs::write(record(&scene, number), "garbage").unwrap();
        let (code, said) = look(&scene, &["logs"]);
        assert!(code == 1 && said.contains("what a rank said"), "{number}: {code} {said}");
        assert!(said.contains(&format!("record {number} cannot be read")), "{said}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_not_tried_again_and_again() {
    let scene = Scene::new();
    let program = scene.path("exp/no-program");
    fs::write(&program, "neither a binary nor a script with an interpreter\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let ended = play(&scene, 2, &["--max-restarts=20", "--no-python"], &["./no-program"]);
    let said = &ended.stderr;
    assert_eq!(ended.code, 1, "{said}");
    assert!(said.contains("could not start: exec ./no-program") && said.contains("ENOEXEC"), "{said}");
    assert!(said.contains("another try would change nothing"), "{said}");
    assert!(!said.contains("restart 1"), "{said}");
}

#[test]
fn a_second_launch_of_a_run_that_runs() {
    let scene = Scene::new();
    let first = running(&scene, 2, &[], super::STAY);
    let (code, sentence) = again_of(&scene, "stay.py");
    assert_eq!(code, 2);
    let named = format!("run scene is already running on this node as pid {} since 20", first.pid());
    assert!(sentence.contains(&named), "{sentence}");
    let (code, status) = look(&scene, &["status"]);
    assert!(code == 0 && status.contains("runs (for"), "{status}");
}

#[test]
fn a_second_launch_from_another_session() {
    // The first from a cron job without a runtime directory, the second from a login with one.
    let scene = Scene::new();
    script(&scene, "stay.py", super::STAY);
    let mut command = super::run(&scene, 1, &[], &["stay.py"]);
    let first = command.env("XDG_RUNTIME_DIR", "").spawn();
    super::until_up(&scene, 1);
    let (code, said) = again_of(&scene, "stay.py");
    assert!(code == 2 && said.contains(&format!("as pid {} since 20", first.pid())), "{said}");
    let (_, status) = look(&scene, &["status"]);
    assert!(status.contains("runs (for"), "{status}");
}

#[test]
fn looking_at_a_run_does_not_keep_it_from_starting() {
    let scene = Scene::new();
    script(&scene, "train.py", "");
    assert_eq!(play(&scene, 1, &[], &["train.py"]).code, 0);
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (code, said) = look(&scene, &["status"]);
                assert_eq!(code, 0, "{said}");
            }
        });
        for _ in 0..5 {
            let ended = play(&scene, 1, &[], &["train.py"]);
            assert_eq!(ended.code, 0, "{}", ended.stderr);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn a_finished_run_and_another_command_line() {
    let scene = Scene::new();
    script(&scene, "train.py", "");
    let first = play(&scene, 1, &[], &["train.py"]);
    let again = play(&scene, 1, &[], &["train.py"]);
    let other = play(&scene, 1, &[], &["train.py", "--lr=1"]);
    assert_eq!((first.code, again.code, other.code), (0, 0, 0));
    golden!(scene, "finished_twice", format!("{}----\n{}----\n{}", first.stderr, again.stderr, other.stderr));
    assert!(scene.path("run/scene~1/run.json").is_file(), "the earlier run is kept");
    let (_, status) = look(&scene, &["status", "scene~1"]);
    assert!(status.contains("finished"), "{status}");
}

/// A small file system in the place of the scene's run directories.
struct Small(PathBuf);

impl Small {
    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: a test that gives up may leave somebody in it.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn small(scene: &Scene, size: &str) -> Option<Small> {
    let room = scene.path("run");
    let mut mount = std::process::Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&room);
    let mounted = mount.stderr(std::process::Stdio::null()).status();
    if mounted.is_ok_and(|status| status.success()) {
        return Some(Small(room));
    }
    eprintln!("skipped: a small file system can be mounted by root only");
    None
}

/// Fills the file system, then fails; the next attempt ends well.
const FILL: &str = "\
import os, sys, time
if os.environ['TORCHELASTIC_RESTART_COUNT'] == '1':
    sys.exit(0)
if os.environ['RANK'] == '0':
    try:
        with open(sys.argv[1], 'wb', buffering=0) as ballast:
            while True:
                ballast.write(b'x' * 4096)
    except OSError:
        os._exit(3)
time.sleep(120)
";

#[test]
fn a_file_system_that_fills_up() {
    for room_comes_back in [true, false] {
        let scene = Scene::new();
        script(&scene, "train.py", FILL);
        let Some(room) = small(&scene, "1m") else { return };
        let ballast = room.join("ballast");
        let timeout = if room_comes_back { "--store-timeout=60" } else { "--store-timeout=2" };
        let program = ["train.py", ballast.to_str().unwrap()];
        let launcher = super::run(&scene, 2, &["--max-restarts=1", timeout], &program).spawn();
        wait_for("the full disk to be said", super::LONG, || {
            let said = fs::read_to_string(scene.path("stderr")).unwrap_or_default();
            if said.contains("the run directory cannot be written: write ") { Ok(()) } else { Err(said) }
        });
        if room_comes_back {
            fs::remove_file(&ballast).unwrap();
        }
        let ended = launcher.wait(super::LONG);
        let (_, replay) = look(&scene, &["events", "--replay"]);
        drop(room);
        let last = if room_comes_back { "attempt 1 running" } else { "  rank      : 0 (local_rank: 0)\n" };
        assert!(ended.stderr.contains(last), "{}", ended.stderr);
        assert!(ended.stderr.contains("ENOSPC, No space left on device; trying again"), "{}", ended.stderr);
        assert_eq!(ended.code, i32::from(!room_comes_back), "{}", ended.stderr);
        // Nothing is started that the journal does not know.
        let attempts = if room_comes_back { "attempt       1" } else { "attempt       0" };
        assert!(replay.contains(attempts), "{replay}");
        leftovers::assert_none(&scene);
    }
}

#[test]
fn a_file_system_without_room() {
    let scene = Scene::new();
    script(&scene, "train.py", "");
    let Some(room) = small(&scene, "64k") else { return };
    fs::write(room.join("full"), vec![0; 60_000]).ok();
    let ended = play(&scene, 1, &[], &["train.py"]);
    drop(room);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("relight: error: no space is left for the run directory"),
        "{}",
        ended.stderr
    );
    assert!(ended.stderr.contains("relight: hint: free some space"), "{}", ended.stderr);
    leftovers::assert_none(&scene);
}
