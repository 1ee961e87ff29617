//! What a launcher may be started in.

use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Stdio;

use super::support::leftovers;
use super::support::relight::{Scene, binary};
use super::{look, play, script};

/// Writes to both streams for a while, then says in a file that it came to its end.
const CHATTY: &str = "\
import os, sys, time
for i in range(20):
    print('out', i, flush=True)
    print('err', i, file=sys.stderr, flush=True)
    time.sleep(0.01)
open('done.' + os.environ['RANK'], 'w').close()
";

fn launch(scene: &Scene, redirection: &str) -> std::process::Command {
    let mut command = scene.command("/bin/sh");
    let run = scene.path("run");
    command.arg("-c").arg(format!("exec \"$@\" {redirection}")).arg("sh").arg(binary());
    command.args(["run", "--nproc-per-node=2", "--run-id=scene", "--run-dir"]).arg(run).arg("chatty.py");
    command
}

#[test]
fn closed_streams_do_not_matter() {
    for redirection in ["<&-", ">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"] {
        let scene = Scene::new();
        script(&scene, "chatty.py", CHATTY);
        let status =
            launch(&scene, redirection).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(0), "{redirection}");
        for rank in 0..2 {
            assert!(scene.path("exp").join(format!("done.{rank}")).exists(), "{redirection}: rank {rank}");
        }
        let (_, log) = look(&scene, &["logs", "--rank=1"]);
        assert!(log.contains("out 19") && log.contains("err 19"), "{redirection}: {log}");
        leftovers::assert_none(&scene);
    }
}

#[test]
fn a_reader_that_goes_away_does_not_stop_the_job() {
    for stderr in [false, true] {
        let scene = Scene::new();
        script(&scene, "chatty.py", CHATTY);
        let mut command = launch(&scene, "");
        let (out, err) =
            if stderr { (Stdio::null(), Stdio::piped()) } else { (Stdio::piped(), Stdio::null()) };
        let mut child = command.stdout(out).stderr(err).spawn().unwrap();
        // As `| head -1`: something is read, then the pipe is closed.
        let mut byte = [0];
        if stderr {
            child.stderr.take().unwrap().read_exact(&mut byte).unwrap();
        } else {
            child.stdout.take().unwrap().read_exact(&mut byte).unwrap();
        }
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert!((0..2).all(|rank| scene.path("exp").join(format!("done.{rank}")).exists()));
        leftovers::assert_none(&scene);
    }
}

#[test]
fn a_working_directory_that_was_removed() {
    let scene = Scene::new();
    let train = script(&scene, "train.py", "");
    let gone = scene.path("gone");
    let mut command = scene.command("/bin/sh");
    command.args(["-c", "mkdir \"$0\" && cd \"$0\" && rmdir \"$0\" && exec \"$@\""]).arg(&gone).arg(binary());
    let said = command.args(["run", "--run-dir"]).arg(scene.path("run")).arg(train).output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert_eq!(said.status.code(), Some(2), "{text}");
    assert!(text.contains("the working directory does not exist any more"), "{text}");
}

#[test]
fn without_a_home() {
    let scene = Scene::new();
    script(&scene, "train.py", "");
    let mut command = scene.command(binary());
    command.env_remove("HOME").env_remove("XDG_STATE_HOME").args(["run", "train.py"]);
    let said = command.output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("hint: name one: --run-dir DIR"));
    let mut command = super::run(&scene, 1, &[], &["train.py"]);
    let ended = command.env("HOME", "").env("XDG_STATE_HOME", "").spawn().wait(super::LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn words_of_every_kind() {
    let scene = Scene::new();
    let text = "import sys\nprint('words', len(sys.argv), sum(map(len, sys.argv[1:])), flush=True)\n";
    script(&scene, "train.py", text);
    // Long, but kept: everything is in the journal.
    let word = "x".repeat(100_000);
    let words: Vec<&str> = std::iter::once("train.py").chain(std::iter::repeat_n(word.as_str(), 9)).collect();
    let ended = play(&scene, 1, &[], &words);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    assert!(ended.stdout.contains("words 10 900000"), "{}", ended.stdout);
    // Too long.
    let words: Vec<&str> =
        std::iter::once("train.py").chain(std::iter::repeat_n(word.as_str(), 12)).collect();
    let ended = play(&scene, 1, &["--run-id=long"], &words);
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(ended.stderr.contains("longer than 1048576 bytes together"), "{}", ended.stderr);
    assert!(!scene.path("run/long").exists());
    // Not UTF-8: a word is refused, a variable is the ranks' own.
    let mut command = scene.command(binary());
    command.args(["run", "train.py"]).arg(OsStr::from_bytes(b"a\xff"));
    let said = command.output().unwrap();
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("is not valid UTF-8"));
    script(&scene, "train.py", "import os\nassert os.environb[b'ODD'] == b'\\xff'\n");
    let mut command = super::run(&scene, 1, &["--run-id=odd"], &["train.py"]);
    let ended = command.env("ODD", OsStr::from_bytes(b"\xff")).spawn().wait(super::LONG);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
}

#[test]
fn a_port_that_was_taken_is_another_one_after_the_restart() {
    let scene = Scene::new();
    // Rank 1 takes the port before rank 0 can; with torch the same error comes from its store.
    let text = "\
import os, socket, time
port, attempt = int(os.environ['MASTER_PORT']), os.environ['TORCHELASTIC_RESTART_COUNT']
open('port.' + attempt, 'w').write(str(port))
taken = os.path.join(os.getcwd(), 'taken')
if attempt == '0' and os.environ['RANK'] == '1':
    other = socket.create_server(('', port))
    open(taken, 'w').close()
    time.sleep(120)
while attempt == '0' and not os.path.exists(taken):
    time.sleep(0.02)
if os.environ['RANK'] == '0':
    socket.create_server(('', port))
";
    script(&scene, "train.py", text);
    let ended = play(&scene, 2, &["--max-restarts=1", "--rdzv-store=rank0"], &["train.py"]);
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let said =
        ended.stderr.contains("Address already in use") && ended.stderr.contains(" in train.py:12; 1 rank");
    assert!(said, "{}", ended.stderr);
    let port = |attempt: u32| fs::read_to_string(scene.path("exp").join(format!("port.{attempt}"))).unwrap();
    assert_ne!(port(0), port(1));
}

#[test]
fn no_place_for_sockets_and_locks() {
    let scene = Scene::new();
    script(&scene, "train.py", "");
    // The checkout may lie in the temporary folder, too.
    fs::copy(binary(), scene.path("exp/relight")).unwrap();
    let mut command = scene.command("unshare");
    let script = "mount -t tmpfs -o ro none /dev/shm && mount -t tmpfs -o size=1m none /tmp/ && exec \"$@\"";
    // The scene lies in the temporary folder itself: only what is bound before stays visible.
    let keep = format!(
        "mkdir -p /mnt && mount -t tmpfs none /mnt && mkdir /mnt/scene && mount --bind {0} /mnt/scene && {script}",
        scene.path("").display()
    );
    let keep = keep.replace("size=1m", "ro");
    command.args(["-m", "/bin/sh", "-c", &keep, "sh"]).arg("/bin/sh");
    command.args(["-c", "cd /mnt/scene/exp && exec \"$@\"", "sh"]).arg("/mnt/scene/exp/relight");
    command.args(["run", "--run-dir", "/mnt/scene/run", "train.py"]).env("XDG_RUNTIME_DIR", "/nonexistent");
    let said = command.current_dir("/").output().unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    if !text.contains("relight:") {
        eprintln!("skipped: no mount namespace of our own can be made here: {text}");
        return;
    }
    assert_eq!(said.status.code(), Some(2), "{text}");
    assert!(
        text.contains("no private directory on this node: /nonexistent/relight: cannot be made"),
        "{text}"
    );
    assert!(text.contains("/dev/shm/relight-0: cannot be made: Read-only file system"), "{text}");
}
