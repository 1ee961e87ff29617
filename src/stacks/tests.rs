//! Real processes that do not advance.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;
use crate::domain::ids::{LocalRank, Op};
use crate::domain::liveness::evidence::{ProcessFacts, Seen};
use crate::sys::process;

const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;
/// Registered by the programs below.
const SIGNAL: u8 = 40;
const LONG: Duration = Duration::from_secs(30);

/// A Python program that has registered its stacks and is about to hang.
struct Stuck {
    child: Child,
    dump: PathBuf,
    /// What it said about itself.
    said: String,
    _dir: tempfile::TempDir,
}

impl Stuck {
    /// `hang` is the body of a function; `setup` stands before it. The program says one line before it hangs.
    fn new(setup: &str, hang: &str) -> Self {
        Self::started(setup, hang, |command| command.stdin(Stdio::null()))
    }

    fn started(setup: &str, hang: &str, with: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (dump, script) = (dir.path().join("stacks"), dir.path().join("train.py"));
        let text = format!(
            "import faulthandler, os, sys, threading, time\nout = open({dump:?}, 'a')\nfaulthandler.register({SIGNAL}, file=out, all_threads=True)\nsaid = ''\n{setup}\ndef hang():\n    {hang}\nprint(said, flush=True)\nhang()\n"
        );
        fs::write(&script, text).unwrap();
        let mut command = Command::new("python3");
        with(command.arg("-S").arg(&script)).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        Self { child, dump, said: said.trim().to_owned(), _dir: dir }
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// Returns when the kernel says that it is in this state.
    fn is(&self, wanted: char) {
        let until = Instant::now() + LONG;
        loop {
            let state = procfs::state(self.pid());
            if state == Some(wanted) {
                return;
            }
            assert!(Instant::now() < until, "{wanted} is wanted, last seen {state:?}");
            std::thread::yield_now();
        }
    }

    fn target(&self) -> Target {
        Target {
            pid: self.child.id(),
            owner: Some(self.child.id()),
            signal: Some(SIGNAL),
            file: Some(self.dump.clone()),
            ..Target::default()
        }
    }

    /// Looks, again and again, until what is seen is as wanted: a process has to reach the place where it hangs.
    fn seen(&self, target: &Target, what: &str, wanted: impl Fn(&Found) -> bool) -> Found {
        let until = Instant::now() + LONG;
        loop {
            let found = asked(vec![target.clone()], 200).remove(0);
            if wanted(&found) {
                return found;
            }
            assert!(Instant::now() < until, "{what}: last seen {found:#?}");
        }
    }
}

impl Drop for Stuck {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the worker answers.
fn asked(ranks: Vec<Target>, between_ms: u64) -> Vec<Found> {
    let (mut near, far) = UnixStream::pair().unwrap();
    let worker = std::thread::spawn(move || run(far.into()));
    // No `py-spy` of whoever runs the tests.
    frame::write(&mut near, &Request { op: Op(3), ranks, between_ms, path: "/nowhere".into() }).unwrap();
    let response: Response = frame::read(&mut near).unwrap();
    assert_eq!(response.op, Op(3));
    drop(near);
    assert_eq!(worker.join().unwrap(), 0);
    response.ranks
}

/// The innermost frame as `file:function`, and what it was read by.
fn innermost(found: &Found) -> Option<(String, Seen)> {
    let stack = found.stack.as_ref()?;
    let frame = stack.frames.first()?;
    let name = Path::new(&frame.file).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Some((format!("{name}:{}", frame.function), stack.seen))
}

fn hangs(found: &Found) -> bool {
    innermost(found) == Some(("train.py:hang".into(), Seen::Inside))
}

#[test]
fn one_that_sleeps() {
    let setup = "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()";
    let stuck = Stuck::new(setup, "time.sleep(1000)");
    let found = stuck.seen(&stuck.target(), "sleeping", hangs);
    assert_eq!((found.before.state, found.after.state), (Some('S'), Some('S')));
    assert_eq!((found.before.pid, found.before.threads), (stuck.child.id(), 2));
    assert!(!found.after.traced && found.after.reads.is_empty(), "{found:?}");
    assert!(found.between_ms >= 200);
    let stack = found.stack.unwrap();
    assert_eq!(stack.frames.len(), 2);
    assert_eq!(stack.frames[1].function, "<module>");
    assert!(stack.text.contains("Thread 0x"), "{}", stack.text);
    // Asked again, it writes again, and only that is read.
    let again = stuck.seen(&stuck.target(), "sleeping", hangs).stack.unwrap();
    assert_eq!((again.frames, again.text.len()), (stack.frames, stack.text.len()));
}

#[test]
fn one_that_is_stopped_gets_no_signal() {
    let stuck = Stuck::new("", "time.sleep(1000)");
    process::kill(stuck.pid(), SIGSTOP).unwrap();
    stuck.is('T');
    let found = stuck.seen(&stuck.target(), "stopped", |found| found.before.state == Some('T'));
    assert_eq!(found.after.state, Some('T'));
    assert!(found.stack.is_none_or(|stack| stack.seen == Seen::Kernel));
    process::kill(stuck.pid(), SIGCONT).unwrap();
    // Nothing was waiting for it.
    assert_eq!(fs::read_to_string(&stuck.dump).unwrap(), "");
    stuck.seen(&stuck.target(), "running again", hangs);
}

#[test]
fn one_that_spins_and_one_that_never_lets_go_of_the_lock() {
    let spins = Stuck::new("", "while True: pass");
    let found = spins
        .seen(&spins.target(), "spinning", |found| hangs(found) && found.after.cpu_ms > found.before.cpu_ms);
    assert_eq!(found.before.state, Some('R'));
    // A search that goes back again and again runs in one call, with the interpreter's lock.
    let holds = Stuck::new("import re", "re.search('(a+)+b', 'a' * 60)");
    let found = holds.seen(&holds.target(), "holding the lock", |found| {
        innermost(found).is_some_and(|(place, _)| place.ends_with(":search"))
    });
    assert!(found.stack.unwrap().frames.iter().any(|frame| frame.function == "hang"));
}

#[test]
fn one_that_waits_for_a_pipe() {
    let setup = "fifo = os.path.join(os.path.dirname(__file__), 'fifo')\nos.mkfifo(fifo)\nfile = os.open(fifo, os.O_RDWR)";
    let stuck = Stuck::new(setup, "os.read(file, 1)");
    let found = stuck.seen(&stuck.target(), "reading", |found| hangs(found) && !found.after.reads.is_empty());
    assert!(found.after.reads.ends_with("/fifo"), "{}", found.after.reads);
    assert!(!found.after.reads_terminal());
}

#[test]
fn one_before_a_person() {
    // A terminal of its own: the parent keeps the other end.
    let setup = "import pty\npid, end = pty.fork()\nif pid == 0:\n    if os.environ['MODE'] == 'edit': import readline\n    os.environ['TERM'] = 'dumb'\n    input()\nsaid = str(pid)";
    for mode in ["plain", "edit"] {
        let stuck = Stuck::started(setup, "os.waitpid(pid, 0)", |c| c.stdin(Stdio::null()).env("MODE", mode));
        let target = Target { owner: stuck.said.parse().ok(), ..stuck.target() };
        let found = stuck.seen(&target, mode, |found| found.after.reads_terminal());
        assert_eq!(found.after.pid.to_string(), stuck.said);
        process::kill(i32::try_from(found.after.pid).unwrap(), 9).unwrap();
    }
}

#[test]
fn one_that_is_stuck_in_the_kernel() {
    // The parent of a vfork waits, beyond every signal but KILL, until its child is gone.
    let setup = "import ctypes\nlibc = ctypes.CDLL(None)\nimport signal\nfor s in (1, 2, 15): signal.signal(s, signal.SIG_DFL)";
    let hang = "libc.vfork() or libc.sleep(1000)";
    let stuck = Stuck::new(setup, hang);
    // Looked at a moment earlier it would still be asked for its stack, and answer.
    stuck.is('D');
    let began = Instant::now();
    let found = stuck.seen(&stuck.target(), "stuck", |found| found.before.state == Some('D'));
    assert_eq!(found.after.state, Some('D'));
    assert!(began.elapsed() < LONG);
    assert_eq!(fs::read_to_string(&stuck.dump).unwrap(), "", "it was signalled");
    // An ordinary user may not see it.
    if let Some(stack) = &found.stack {
        assert_eq!(stack.seen, Seen::Kernel);
        assert!(
            stack
                .frames
                .iter()
                .any(|frame| frame.function.contains("fork") || frame.function.contains("clone")),
            "{stack:?}"
        );
    }
    let child = facts::family(stuck.pid(), Capabilities::probe());
    let _ = process::kill(stuck.pid(), 9);
    for pid in child.into_iter().skip(1) {
        let _ = process::kill(pid, 9);
    }
}

#[test]
fn whoever_owns_the_page_is_looked_at() {
    let setup = "import subprocess";
    let below = "subprocess.run([sys.executable, '-S', '-c', 'import time; print(1); time.sleep(1000)'], stdout=sys.stderr)";
    let stuck = Stuck::started(setup, below, |c| c.stdin(Stdio::null()).stderr(Stdio::null()));
    let nobody = Target { owner: None, ..stuck.target() };
    // A wrapper that waits for its only child stands for it.
    let found = stuck.seen(&nobody, "the child", |found| found.before.pid != stuck.child.id());
    let child = found.before.pid;
    assert_eq!(found.after.state, Some('S'));
    // It has registered nothing; the signal would have ended it.
    assert!(found.stack.is_none_or(|stack| stack.seen == Seen::Kernel));
    let owned = Target { owner: Some(child), ..stuck.target() };
    assert_eq!(asked(vec![owned], 1)[0].before.pid, child);
    // A number that is none of the rank's processes is nobody's word.
    let strange = Target { owner: Some(1), ..stuck.target() };
    assert_eq!(asked(vec![strange], 1)[0].before.pid, stuck.child.id());
    process::kill(i32::try_from(child).unwrap(), 9).unwrap();
}

#[test]
fn one_that_is_gone_and_one_of_somebody_else() {
    let gone = Target { pid: u32::MAX >> 1, local_rank: LocalRank(4), ..Target::default() };
    let ours = std::process::id();
    let zero = Target { pid: 0, local_rank: LocalRank(5), ..Target::default() };
    let first = Target {
        pid: 1,
        local_rank: LocalRank(6),
        signal: Some(9),
        file: Some("/dev/null".into()),
        ..Target::default()
    };
    let found = asked(vec![gone, zero, first], 1);
    let ranks: Vec<u32> = found.iter().map(|found| found.local_rank.0).collect();
    assert_eq!(ranks, [4, 5, 6]);
    assert_eq!(found[0].after, ProcessFacts { pid: u32::MAX >> 1, ..ProcessFacts::default() });
    assert_eq!((found[0].stack.clone(), found[1].before.state), (None, None));
    assert!(found[2].before.state.is_some() && ours != 1);
}

#[test]
fn no_signal_that_ends_somebody_is_sent_on_a_page_s_word() {
    let stuck = Stuck::new("import signal\nsignal.signal(15, lambda *_: sys.exit(9))", "time.sleep(1000)");
    for signal in [9, 15, 0, 33, 41, 64, 65, 255] {
        let target = Target { signal: Some(signal), ..stuck.target() };
        let found = asked(vec![target], 1).remove(0);
        assert!(found.after.state.is_some_and(|state| state != 'Z'), "{signal}: {found:?}");
        assert!(found.stack.is_none_or(|stack| stack.seen != Seen::Inside), "{signal}");
    }
    // Nor is anything read but a plain file.
    for file in ["/dev/zero", "/nowhere", "/proc/self/fd"] {
        let target = Target { file: Some(file.into()), ..stuck.target() };
        let found = asked(vec![target], 1).remove(0);
        assert!(found.stack.is_none_or(|stack| stack.seen != Seen::Inside), "{file}");
    }
}

#[test]
fn py_spy_where_there_is_one_and_one_that_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let program = |text: &str| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = dir.path().join("py-spy");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o755)).unwrap();
    };
    let stuck = Stuck::new("", "time.sleep(1000)");
    let read = || {
        outside::py_spy(
            stuck.pid(),
            &format!("{}:/usr/bin:/bin", dir.path().display()),
            Capabilities::probe(),
        )
    };
    program(
        "#!/bin/sh\ntest \"$*\" = \"dump --nonblocking --full-filenames --pid $5\" || exit 1\nprintf 'Thread %s (idle): \"MainThread\"\\n    step (/w/t.py:3)\\n' $5\n",
    );
    let stack = read().unwrap();
    assert_eq!((stack.seen, stack.frames[0].function.as_str()), (Seen::Outside, "step"));
    program("#!/bin/sh\necho 'Error: Permission Denied' >&2; exit 1\n");
    assert_eq!(read(), None);
    program("#!/bin/sh\nsleep 1000\n");
    let began = Instant::now();
    assert_eq!(read(), None);
    assert!(began.elapsed() < LONG);
}

#[test]
fn a_flight_recorder_is_asked_where_somebody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, dump) = (dir.path().join("x0.pipe"), dir.path().join("dump0"));
    let recorder = Recorder { pipe: pipe.clone(), dumps: vec!["/nowhere".into(), dump.clone()] };
    let target = Target { pid: std::process::id(), recorder: Some(recorder), ..Target::default() };
    let asked = || asked(vec![target.clone()], 1).remove(0).flight_recorder;
    // No pipe; one that nobody reads; something else under its name.
    assert_eq!(asked(), "");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert_eq!(asked(), "");
    let reader = fs::File::options().read(true).write(true).open(&pipe).unwrap();
    assert_eq!(asked(), "/nowhere");
    fs::write(&dump, "x").unwrap();
    assert_eq!(asked(), dump.display().to_string());
    drop(reader);
    fs::remove_file(&pipe).unwrap();
    fs::write(&pipe, "").unwrap();
    assert_eq!(asked(), "");
    assert_eq!(fs::read_to_string(&pipe).unwrap(), "");
}
