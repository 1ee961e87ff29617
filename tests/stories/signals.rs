//! Signals to the launcher.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::support::leftovers;
use super::support::relight::{Ended, Running, Scene};
use super::support::wait::wait_for;
use super::{LONG, look, running};

fn send(running: &Running, signal: Signal) {
    kill(Pid::from_raw(running.pid()), signal).unwrap();
}

/// Waits for a text on one of the streams.
fn until(scene: &Scene, stream: &str, text: &str) {
    wait_for(text, LONG, || {
        let said = std::fs::read_to_string(scene.path(stream)).unwrap_or_default();
        if said.contains(text) { Ok(()) } else { Err(said) }
    });
}

/// The journal's end and what people are told agree with the exit code.
fn stopped_by(scene: &Scene, ended: &Ended, signal: Signal) {
    let code = 128 + signal as i32;
    assert_eq!(ended.code, code, "{}", ended.stderr);
    let last = ended.stderr.lines().last().unwrap_or_default();
    assert!(
        last.contains(&format!("ended: stopped by {}. Exit {code}.", signal.as_str())),
        "{}",
        ended.stderr
    );
    let (_, status) = look(scene, &["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!((&status["end"]["outcome"], &status["end"]["code"]), (&"stopped".into(), &code.into()));
    leftovers::assert_none(scene);
}

/// Each rank says which signals reach it. TERM ends it, with a last word; its child says nothing but would if it
/// heard anything.
const EARS: &str = "\
import os, signal, subprocess, sys, time
def hear(no, frame):
    os.write(1, b'heard %d\\n' % no)
    if no in (1, 2, 3, 15):
        os._exit(0)
for no in (1, 2, 3, 15, 10):
    signal.signal(no, hear)
code = 'import os,signal,time\\nsignal.signal(15, lambda *_: os.write(1, b\"child heard\\\\n\"))\\nos.write(1, b\"up\\\\n\")\\ntime.sleep(120)'
subprocess.Popen([sys.executable, '-c', code])
while True:
    time.sleep(1)
";

#[test]
fn a_stop_reaches_the_leader_of_each_rank_only() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT] {
        let scene = Scene::new();
        let launcher = running(&scene, 2, &[], EARS);
        send(&launcher, signal);
        let ended = launcher.wait(LONG);
        stopped_by(&scene, &ended, signal);
        assert_eq!(
            ended.stdout.matches(&format!("heard {}\n", signal as i32)).count(),
            2,
            "{}",
            ended.stdout
        );
        assert!(!ended.stdout.contains("child heard"), "{}", ended.stdout);
    }
}

#[test]
fn usr1_and_usr2_reach_only_who_handles_them() {
    let scene = Scene::new();
    let launcher = running(&scene, 2, &[], EARS);
    // Nobody handles USR2: it would kill.
    send(&launcher, Signal::SIGUSR2);
    send(&launcher, Signal::SIGUSR1);
    until(&scene, "stdout", "heard 10\n");
    send(&launcher, Signal::SIGTERM);
    let ended = launcher.wait(LONG);
    stopped_by(&scene, &ended, Signal::SIGTERM);
    assert_eq!(ended.stdout.matches("heard 10\n").count(), 2, "{}", ended.stdout);
}

#[test]
fn under_nohup_a_hangup_is_nothing() {
    let scene = Scene::new();
    super::script(&scene, "stay.py", EARS);
    let mut command = scene.command("nohup");
    command.arg(super::support::relight::binary()).args([
        "run",
        "--nproc-per-node=2",
        "--run-id=scene",
        "--run-dir",
    ]);
    command.arg(scene.path("run")).arg("stay.py");
    let out = std::fs::File::create(scene.path("stdout")).unwrap();
    let err = std::fs::File::create(scene.path("stderr")).unwrap();
    let mut child = command.stdout(out).stderr(err).spawn().unwrap();
    super::until_up(&scene, 2);
    let pid = Pid::from_raw(child.id() as i32);
    kill(pid, Signal::SIGHUP).unwrap();
    kill(pid, Signal::SIGUSR1).unwrap();
    until(&scene, "stdout", "heard 10\n");
    kill(pid, Signal::SIGTERM).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(143));
    let said = std::fs::read_to_string(scene.path("stdout")).unwrap();
    assert!(!said.contains("heard 1\n"), "{said}");
    leftovers::assert_none(&scene);
}

/// Says that it is up and ignores everything that can be ignored.
const DEAF: &str = "\
import os, signal, time
for no in (1, 2, 3, 15):
    signal.signal(no, signal.SIG_IGN)
os.write(1, b'up\\n')
time.sleep(120)
";

#[test]
fn a_second_term_kills_from_three_seconds_on() {
    let scene = Scene::new();
    let launcher = running(&scene, 2, &[], DEAF);
    send(&launcher, Signal::SIGTERM);
    until(&scene, "stderr", "stopping 2 ranks (SIGTERM); SIGKILL in 30 s");
    // A burst is one signal: Slurm sends TERM CONT TERM.
    send(&launcher, Signal::SIGTERM);
    // Not a way to wait for something: the rule itself counts the time between the two.
    std::thread::sleep(Duration::from_millis(3200));
    assert!(!std::fs::read_to_string(scene.path("stderr")).unwrap().contains("killing"));
    send(&launcher, Signal::SIGTERM);
    let ended = launcher.wait(LONG);
    assert!(ended.stderr.contains("killing 2 ranks (SIGTERM again)"), "{}", ended.stderr);
    assert!(ended.took < Duration::from_secs(25), "{:?}", ended.took);
    stopped_by(&scene, &ended, Signal::SIGTERM);
}

#[test]
fn shutdown_timeout_holds_at_the_end() {
    let scene = Scene::new();
    let launcher = running(&scene, 2, &["--shutdown-timeout=0.5"], DEAF);
    send(&launcher, Signal::SIGTERM);
    let ended = launcher.wait(LONG);
    assert!(ended.stderr.contains("SIGKILL in 0.5 s"), "{}", ended.stderr);
    stopped_by(&scene, &ended, Signal::SIGTERM);
}

#[test]
fn shutdown_timeout_holds_at_a_restart() {
    // Rank 0 dies in attempt 0, rank 1 is deaf: what it takes until attempt 1 is what it was given.
    let text = "\
import os, signal, sys, time
signal.signal(15, signal.SIG_IGN)
if os.environ['TORCHELASTIC_RESTART_COUNT'] == '1':
    sys.exit(0)
if os.environ['RANK'] == '1':
    os.write(1, b'up\\n')
    time.sleep(120)
while not os.path.exists('go'):
    time.sleep(0.02)
os._exit(5)
";
    for (option, at_least, below) in [("3s", 2_900, 9_000), ("0.2s", 150, 1_900)] {
        let scene = Scene::new();
        let launcher = running_one(&scene, &["--max-restarts=1", "--shutdown-timeout", option], text);
        let ended = launcher.wait(LONG);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        let report = std::fs::read(super::run_dir(&scene).join("incidents/0000/report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        let took = report["stopped_ms"].as_u64().unwrap();
        assert!((at_least..below).contains(&took), "--shutdown-timeout {option}: {took} ms");
    }
}

fn running_one(scene: &Scene, options: &[&str], text: &str) -> Running {
    super::script(scene, "stay.py", text);
    let running = super::run(scene, 2, options, &["stay.py"]).spawn();
    super::until_up(scene, 1);
    super::script(scene, "go", "");
    running
}
