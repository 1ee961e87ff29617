//! Real trees of processes. This test binary is also guardian and agent: started again with one test's name, and with
//! the variable below naming the directory of the scenario.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;
use crate::domain::guardian::{ToAgent, ToGuardian};
use crate::domain::time::BootTime;
use crate::ipc::guardian::{Heard, Socket};
use crate::sys::lock::{Holder, LockShare};
use crate::sys::page::Page;
use crate::sys::procfs::{self, Children, Stat};
use crate::sys::spawn::{SpawnRequest, StartRecord, Stdin, spawn};
use crate::sys::tree::Owned;
use crate::sys::{clock, inherited, memfd, poll, process, tree};

const GUARDIAN: &str = "RELIGHT_TEST_GUARDIAN";
const AGENT: &str = "RELIGHT_TEST_AGENT";
const CAPS: &str = "RELIGHT_TEST_CAPS";
const PATIENCE: Duration = Duration::from_secs(20);
const TERM: i32 = 15;
const KILL: i32 = 9;
const STOP: i32 = 19;
const CONT: i32 = 18;

/// Not a test by itself: the guardian's process.
#[test]
fn as_guardian() {
    let Some(dir) = std::env::var_os(GUARDIAN).map(PathBuf::from) else { return };
    let caps = Capabilities::forced(&std::env::var(CAPS).unwrap_or_default());
    let image = dir.join("image");
    let image = if image.exists() { Image::of(&image) } else { Image::of_self() };
    let holder = Holder { pid: std::process::id(), started_ms: 1, command: "test".into() };
    let config = GuardianConfig {
        image: image.unwrap(),
        args: ["guardian::tests::as_agent", "--exact", "--nocapture", "--test-threads=1"]
            .map(OsString::from)
            .into(),
        env: [("PATH", std::env::var_os("PATH").unwrap_or_default()), (AGENT, dir.clone().into())]
            .map(|(key, value)| (OsString::from(key), value))
            .into(),
        cwd: "/".into(),
        config: b"the configuration".to_vec(),
        lock: Some(Lock::try_take(&dir, "run", Path::new("store"), &holder).unwrap()),
        nofile: None,
        caps,
        numbers: Numbers { retry: Duration::from_millis(10), ..Numbers::default() },
        say: Box::new(|said| {
            let _ = writeln!(std::io::stderr(), "relight: {said}");
        }),
    };
    process::exit_now(run(config));
}

/// Not a test by itself: an agent that does what the scenario says, then logs what it hears.
#[test]
fn as_agent() {
    let Some(dir) = std::env::var_os(AGENT).map(PathBuf::from) else { return };
    let [config, socket, page, lock, image] = [fds::CONFIG, fds::SOCKET, fds::PAGE, fds::LOCK, fds::IMAGE]
        .map(|number| inherited::take(number).unwrap());
    assert_eq!(memfd::read_bytes(config).unwrap(), b"the configuration");
    let (mut socket, page) = (Socket::from_fd(socket), Page::from_fd(page).unwrap());
    let _held = (LockShare::from_fd(lock).unwrap(), Image::from_fd(image));
    process::become_subreaper().unwrap();

    poll::readable(socket.as_fd(), None).unwrap();
    let Heard::Message(ToAgent::Start(start)) = socket.receive() else { unreachable!("no start") };
    assert_eq!(page.incarnation(), start.incarnation);
    assert_eq!(page.grant(), BootTime(0));
    let clean_of: Vec<String> = start.clean_of.iter().map(ToString::to_string).collect();
    let clean_of = if clean_of.is_empty() { "-".to_owned() } else { clean_of.join(",") };
    let others = below(process::parent_pid()).len() - 1;
    log(&dir, &format!("start {} {clean_of} {} {others}", start.incarnation, start.restarts));

    let mut records: Vec<StartRecord> = Vec::new();
    for line in fs::read_to_string(dir.join("scenario")).unwrap().lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["die"] => process::exit_now(3),
            ["gone", code] => {
                let pids: Vec<String> =
                    below(process::own_pid()).iter().map(|(pid, _)| pid.to_string()).collect();
                log(&dir, &format!("below {}", pids.join(" ")));
                socket.send(&ToGuardian::Gone { code: code.parse().unwrap() }).unwrap();
                process::exit_now(0);
            }
            ["grant", ms] => {
                let until = clock::boot().after(Duration::from_millis(ms.parse().unwrap()));
                page.set_grant(until);
                log(&dir, &format!("grant {}", until.0));
            }
            ["ranks"] => {
                records.push(start_process("exec sleep 300", false));
                // A wrapper with a child, a child in a session of its own, and an orphan.
                records.push(start_process("setsid sleep 300 & (sleep 300 &) ; sleep 300 & wait", true));
            }
            ["stop"] => process::kill(process::own_pid(), STOP).unwrap(),
            _ => unreachable!("{line}"),
        }
    }
    listen(&dir, &mut socket);
}

fn listen(dir: &Path, socket: &mut Socket) {
    loop {
        poll::readable(socket.as_fd(), None).unwrap();
        match socket.receive() {
            Heard::Message(ToAgent::Signal(signal)) => {
                log(dir, &format!("signal {} {} {} {}", signal.no, signal.code, signal.pid, signal.uid));
                if signal.is_stop() {
                    socket.send(&ToGuardian::Gone { code: 7 }).unwrap();
                    process::exit_now(0);
                }
            }
            Heard::Message(ToAgent::RanksKilled { grant }) => log(dir, &format!("killed {}", grant.0)),
            Heard::Closed => {
                let left = tree::kill_all(&Owned::new(), Capabilities::probe(), Duration::from_secs(2));
                log(dir, &format!("orphaned {}", left.len()));
                process::exit_now(0);
            }
            Heard::Nothing => {}
            other => unreachable!("{other:?}"),
        }
    }
}

fn start_process(script: &str, session: bool) -> StartRecord {
    let request = SpawnRequest {
        argv: ["/bin/sh", "-c", script].map(OsString::from).into(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: "/".into(),
        stdin: Stdin::Null,
        stdout: Some(File::create("/dev/null").unwrap().into()),
        stderr: Some(File::create("/dev/null").unwrap().into()),
        session,
        death_signal: Some(KILL),
        ..SpawnRequest::default()
    };
    spawn(&request, Capabilities::probe()).unwrap()
}

fn log(dir: &Path, line: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(dir.join("log")).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// Everything alive below a process.
fn below(pid: i32) -> Vec<(i32, Stat)> {
    let Ok(source) = Children::look(Capabilities::probe()) else { return vec![] };
    let (mut found, mut todo) = (vec![], source.of(pid).unwrap_or_default());
    while let Some(pid) = todo.pop() {
        todo.extend(source.of(pid).unwrap_or_default());
        found.extend(procfs::stat(pid).filter(|stat| !stat.is_dead()).map(|stat| (pid, stat)));
    }
    found
}

fn lives((pid, stat): &(i32, Stat)) -> bool {
    procfs::stat(*pid).is_some_and(|now| now.start_time == stat.start_time && !now.is_dead())
}

/// A guardian under test. Nothing of it outlives the value.
struct Case {
    dir: TempDir,
    child: Child,
    seen: Vec<(i32, Stat)>,
}

impl Case {
    fn start(scenario: &str, caps: &str) -> Self {
        Self::start_by(
            scenario,
            caps,
            |_| {},
            |exe, args| {
                let mut command = Command::new(exe);
                command.args(args);
                command
            },
        )
    }

    fn start_by(
        scenario: &str,
        caps: &str,
        prepare: impl FnOnce(&Path),
        command: impl FnOnce(PathBuf, [&str; 4]) -> Command,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("scenario"), scenario).unwrap();
        prepare(dir.path());
        let args = ["guardian::tests::as_guardian", "--exact", "--nocapture", "--test-threads=1"];
        let child = command(std::env::current_exe().unwrap(), args)
            .env(GUARDIAN, dir.path())
            .env(CAPS, caps)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(dir.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        Self { dir, child, seen: vec![] }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join(name)).unwrap_or_default()
    }

    /// Waits for a state; the last one that was seen is shown when it does not come.
    fn until<T>(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no {what}; log:\n{}stderr:\n{}tree: {:?}",
                self.read("log"),
                self.read("stderr"),
                below(self.pid())
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The words of the n-th line that starts so.
    fn line(&mut self, word: &str, n: usize) -> Vec<String> {
        self.until(&format!("line {n} of `{word}`"), |case| {
            let log = case.read("log");
            let mut lines = log.lines().filter(|line| line.split(' ').next() == Some(word));
            lines.nth(n).map(|line| line.split(' ').map(str::to_owned).collect())
        })
    }

    /// Waits until the n-th agent has a worker and a whole rank: the agent, and everything below the guardian.
    fn ranks(&mut self) -> (i32, Vec<(i32, Stat)>) {
        let tree = self.until("tree of ranks", |case| {
            let tree = below(case.pid());
            // agent, worker; shell, its two children, the orphan.
            let sessions = tree.iter().filter(|(pid, stat)| *pid == stat.session).count();
            (tree.len() == 6 && sessions == 2).then_some(tree)
        });
        self.seen.extend(tree.iter().copied());
        let agent = tree.iter().find(|(_, stat)| stat.parent == self.pid()).unwrap().0;
        (agent, tree)
    }

    fn code(&mut self) -> i32 {
        let status = self.until("end", |case| case.child.try_wait().unwrap());
        status.code().unwrap()
    }

    fn assert_nothing_left(&self) {
        let left: Vec<_> = self.seen.iter().filter(|process| lives(process)).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        self.seen.extend(below(self.pid()));
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        for process in self.seen.iter().filter(|process| lives(process)) {
            let _ = process::kill(process.0, KILL);
        }
    }
}

/// Once with everything this kernel has, once as on the oldest one.
fn both(test: impl Fn(&str)) {
    test("");
    test("all");
}

#[test]
fn a_killed_agent_takes_everything_with_it_and_is_started_again() {
    both(|caps| {
        let mut case = Case::start("ranks", caps);
        let (agent, tree) = case.ranks();
        let first = case.line("start", 0)[1].clone();
        assert_eq!(case.line("start", 0)[2..], ["-", "0", "0"]);
        process::kill(agent, KILL).unwrap();
        let second = case.line("start", 1);
        assert!(!tree.iter().any(lives), "started before all were gone");
        assert_ne!(second[1], first);
        assert_eq!(second[2..], [first, "1".into(), "0".into()]);
        case.ranks();
        process::kill(case.pid(), TERM).unwrap();
        assert_eq!(case.code(), 7);
        case.assert_nothing_left();
        assert_eq!(
            case.read("stderr"),
            "relight: the agent on this node ended (SIGKILL); starting it again (1 of 3)\n"
        );
    });
}

#[test]
fn a_signal_is_handed_on_with_its_sender() {
    both(|caps| {
        let mut case = Case::start("ranks", caps);
        case.ranks();
        let own = process::own_pid().to_string();
        let uid = fs::metadata("/proc/self").unwrap().uid().to_string();
        process::kill(case.pid(), 12).unwrap();
        assert_eq!(case.line("signal", 0)[1..], ["12", "0", &own, &uid]);
        process::kill(case.pid(), TERM).unwrap();
        assert_eq!(case.line("signal", 1)[1..], ["15", "0", &own, &uid]);
        assert_eq!(case.code(), 7);
        case.assert_nothing_left();
    });
}

#[test]
fn the_fourth_death_ends_with_one_sentence() {
    both(|caps| {
        let mut case = Case::start("die", caps);
        assert_eq!(case.code(), 1);
        assert_eq!(case.read("log").lines().count(), 4);
        let said = case.read("stderr");
        let last = said.lines().last().unwrap();
        assert_eq!(
            last,
            "relight: the agent on this node ended 4 times within 10 min, last with exit code 3; giving up"
        );
    });
}

#[test]
fn a_grant_that_ends_kills_the_ranks_of_a_stopped_agent_and_nothing_else() {
    both(|caps| {
        let mut case = Case::start("grant 1200\nranks\nstop", caps);
        let (agent, tree) = case.ranks();
        let grant: u64 = case.line("grant", 0)[1].parse().unwrap();
        case.until("stopped agent", |_| (procfs::state(agent) == Some('T')).then_some(()));
        let session = procfs::stat(case.pid()).unwrap().session;
        let (staying, ranks): (Vec<_>, Vec<_>) =
            tree.into_iter().partition(|(_, stat)| stat.session == session);
        assert_eq!((staying.len(), ranks.len()), (2, 4));
        assert!(ranks.iter().all(lives));
        assert!(clock::boot().0 < grant, "the machine is too slow for this test");
        case.until("end of the ranks", |_| (!ranks.iter().any(lives)).then_some(()));
        let late = clock::boot().since(BootTime(grant));
        // 0.2 s on a machine that has time for it; others get more.
        assert!(late < Duration::from_secs(4), "{late:?} after the grant");
        assert!(clock::boot().0 >= grant, "killed before the grant was over");
        assert!(staying.iter().all(lives), "agent and worker stay");
        process::kill(agent, CONT).unwrap();
        assert_eq!(case.line("killed", 0)[1], grant.to_string());
        process::kill(case.pid(), TERM).unwrap();
        assert_eq!(case.code(), 7);
        case.assert_nothing_left();
    });
}

#[test]
fn a_stop_reaches_a_stopped_agent() {
    both(|caps| {
        let mut case = Case::start("ranks\nstop", caps);
        let (agent, _) = case.ranks();
        case.until("stopped agent", |_| (procfs::state(agent) == Some('T')).then_some(()));
        process::kill(case.pid(), TERM).unwrap();
        assert_eq!(case.code(), 7);
        case.assert_nothing_left();
        assert_eq!(case.read("stderr"), "");
    });
}

#[test]
fn gone_ends_with_its_code_and_leaves_nothing() {
    both(|caps| {
        let mut case = Case::start("ranks\ngone 93", caps);
        assert_eq!(case.code(), 93);
        assert_eq!(case.read("stderr"), "");
        let pids = case.line("below", 0);
        assert!(pids.len() > 2, "{pids:?}");
        let left = pids[1..]
            .iter()
            .filter(|pid| procfs::stat(pid.parse().unwrap()).is_some_and(|stat| !stat.is_dead()));
        assert_eq!(left.count(), 0);
        let lock = fs::read_dir(case.dir.path()).unwrap().any(|e| e.unwrap().path().extension().is_some());
        assert!(!lock, "the lock's file is removed");
    });
}

#[test]
fn a_stopped_agent_wakes_when_its_guardian_dies() {
    let mut case = Case::start("ranks\nstop", "");
    let (agent, _) = case.ranks();
    case.until("stopped agent", |_| (procfs::state(agent) == Some('T')).then_some(()));
    process::kill(case.pid(), KILL).unwrap();
    assert_eq!(case.line("orphaned", 0)[1], "0");
    case.until("end of all", |case| (!case.seen.iter().any(lives)).then_some(()));
    // The lock was the agent's too.
    let holder = Holder { pid: 1, started_ms: 1, command: String::new() };
    let dir = case.dir.path().to_owned();
    case.until("free lock", |_| Lock::try_take(&dir, "run", Path::new("store"), &holder).ok());
}

#[test]
fn a_binary_that_cannot_run_is_tried_again_and_then_explained() {
    let image = |dir: &Path| fs::write(dir.join("image"), "no program").unwrap();
    let mut case = Case::start_by("", "", image, |exe, args| {
        let mut command = Command::new(exe);
        command.args(args);
        command
    });
    assert_eq!(case.code(), 1);
    let said = case.read("stderr");
    assert_eq!(said.lines().count(), 4, "{said}");
    assert!(said.lines().last().unwrap().contains("could not start"), "{said}");
}

#[test]
fn children_from_before_are_left_alone() {
    let mut case = Case::start_by(
        "ranks\ngone 0",
        "",
        |_| {},
        |exe, args| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "sleep 300 & echo $! >$RELIGHT_TEST_GUARDIAN/monitor; exec \"$@\"", "sh"]);
            command.arg(exe).args(args);
            command
        },
    );
    assert_eq!(case.code(), 0);
    let monitor: i32 = case.read("monitor").trim().parse().unwrap();
    let there = (monitor, procfs::stat(monitor).unwrap());
    case.seen.push(there);
    assert!(lives(&there), "the script's own process was killed");
}

#[test]
fn is_small() {
    let mut case = Case::start("ranks", "");
    case.ranks();
    let rollup = fs::read_to_string(format!("/proc/{}/smaps_rollup", case.pid())).unwrap_or_default();
    let field = |name: &str| -> Option<u64> {
        rollup.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
    };
    println!("guardian: {:?} kB PSS, {:?} kB of its own", field("Pss:"), field("Private_Dirty:"));
    // Kernels before 4.14 and some sandboxes have no rollup.
    assert!(field("Private_Dirty:").unwrap_or(0) < 2048, "{rollup}");
    process::kill(case.pid(), TERM).unwrap();
    assert_eq!(case.code(), 7);
}
