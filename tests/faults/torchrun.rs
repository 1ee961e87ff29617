//! The faults of torchrun that a launcher must not have, one test each, by the numbers of the project's list:
//!
//! | | torchrun | the test that shows the better behaviour |
//! |---|---|---|
//! | 2 | a restart in place finds the store of the attempt before | `t02_…` here: fresh port, empty store |
//! | 3 | a node that dies silently is not noticed | `slurm: returns::s39_a_node_without_power_…` |
//! | 6 | without restarts a failing node does not stop the others | `slurm: torchrun::t06_…` |
//! | 7 | orphans: of a killed agent, of a crashed rank, of children with sessions of their own | `t07_…` here, `s18_…`, `guarded::sigkill_of_the_guardian_…` |
//! | 8 | USR1 and USR2 kill the launcher and orphan everything | `t08_…` here, `stories: signals::usr1_and_usr2_…` |
//! | 9 | `--shutdown-timeout` counts only when the launcher is signalled | `t09_…` here, `stories: signals::shutdown_timeout_holds_…` |
//! | 10 | TERM goes to the whole group, data loaders included | `t10_…` here, `stories: signals::a_stop_reaches_the_leader_…` |
//! | 11 | exit code 0 for a rank that cannot be killed | `t11_…` here |

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::guarded::{WRAPPER, below_the_agent};
use crate::run::{Job, LONG, gone, notes, signal};
use crate::support::freezer::Freezer;
use crate::support::relight::{Ended, RelightCommand, Running, Scene};
use crate::support::wait::wait_for;
use crate::support::{leftovers, procfs};

/// Ranks that run this text.
fn python(scene: &Scene, nproc: u32, options: &[&str], text: &str) -> Running {
    fs::write(scene.path("exp").join("train.py"), text).unwrap();
    let mut command = RelightCommand::run(scene);
    command.arg(format!("--nproc-per-node={nproc}")).args(options).arg("train.py").spawn()
}

/// Waits for a text on one of the streams.
fn until(scene: &Scene, stream: &str, times: usize, text: &str) {
    wait_for(text, LONG, || {
        let said = String::from_utf8_lossy(&fs::read(scene.path(stream)).unwrap_or_default()).into_owned();
        if said.matches(text).count() >= times { Ok(()) } else { Err(said) }
    });
}

/// Rank 0 hosts a store, as torch's would be hosted, where the launcher does not. A word of the attempt before that could
/// be found in it would be one too many.
const STORE: &str = "\
import os, socket, struct, sys, time
attempt, rank = int(os.environ['TORCHELASTIC_RESTART_COUNT']), int(os.environ['RANK'])
place = (os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))
hosted = os.environ['TORCHELASTIC_USE_AGENT_STORE'] == 'True'
def connect():
    while True:
        try:
            return socket.create_connection(place, 5)
        except OSError:
            time.sleep(0.01)
def text(of):
    return struct.pack('<Q', len(of)) + of.encode()
if hosted:
    peer = connect()
    # VALIDATE; CHECK of a key of the attempt before; SET of one of this attempt.
    peer.sendall(struct.pack('<BI', 0, 0x3C85F7CE) + struct.pack('<BQ', 5, 1) + text(f'attempt {attempt - 1}'))
    assert peer.recv(1) == b'\\x01', 'the store of another attempt'
    peer.sendall(struct.pack('<B', 1) + text(f'attempt {attempt}') + text('x'))
elif rank == 0:
    server = socket.create_server(place)
    for _ in range(2):
        server.accept()[0].sendall(str(attempt).encode())
else:
    assert connect().recv(9).decode() == str(attempt), 'the store of another attempt'
# In one write: what several ranks print at once is not torn by us, and not mended either.
os.write(1, f'attempt {attempt} rank {rank} port {place[1]}\\n'.encode())
if attempt < 3:
    if rank == 1:
        sys.exit(7)
    time.sleep(120)
";

#[test]
fn t02_every_attempt_has_a_port_and_a_store_of_its_own() {
    let scene = Scene::new();
    let ended = python(&scene, 3, &["--max-restarts=3"], STORE).wait(LONG);
    assert_eq!(ended.code, 0, "{}\n{}", ended.stdout, ended.stderr);
    let mut ports: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in ended.stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        ports.entry(words[1]).or_default().push(words[5]);
    }
    assert_eq!(ports.keys().copied().collect::<Vec<_>>(), ["0", "1", "2", "3"], "{}", ended.stdout);
    for ports in ports.values_mut() {
        ports.dedup();
        assert_eq!(ports.len(), 1, "one world, one port: {}", ended.stdout);
    }
    let mut all: Vec<&str> = ports.into_values().flatten().collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4, "a port was used again: {}", ended.stdout);
    leftovers::assert_none(&scene);
}

#[test]
fn t07_a_killed_agent_leaves_no_rank_and_no_child_of_a_rank() {
    let scene = Scene::new();
    let mut command = RelightCommand::run(&scene);
    command.args(["--nproc-per-node=2", "--max-restarts=0"]);
    command.args(["--no-python", "sh", "-c", WRAPPER, "sh", "sleep", "1000"]);
    let running = command.spawn();
    let all = below_the_agent(&running, 2 * 5);
    signal(running.agent().expect("an agent runs below the guardian"), Signal::SIGKILL);
    gone(&all, Duration::from_secs(10));
    // The run itself goes on, and ends without a trace.
    let again = below_the_agent(&running, 2 * 5);
    signal(running.pid(), Signal::SIGTERM);
    assert_eq!(running.wait(LONG).code, 143);
    gone(&again, Duration::ZERO);
    leftovers::assert_none(&scene);
}

#[test]
fn t07_a_rank_that_crashes_leaves_none_of_its_children() {
    let scene = Scene::new();
    let mut command = RelightCommand::run(&scene);
    command.args(["--nproc-per-node=2", "--max-restarts=1"]);
    command.args(["--no-python", "sh", "-c", WRAPPER, "sh", "sh", "-c"]);
    // In the second attempt nothing of the first one may be there.
    let running = command.arg("[ $TORCHELASTIC_RESTART_COUNT$RANK = 00 ] && exit 9; exec sleep 1000").spawn();
    until(&scene, "stderr", 1, "attempt 1 running");
    let second = below_the_agent(&running, 2 * 5);
    signal(running.pid(), Signal::SIGTERM);
    assert_eq!(running.wait(LONG).code, 143);
    gone(&second, Duration::ZERO);
    leftovers::assert_none(&scene);
}

#[test]
fn t08_usr1_and_usr2_cost_the_run_nothing() {
    let job = Job::new(2, 60);
    let mut running = job.command(&["--max-restarts=0", "--rdzv-store=rank0"], &["--step-time=0.02"]).spawn();
    let pid = running.pid();
    // From the first moment on, long before ranks are there. The very first instants are exec's.
    wait_for("an agent", LONG, || running.agent().ok_or_else(|| "none".to_owned()));
    for step in 1..8 {
        signal(pid, Signal::SIGUSR1);
        signal(pid, Signal::SIGUSR2);
        job.reaches(0, 1, step * 5);
        assert!(running.is_running());
    }
    let (ended, journal) = job.finishes(running, LONG);
    assert_eq!(journal.attempts.len(), 1, "{}", ended.stderr);
}

/// Rank 0 fails when it may, the others say that they were asked to end and do not.
const DEAF: &str = "\
import os, signal, time
if os.environ['RANK'] == '0':
    while not os.path.exists('go'):
        time.sleep(0.01)
    os._exit(5)
signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'heard\\n'))
os.write(1, b'up\\n')
while True:
    time.sleep(1)
";

#[test]
fn t09_the_grace_is_the_one_that_was_asked_for_when_a_peer_fails() {
    for (grace, at_least, below) in [("3s", 2_900, 9_000), ("0.2s", 150, 1_900)] {
        let scene = Scene::new();
        let running = python(&scene, 2, &["--max-restarts=0", "--shutdown-timeout", grace], DEAF);
        until(&scene, "stdout", 1, "up\n");
        fs::write(scene.path("exp").join("go"), "").unwrap();
        let ended = running.wait(LONG);
        assert_eq!((ended.code, ended.stdout.as_str()), (1, "up\nheard\n"), "{}", ended.stderr);
        let report = fs::read(scene.path("run/scene/incidents/0000/report.json")).unwrap();
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        let took = report["stopped_ms"].as_u64().unwrap();
        assert!((at_least..below).contains(&took), "--shutdown-timeout {grace}: {took} ms");
        leftovers::assert_none(&scene);
    }
}

/// Each rank has two loaders that die of a TERM. Asked to end, it wants one more batch of each, as a last checkpoint may.
const LOADERS: &str = "\
import os, signal, subprocess, sys, time
attempt, rank = os.environ['TORCHELASTIC_RESTART_COUNT'], os.environ['RANK']
if attempt == '1':
    sys.exit(0)
loaders = [subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(2)]
def save(*_):
    for loader in loaders:
        loader.stdin.write(b'batch\\n')
        loader.stdin.flush()
        assert loader.stdout.readline() == b'batch\\n', 'a loader is gone'
    os.write(1, f'rank {rank} saved\\n'.encode())
    os._exit(0)
signal.signal(signal.SIGTERM, save)
os.write(1, b'up\\n')
while not (rank == '0' and os.path.exists('go')):
    time.sleep(0.01)
os._exit(5)
";

#[test]
fn t10_term_goes_to_the_leader_and_its_loaders_outlive_the_last_save() {
    // When the launcher is asked to end, and when a peer fails.
    for peer_fails in [false, true] {
        let scene = Scene::new();
        let running = python(&scene, 3, &["--max-restarts=1"], LOADERS);
        until(&scene, "stdout", 3, "up\n");
        if peer_fails {
            fs::write(scene.path("exp").join("go"), "").unwrap();
        } else {
            signal(running.pid(), Signal::SIGTERM);
        }
        let ended = running.wait(LONG);
        assert_eq!(ended.code, if peer_fails { 0 } else { 143 }, "{}", ended.stderr);
        let saved = ended.stdout.lines().filter(|line| line.ends_with("saved")).count();
        assert_eq!(saved, if peer_fails { 2 } else { 3 }, "{}\n{}", ended.stdout, ended.stderr);
        leftovers::assert_none(&scene);
    }
}

/// Rank 1 writes to the frozen file system and can no longer be killed; rank 0 fails when it may.
const WEDGED: &str = "\
import os, sys, time
if os.environ['RANK'] == '1':
    os.write(1, b'up\\n')
    open(sys.argv[1], 'w').write('never written')
while not os.path.exists('go'):
    time.sleep(0.01)
os._exit(5)
";

/// A run whose second rank is in the kernel for as long as the file system is frozen.
fn wedged(scene: &Scene, freezer: &Freezer, options: &[&str]) -> (Running, i32) {
    fs::write(scene.path("exp").join("train.py"), WEDGED).unwrap();
    freezer.freeze(true);
    let mut command = RelightCommand::run(scene);
    command.args(["--nproc-per-node=2", "--max-restarts=0", "--lost-after=6"]).args(options);
    let running = command.arg("train.py").arg(freezer.place().join("file")).spawn();
    until(scene, "stdout", 1, "up\n");
    let rank = wait_for("a rank in the kernel", LONG, || {
        let below = procfs::below(running.pid());
        let stuck = below.iter().find(|p| p.state == 'D' && p.cmdline.contains("train.py"));
        stuck.map(|p| p.pid).ok_or_else(|| format!("{below:?}"))
    });
    (running, rank)
}

/// The launcher ended while the rank still stood; then it may go.
fn judged(scene: &Scene, ended: &Ended, rank: i32, freezer: &Freezer, code: i32) {
    let still = procfs::read(rank).map(|p| p.state);
    freezer.freeze(false);
    gone(&[rank], LONG);
    assert_eq!(still, Some('D'), "the rank was to be stuck all the while");
    assert_eq!(ended.code, code, "{}", ended.stderr);
    let named = format!("process {rank} (state D) survived SIGKILL");
    assert!(ended.stderr.contains(&named), "{named}: {}", ended.stderr);
    assert!(!ended.stderr.contains(" finished "), "{}", ended.stderr);
    let end = notes(scene, "ended");
    assert!(end.iter().all(|end| end["code"] == code), "{end:?}");
    leftovers::assert_none(scene);
}

#[test]
fn t11_a_rank_that_cannot_be_killed_is_no_success_when_a_peer_fails() {
    let Some(freezer) = Freezer::new() else { return };
    let scene = Scene::new();
    let (running, rank) = wedged(&scene, &freezer, &[]);
    fs::write(scene.path("exp").join("go"), "").unwrap();
    let ended = running.wait(LONG);
    judged(&scene, &ended, rank, &freezer, 1);
}

#[test]
fn t11_a_rank_that_cannot_be_killed_is_no_success_when_the_run_is_stopped() {
    let Some(freezer) = Freezer::new() else { return };
    let scene = Scene::new();
    let (running, rank) = wedged(&scene, &freezer, &["--shutdown-timeout=1"]);
    signal(running.pid(), Signal::SIGTERM);
    let ended = running.wait(LONG);
    judged(&scene, &ended, rank, &freezer, 143);
    assert!(Path::new(&freezer.place()).exists());
}
