//! Pump and worker together, over real pipes, processes and files.

use std::fs::{self, File};
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::pump::{Config, Event, Flushed, Handle, Pump, Tail, Trouble};
use super::spec::LogSpec;
use super::wire::{Source, Stream};
use super::worker;
use crate::domain::ids::{Attempt, LocalRank, Rank};
use crate::domain::settings::{StreamMap, Streams};

const PATIENCE: Duration = Duration::from_secs(20);

fn source(local: u32) -> Source {
    Source { attempt: Attempt(0), local_rank: LocalRank(local), rank: Rank(local), world_size: 4 }
}

fn files_only(dir: &Path) -> LogSpec {
    LogSpec { dir: Some(dir.into()), redirects: StreamMap::all(Streams::BOTH), ..LogSpec::default() }
}

fn read(path: impl AsRef<Path>) -> Vec<u8> {
    fs::read(path.as_ref()).unwrap_or_else(|e| panic!("{}: {e}", path.as_ref().display()))
}

/// A pump and its events.
struct Bench {
    pump: Pump,
    events: Receiver<Event>,
}

impl Bench {
    fn new(spec: LogSpec, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new(spec);
        change(&mut config);
        let (tell, events) = channel();
        let pump = Pump::start(config, move |e| {
            if e != Event::Ready {
                let _ = tell.send(e);
            }
        })
        .unwrap();
        Self { pump, events }
    }

    fn handle(&self) -> Handle {
        self.pump.handle()
    }

    /// A worker in a thread; its console goes to `out` and `err`.
    fn worker(&self, out: impl Into<OwnedFd>, err: impl Into<OwnedFd>) -> JoinHandle<i32> {
        let (ours, its) = UnixStream::pair().unwrap();
        let (out, err) = (File::from(out.into()), File::from(err.into()));
        self.handle().attach(ours.into());
        std::thread::spawn(move || worker::serve(its, out, err))
    }

    fn rank(&self, local: u32) -> (PipeWriter, PipeWriter) {
        let ((out, out_w), (err, err_w)) = (pipe().unwrap(), pipe().unwrap());
        self.handle().add(source(local), out.into(), err.into());
        (out_w, err_w)
    }

    fn drain(&self, local: u32) -> Tail {
        let (tell, answer) = channel();
        self.handle().drain(Attempt(0), LocalRank(local), move |t| {
            let _ = tell.send(t);
        });
        answer.recv_timeout(PATIENCE).expect("a tail")
    }

    fn flush(&self, patience: Duration) -> Flushed {
        let (tell, answer) = channel();
        self.handle().flush(patience, move |f| {
            let _ = tell.send(f);
        });
        answer.recv_timeout(PATIENCE + patience).expect("an answer to flush")
    }

    fn flushed(&self) {
        let f = self.flush(PATIENCE);
        assert!(f.complete, "{f:?}");
    }

    fn event(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }
}

fn shell(script: &str, out: PipeWriter, err: PipeWriter) -> Child {
    Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::from(out))
        .stderr(Stdio::from(err))
        .spawn()
        .unwrap()
}

fn null() -> File {
    File::options().write(true).open("/dev/null").unwrap()
}

/// Everything that comes out of a pipe until it is closed.
fn collect(mut from: PipeReader) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).unwrap();
        all
    })
}

#[test]
fn files_hold_exactly_what_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(files_only(dir.path()), |_| ());
    let worker = bench.worker(null(), null());
    let mut ranks = Vec::new();
    for local in 0..3_u32 {
        let (mut out, mut err) = bench.rank(local);
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&vec![b'a' + local as u8; 1 << 20]);
        bytes.extend_from_slice(b"\n\0\0nul\xff\xfe\xc3(\r\nhalf a line");
        bytes.extend((0..=255_u8).cycle().take(100_000));
        let copy = bytes.clone();
        let thread = std::thread::spawn(move || {
            for part in copy.chunks(7001) {
                out.write_all(part).unwrap();
                err.write_all(&part[..part.len().min(5)]).unwrap();
            }
        });
        ranks.push((thread, bytes));
    }
    for (local, (thread, bytes)) in ranks.into_iter().enumerate() {
        thread.join().unwrap();
        let tail = bench.drain(local as u32);
        assert_eq!(tail.stdout, bytes[bytes.len() - (64 << 10)..]);
        assert_eq!(tail.dropped, 0);
        bench.flushed();
        let rank = dir.path().join(format!("attempt_0/{local}"));
        assert!(read(rank.join("stdout.log")) == bytes, "stdout of {local} differs");
        let err: Vec<u8> = bytes.chunks(7001).flat_map(|p| &p[..p.len().min(5)]).copied().collect();
        assert!(read(rank.join("stderr.log")) == err, "stderr of {local} differs");
    }
    drop(bench);
    assert_eq!(worker.join().unwrap(), 0);
    let combined = read(dir.path().join("attempt_0/combined.log"));
    assert!(combined.ends_with(b"\n"));
    for line in combined.split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
        let head = String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
        assert!(
            head.starts_with("[20")
                && (head.contains("Z 0 std") || head.contains("Z 1 std") || head.contains("Z 2 std")),
            "{head}"
        );
    }
}

#[test]
fn files_exist_only_where_asked_and_the_combined_log_always() {
    let dir = tempfile::tempdir().unwrap();
    let spec = LogSpec {
        dir: Some(dir.path().into()),
        redirects: crate::domain::settings::stream_map("1:2").unwrap(),
        ..LogSpec::default()
    };
    let bench = Bench::new(spec, |_| ());
    let (out, out_w) = pipe().unwrap();
    let worker = bench.worker(out_w, null());
    let _zero = bench.rank(0);
    let (mut o, mut e) = bench.rank(1);
    o.write_all(b"shown\n").unwrap();
    e.write_all(b"filed\n").unwrap();
    drop((o, e));
    bench.drain(0);
    bench.drain(1);
    bench.flushed();
    drop(bench);
    worker.join().unwrap();
    let mut names: Vec<_> = ["0", "1"]
        .iter()
        .flat_map(|r| {
            fs::read_dir(dir.path().join("attempt_0").join(r))
                .unwrap()
                .map(move |f| format!("{r}/{}", f.unwrap().file_name().display()))
        })
        .collect();
    names.sort();
    assert_eq!(names, ["1/stderr.log"]);
    assert_eq!(collect(out).join().unwrap(), b"shown\n");
    let combined = String::from_utf8(read(dir.path().join("attempt_0/combined.log"))).unwrap();
    assert!(combined.contains(" 1 stdout] shown\n") && combined.contains(" 1 stderr] filed\n"), "{combined}");
}

#[test]
fn tee_prefixes_whole_lines_and_our_lines_keep_their_place() {
    let spec = LogSpec { tee: StreamMap::all(Streams::BOTH), ..LogSpec::default() };
    let bench = Bench::new(spec, |_| ());
    let (out, out_w) = pipe().unwrap();
    let out = collect(out);
    let worker = bench.worker(out_w.try_clone().unwrap(), out_w);
    let mut pipes: Vec<_> = (0..2).map(|r| bench.rank(r)).collect();
    pipes[0].0.write_all(b"before\nhalf").unwrap();
    bench.flushed();
    bench.handle().say(Stream::Err, "relight: says\n");
    bench.flushed();
    pipes[1].1.write_all(b"other\n").unwrap();
    bench.flushed();
    pipes[0].0.write_all(b" done\nlast").unwrap();
    drop(pipes);
    bench.drain(0);
    bench.drain(1);
    bench.flushed();
    drop(bench);
    worker.join().unwrap();
    let text = String::from_utf8(out.join().unwrap()).unwrap();
    assert_eq!(
        text,
        "[default0]:before\nrelight: says\n[default1]:other\n[default0]:half done\n[default0]:last\n"
    );
}

#[test]
fn lines_of_many_ranks_are_never_torn() {
    let spec = LogSpec { tee: StreamMap::all(Streams::BOTH), ..LogSpec::default() };
    let bench = Bench::new(spec, |_| ());
    let (out, out_w) = pipe().unwrap();
    let out = collect(out);
    let worker = bench.worker(out_w.try_clone().unwrap(), out_w);
    let script = "i=0; while [ $i -lt 400 ]; do printf 'o'; echo ut-$R-$i; printf 'e' >&2; echo rr-$R-$i >&2; i=$((i+1)); done";
    let children: Vec<_> = (0..4)
        .map(|r| {
            let (o, e) = bench.rank(r);
            shell(&format!("R={r}; {script}"), o, e)
        })
        .collect();
    for (r, mut child) in children.into_iter().enumerate() {
        assert!(child.wait().unwrap().success());
        bench.drain(r as u32);
    }
    bench.flushed();
    drop(bench);
    worker.join().unwrap();
    let text = String::from_utf8(out.join().unwrap()).unwrap();
    let mut seen = std::collections::BTreeMap::<(char, String), usize>::new();
    for line in text.lines() {
        let (rank, rest) = line
            .strip_prefix("[default")
            .and_then(|l| l.split_once("]:"))
            .unwrap_or_else(|| panic!("{line}"));
        let mut parts = rest.split('-');
        let kind = parts.next().unwrap();
        assert!(kind == "out" || kind == "err", "{line}");
        assert_eq!(parts.next().unwrap(), rank, "{line}");
        let next = seen.entry((kind.chars().next().unwrap(), rank.into())).or_default();
        assert_eq!(parts.next().unwrap().parse::<usize>().unwrap(), *next, "{line}");
        *next += 1;
    }
    assert!(seen.len() == 8 && seen.values().all(|n| *n == 400), "{seen:?}");
}

#[test]
fn passthrough_is_byte_exact_and_needs_no_line_end() {
    let bench = Bench::new(LogSpec::default(), |_| ());
    let (mut out, out_w) = pipe().unwrap();
    let worker = bench.worker(out_w, null());
    let (mut o, _e) = bench.rank(0);
    o.write_all(b"name? ").unwrap();
    let mut got = [0; 6];
    out.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"name? ");
    o.write_all(b"\0\xff\r50%\r100%\n").unwrap();
    drop(o);
    bench.drain(0);
    bench.flushed();
    drop(bench);
    worker.join().unwrap();
    assert_eq!(collect(out).join().unwrap(), b"\0\xff\r50%\r100%\n");
}

#[test]
fn a_large_world_shows_rank_0_and_what_is_revealed() {
    let dir = tempfile::tempdir().unwrap();
    let spec = LogSpec { dir: Some(dir.path().into()), ..LogSpec::default() };
    let bench = Bench::new(spec, |_| ());
    let (err, err_w) = pipe().unwrap();
    let err = collect(err);
    let worker = bench.worker(null(), err_w);
    let big = |local| Source { world_size: 64, ..source(local) };
    let mut ends = Vec::new();
    for local in 0..3 {
        let ((o, _), (e, e_w)) = (pipe().unwrap(), pipe().unwrap());
        bench.handle().add(big(local), o.into(), e.into());
        ends.push(e_w);
    }
    for (local, e) in ends.iter_mut().enumerate() {
        writeln!(e, "from {local}").unwrap();
    }
    ends.clear();
    let tails: Vec<_> = (0..3).map(|l| bench.drain(l)).collect();
    bench.handle().reveal(big(2), tails[2].clone());
    bench.handle().reveal(big(0), tails[0].clone());
    bench.flushed();
    drop(bench);
    worker.join().unwrap();
    assert_eq!(String::from_utf8(err.join().unwrap()).unwrap(), "from 0\n[default2]:from 2\n");
    assert!(String::from_utf8(read(dir.path().join("attempt_0/combined.log"))).unwrap().contains("from 1\n"));
}

#[test]
fn what_goes_to_files_only_is_not_revealed() {
    let spec = |redirects, tee| LogSpec { redirects, tee, ..LogSpec::default() };
    let both = StreamMap::all(Streams::BOTH);
    assert!(spec(StreamMap::default(), StreamMap::default()).may_reveal(source(1), Stream::Err));
    assert!(spec(both.clone(), both.clone()).may_reveal(source(1), Stream::Err));
    assert!(!spec(both, StreamMap::default()).may_reveal(source(1), Stream::Err));
}

#[test]
fn a_worker_that_never_reads_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(files_only(dir.path()), |c| {
        c.queue = 1 << 20;
        c.late_after = Duration::from_millis(300);
    });
    let (ours, deaf) = UnixStream::pair().unwrap();
    bench.handle().attach(ours.into());
    let (o, e) = bench.rank(0);
    let total = 30_u64 << 20;
    let mut child = shell(&format!("yes 0123456789abcde | head -c {total}; echo the end"), o, e);
    assert!(child.wait().unwrap().success());
    let tail = bench.drain(0);
    assert!(tail.stdout.ends_with(b"the end\n"));
    assert!(tail.dropped > total / 2, "{}", tail.dropped);
    assert_eq!(bench.event(), Event::WorkerTrouble(Trouble::Late));
    let f = bench.flush(Duration::from_millis(100));
    assert!(!f.complete && f.left <= (1 << 20) + 4096 && f.dropped == tail.dropped, "{f:?}");
    drop(deaf);
    // A new worker gets what was kept, and the count of the rest.
    let worker = bench.worker(null(), null());
    bench.flushed();
    drop(bench);
    worker.join().unwrap();
    let file = read(dir.path().join("attempt_0/0/stdout.log"));
    let text = String::from_utf8_lossy(&file);
    let marked: u64 = text
        .lines()
        .filter_map(|l| l.strip_prefix("[relight: ")?.strip_suffix(" bytes dropped]")?.parse::<u64>().ok())
        .sum();
    assert_eq!(marked, tail.dropped);
    let kept = text.matches("0123456789abcde\n").count() as u64 * 16;
    assert!(kept > 500_000 && kept + marked <= total + 8, "kept {kept}, dropped {marked}");
}

#[test]
fn a_blocked_console_stops_nobody_and_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let spec =
        LogSpec { dir: Some(dir.path().into()), tee: StreamMap::all(Streams::BOTH), ..LogSpec::default() };
    let bench = Bench::new(spec, |c| c.late_after = Duration::from_secs(1));
    let (unread, out_w) = pipe().unwrap();
    let worker = bench.worker(out_w.try_clone().unwrap(), out_w);
    let (o, e) = bench.rank(0);
    let mut child = shell("yes | head -c 2000000; echo bye >&2", o, e);
    assert!(child.wait().unwrap().success());
    let tail = bench.drain(0);
    assert_eq!((tail.stderr.as_slice(), tail.dropped), (&b"bye\n"[..], 0));
    bench.handle().say(Stream::Err, "relight: still here\n");
    // It waits for the console in vain, longer than a worker may be late.
    assert!(!bench.flush(Duration::from_millis(1500)).complete);
    assert_eq!(bench.events.try_recv().ok(), None);
    assert!(read(dir.path().join("attempt_0/0/stdout.log")) == b"y\n".repeat(1_000_000));
    let out = collect(unread);
    bench.flushed();
    drop(bench);
    assert_eq!(worker.join().unwrap(), 0);
    let text = String::from_utf8(out.join().unwrap()).unwrap();
    let marked = text.lines().filter_map(|l| l.strip_prefix("[relight: ")?.strip_suffix(" bytes dropped]"));
    let marked: usize = marked.map(|n| n.parse::<usize>().unwrap()).sum();
    let shown = text.matches("[default0]:y\n").count() * 13;
    assert!(marked > 1_000_000, "{marked}");
    assert!(shown >= 3_000_000 && shown + marked <= 13_000_000 + 100, "{shown} + {marked}");
    assert!(text.contains("\nrelight: still here\n"), "{}", &text[text.len() - 200..]);
}

#[test]
fn a_worker_that_dies_is_told_and_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(files_only(dir.path()), |_| ());
    let (ours, its) = UnixStream::pair().unwrap();
    bench.handle().attach(ours.into());
    let (mut o, _e) = bench.rank(0);
    o.write_all(b"first\n").unwrap();
    drop(its);
    assert_eq!(bench.event(), Event::WorkerTrouble(Trouble::Closed));
    o.write_all(b"second\n").unwrap();
    let worker = bench.worker(null(), null());
    bench.flushed();
    // Nonsense in place of acknowledgements.
    let (ours, mut its) = UnixStream::pair().unwrap();
    its.write_all(&[0xff; 64]).unwrap();
    bench.handle().attach(ours.into());
    assert_eq!(bench.event(), Event::WorkerTrouble(Trouble::Garbled));
    drop(bench);
    worker.join().unwrap();
    assert_eq!(read(dir.path().join("attempt_0/0/stdout.log")), b"first\nsecond\n");
}

#[test]
fn last_words_of_a_killed_rank_are_in_the_tail() {
    let bench = Bench::new(LogSpec::default(), |_| ());
    let worker = bench.worker(null(), null());
    for n in 0..50 {
        let (o, e) = bench.rank(n);
        let mut child = shell("echo out; printf 'no end' >&2; kill -9 $$", o, e);
        assert!(!child.wait().unwrap().success());
        let tail = bench.drain(n);
        assert_eq!((&tail.stdout[..], &tail.stderr[..]), (&b"out\n"[..], &b"no end"[..]));
    }
    drop(bench);
    worker.join().unwrap();
}

#[test]
fn a_grandchild_that_holds_or_floods_the_pipe_delays_nothing() {
    let bench = Bench::new(LogSpec::default(), |_| ());
    let worker = bench.worker(null(), null());
    // One that only holds the pipes, until we close its input.
    let (input, hold) = pipe().unwrap();
    let (o, e) = bench.rank(0);
    let mut holding = Command::new("sh");
    holding.args(["-c", "exec 3<&0; cat <&3 & echo started; exit 3"]).stdin(Stdio::from(input));
    let mut child = holding.stdout(Stdio::from(o)).stderr(Stdio::from(e)).spawn().unwrap();
    drop(holding);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(bench.drain(0).stdout, b"started\n");
    drop(hold);
    // One that never stops writing.
    let (mut gone, gone_w) = pipe().unwrap();
    let (o, e) = bench.rank(1);
    let mut flooding = Command::new("sh");
    flooding.args(["-c", "exec 5>&0; yes & echo started >&2; exit 3"]).stdin(Stdio::from(gone_w));
    let mut child = flooding.stdout(Stdio::from(o)).stderr(Stdio::from(e)).spawn().unwrap();
    drop(flooding);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert!(bench.drain(1).stderr.ends_with(b"started\n"));
    // `yes` gets SIGPIPE now and with it goes the last holder of this pipe's other end.
    let mut nothing = Vec::new();
    gone.read_to_end(&mut nothing).unwrap();
    drop(bench);
    worker.join().unwrap();
}

#[test]
fn memory_stays_bounded_and_tails_are_the_ends() {
    let bench = Bench::new(LogSpec::default(), |c| {
        c.queue = 512 << 10;
        c.tail = 1000;
    });
    let (o, e) = bench.rank(0);
    let mut child = shell("seq 1 400000; seq 1 300 >&2", o, e);
    assert!(child.wait().unwrap().success());
    let held = bench.flush(Duration::ZERO).left;
    assert!(held <= 512 << 10, "{held}");
    let tail = bench.drain(0);
    assert_eq!((tail.stdout.len(), tail.stderr.len()), (1000, 1000));
    assert!(tail.stdout.ends_with(b"399999\n400000\n") && tail.stderr.ends_with(b"299\n300\n"));
    for _ in 0..100 {
        bench.handle().say(Stream::Err, vec![b'x'; 64 << 10]);
    }
    let f = bench.flush(Duration::ZERO);
    assert!(f.left <= (512 + 256 + 1) << 10 && f.dropped > tail.dropped, "{f:?}");
    assert_eq!(bench.drain(7), Tail::default());
}

#[test]
fn the_combined_log_is_begun_anew_once_full() {
    let dir = tempfile::tempdir().unwrap();
    let spec = LogSpec { combined_limit: 100_000, ..files_only(dir.path()) };
    let bench = Bench::new(spec, |_| ());
    let worker = bench.worker(null(), null());
    let (o, e) = bench.rank(0);
    let mut child = shell("seq 1 20000", o, e);
    assert!(child.wait().unwrap().success());
    bench.drain(0);
    bench.flushed();
    drop(bench);
    worker.join().unwrap();
    let attempt = dir.path().join("attempt_0");
    let (new, old) = (read(attempt.join("combined.log")), read(attempt.join("combined.log.1")));
    assert!(old.len() >= 100_000 && old.len() < 101_000, "{}", old.len());
    assert!(!new.is_empty() && new.len() < 101_000, "{}", new.len());
    assert!(new.ends_with(b"stdout] 20000\n") && new.starts_with(b"[20") && old.ends_with(b"\n"));
    let number =
        |l: &[u8]| String::from_utf8_lossy(l).rsplit(' ').next().unwrap().trim().parse::<u32>().unwrap();
    let last = number(old.split_inclusive(|b| *b == b'\n').next_back().unwrap());
    assert_eq!(number(new.split_inclusive(|b| *b == b'\n').next().unwrap()), last + 1);
}

#[test]
fn a_full_disk_costs_that_file_only() {
    let dir = tempfile::tempdir().unwrap();
    let rank = dir.path().join("attempt_0/0");
    fs::create_dir_all(&rank).unwrap();
    std::os::unix::fs::symlink("/dev/full", rank.join("stdout.log")).unwrap();
    let spec =
        LogSpec { dir: Some(dir.path().into()), tee: StreamMap::all(Streams::BOTH), ..LogSpec::default() };
    let bench = Bench::new(spec, |_| ());
    let (out, out_w) = pipe().unwrap();
    let out = collect(out);
    let worker = bench.worker(out_w.try_clone().unwrap(), out_w);
    let (mut o, mut e) = bench.rank(0);
    for _ in 0..3 {
        o.write_all(b"to nowhere\n").unwrap();
        e.write_all(b"to a file\n").unwrap();
        bench.flushed();
    }
    assert_eq!(bench.event(), Event::FileDisabled { path: rank.join("stdout.log"), errno: 28 });
    drop((o, e));
    bench.drain(0);
    bench.flushed();
    let mut unwritten = 0;
    while let Ok(event) = bench.events.try_recv() {
        match event {
            Event::Unwritten { bytes } => unwritten += bytes,
            other => panic!("told twice: {other:?}"),
        }
    }
    assert_eq!(unwritten, 3 * 11, "every byte is counted once");
    drop(bench);
    worker.join().unwrap();
    assert_eq!(read(rank.join("stderr.log")), b"to a file\n".repeat(3));
    assert_eq!(String::from_utf8(out.join().unwrap()).unwrap().matches("[default0]:to nowhere\n").count(), 3);
}

#[test]
fn a_directory_that_cannot_be_made_leaves_the_console() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let bench = Bench::new(files_only(&dir.path().join("file")), |_| ());
    let worker = bench.worker(null(), null());
    let (mut o, _e) = bench.rank(0);
    o.write_all(b"x\n").unwrap();
    bench.flushed();
    assert!(matches!(bench.event(), Event::FileDisabled { errno: 20, .. }));
    drop(bench);
    assert_eq!(worker.join().unwrap(), 0);
}

#[test]
fn a_worker_writes_everything_after_its_agent_died() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(files_only(dir.path()), |_| ());
    let (out, out_w) = pipe().unwrap();
    let (mut o, _e) = bench.rank(0);
    o.write_all(b"line\nno end").unwrap();
    bench.handle().say(Stream::Out, "relight: bye\n");
    let (ours, its) = UnixStream::pair().unwrap();
    bench.handle().attach(ours.into());
    // Everything lies in the socket (there is no worker to acknowledge it) once flush gives up.
    assert!(!bench.flush(Duration::from_millis(100)).complete);
    drop(bench);
    assert_eq!(worker::serve(its, File::from(OwnedFd::from(out_w)), null()), 0);
    assert_eq!(read(dir.path().join("attempt_0/0/stdout.log")), b"line\nno end");
    assert_eq!(collect(out).join().unwrap(), b"relight: bye\n");
    let combined = String::from_utf8(read(dir.path().join("attempt_0/combined.log"))).unwrap();
    assert!(combined.contains("] no end\n") && combined.contains(" - stdout] relight: bye\n"), "{combined}");
}

/// Attaches worker after worker that ends at once, until it is dropped.
struct Doomed(std::sync::Arc<std::sync::atomic::AtomicBool>, Option<JoinHandle<()>>);

impl Doomed {
    fn new(pump: Handle) -> Self {
        let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = over.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(std::sync::atomic::Ordering::Relaxed) {
                let (ours, its) = UnixStream::pair().unwrap();
                drop(its);
                pump.attach(ours.into());
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self(over, Some(thread))
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        self.1.take().unwrap().join().unwrap();
    }
}

#[test]
fn workers_that_take_nothing_are_no_progress_and_our_words_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let bench = Bench::new(files_only(dir.path()), |_| ());
    let doomed = Doomed::new(bench.handle());
    bench.handle().say(Stream::Err, "the reason\n");
    // One that waits for them for ever gets no answer, and the bench panics.
    let f = bench.flush(Duration::from_millis(200));
    assert!(!f.complete && f.left > 0, "{f:?}");
    let unsaid = || {
        let (tell, answer) = channel();
        bench.handle().unsaid(move |text| {
            let _ = tell.send(text);
        });
        answer.recv_timeout(PATIENCE).expect("an answer")
    };
    assert_eq!(unsaid(), b"the reason\n");
    drop(doomed);
    let worker = bench.worker(null(), null());
    bench.flushed();
    bench.handle().say(Stream::Err, "more\n");
    assert_eq!(unsaid(), b"", "once a worker took something it is the one to say it");
    drop(bench);
    worker.join().unwrap();
}

#[test]
fn a_worker_says_first_whether_its_directory_can_be_written() {
    let first = |dir: std::path::PathBuf| {
        let (tell, events) = channel();
        let spec = LogSpec { dir: Some(dir), try_dir: true, ..LogSpec::default() };
        let pump = Pump::start(Config::new(spec), move |e| {
            let _ = tell.send(e);
        })
        .unwrap();
        let (ours, its) = UnixStream::pair().unwrap();
        pump.handle().attach(ours.into());
        let worker = std::thread::spawn(move || worker::serve(its, null(), null()));
        let event = events.recv_timeout(PATIENCE).expect("an event");
        drop(pump);
        worker.join().unwrap();
        event
    };
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(first(dir.path().join("new/one")), Event::Ready);
    assert_eq!(fs::read_dir(dir.path().join("new/one")).unwrap().count(), 0, "nothing is left there");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let path = file.join("x");
    assert_eq!(first(path.clone()), Event::FileDisabled { path, errno: 20 });
}

#[test]
fn lines_that_match_are_written_once_more() {
    let dir = tempfile::tempdir().unwrap();
    let filters = [vec!["loss".to_owned(), "a,b".to_owned()], vec![]];
    let tee = StreamMap { others: Streams::BOTH, ranks: [(1, Streams::default())].into() };
    let bench = Bench::new(LogSpec { tee, filters, ..files_only(dir.path()) }, |_| ());
    let worker = bench.worker(null(), null());
    for (local, out, err) in [
        (0, "step 1\nloss 3\nx a,b\nunfinished loss", "loss\n"),
        // Not shown by --tee.
        (1, "loss 4\n", ""),
    ] {
        let (mut to_out, mut to_err) = bench.rank(local);
        to_out.write_all(out.as_bytes()).unwrap();
        to_err.write_all(err.as_bytes()).unwrap();
        drop((to_out, to_err));
        bench.drain(local);
    }
    bench.flushed();
    drop(bench);
    assert_eq!(worker.join().unwrap(), 0);
    let attempt = dir.path().join("attempt_0");
    let copied = String::from_utf8(read(attempt.join("filtered_stdout.log"))).unwrap();
    assert_eq!(copied, "[default0]:loss 3\n[default0]:x a,b\n[default0]:unfinished loss\n");
    assert!(!attempt.join("filtered_stderr.log").exists());
}
