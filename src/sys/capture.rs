//! Runs a program of somebody else's to its end: in a session of its own, within a time, with the end of what it
//! prints. Blocks; for workers.

use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::time::Duration;

use super::capability::Capabilities;
use super::pipes::set_nonblocking;
use super::poll::{self, Watch};
use super::signals::number::SIGKILL;
use super::spawn::{self, SpawnError, SpawnRequest, Stdin};
use super::wait::{self, Waited};
use super::{clock, process};
use crate::domain::exit::ExitKind;
use crate::domain::time::BootTime;

/// After a kill its end is waited for so long: one that is stuck in the kernel does not end.
const KILLED: Duration = Duration::from_millis(500);
/// Between two looks where there is no pidfd.
const LOOK: Duration = Duration::from_millis(10);

/// How it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended by itself.
    Ended(ExitKind),
    /// It was late; its group was killed.
    Late,
    /// It could not be started.
    NotStarted(SpawnError),
}

/// A program that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// How it went.
    pub end: End,
    /// The end of what it wrote on standard output and standard error.
    pub output: Vec<u8>,
}

/// Runs it. Its standard input is empty, its outputs are ours, and it leads a session: the rest is as the request says.
/// Of the output the last `most` bytes are kept. What it leaves in the background when it ends in time is left alone.
#[must_use]
pub fn run(request: SpawnRequest, within: Duration, most: usize, caps: Capabilities) -> Captured {
    let not_started = |error: &io::Error| {
        let errno = error.raw_os_error().unwrap_or(0);
        let what = spawn::explain("pipe for its output", errno);
        Captured { end: End::NotStarted(SpawnError { errno, what }), output: Vec::new() }
    };
    let (mut read, write) = match io::pipe() {
        Ok(pipe) => pipe,
        Err(error) => return not_started(&error),
    };
    let both = write.try_clone().and_then(|second| set_nonblocking(&read).map(|()| second));
    let second = match both {
        Ok(second) => second,
        Err(error) => return not_started(&error),
    };
    let request = SpawnRequest {
        stdin: Stdin::Null,
        stdout: Some(write.into()),
        stderr: Some(second.into()),
        session: true,
        death_signal: Some(SIGKILL),
        ..request
    };
    let until = clock::boot().after(within);
    let (record, mut starting) = match spawn::begin(&request, caps) {
        Ok(begun) => begun,
        Err(error) => return Captured { end: End::NotStarted(error), output: Vec::new() },
    };
    drop(request);
    let mut kept = Kept { bytes: Vec::new(), most, open: true };
    let ended = loop {
        kept.take(&mut read);
        if let Some(kind) = ended(record.pid) {
            break Some(kind);
        }
        let left = until.since(clock::boot());
        if left.is_zero() {
            break None;
        }
        let mut watches = Vec::new();
        if kept.open {
            watches.push(Watch::read(read.as_fd()));
        }
        watches.extend(record.pidfd.as_ref().map(|fd| Watch::read(fd.as_fd())));
        let pause = if record.pidfd.is_some() { left } else { left.min(LOOK) };
        let _ = poll::wait(&watches, Some(pause));
    };
    if ended.is_none() {
        // The whole group; the leader is a zombie at most, so the number is its own.
        let _ = process::kill_group(record.pid, SIGKILL);
        reap(record.pid, clock::boot().after(KILLED));
    }
    kept.take(&mut read);
    let end = match (ended, starting.outcome()) {
        (Some(_), Some(Err(error))) => End::NotStarted(error),
        (Some(kind), _) => End::Ended(kind),
        (None, _) => End::Late,
    };
    Captured { end, output: kept.bytes }
}

fn ended(pid: i32) -> Option<ExitKind> {
    match wait::reap(pid) {
        Waited::Ended(kind) => Some(kind),
        Waited::Running => None,
        Waited::NotOurs => Some(ExitKind::Lost),
    }
}

fn reap(pid: i32, until: BootTime) {
    while ended(pid).is_none() && clock::boot() < until {
        std::thread::sleep(LOOK);
    }
}

struct Kept {
    bytes: Vec<u8>,
    most: usize,
    open: bool,
}

impl Kept {
    /// Everything that is there now.
    fn take(&mut self, from: &mut io::PipeReader) {
        // One that writes without an end is not read without an end.
        const TURN: usize = 64;
        let mut buffer = [0; 16 << 10];
        for _ in 0..TURN {
            match from.read(&mut buffer) {
                Ok(0) => {
                    self.open = false;
                    break;
                }
                Ok(count) => self.bytes.extend_from_slice(&buffer[..count]),
                Err(_) => break,
            }
            let over = self.bytes.len().saturating_sub(self.most);
            self.bytes.drain(..over);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Instant;

    use super::*;

    fn shell(script: &str, within: Duration, caps: Capabilities) -> Captured {
        let request = SpawnRequest {
            argv: ["/bin/sh", "-c", script].iter().map(Into::into).collect(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: PathBuf::from("/"),
            ..SpawnRequest::default()
        };
        run(request, within, 64, caps)
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn ends_and_the_end_of_what_was_printed() {
        for caps in [Capabilities::probe(), Capabilities::none()] {
            let said = shell("echo out; echo err >&2; exit 3", LONG, caps);
            assert_eq!(said.end, End::Ended(ExitKind::Code(3)));
            assert_eq!(said.output, b"out\nerr\n");
            let said = shell("kill -9 $$", LONG, caps);
            assert_eq!(said.end, End::Ended(ExitKind::Signal { no: 9, core: false }));
            let said = shell("seq 1 100000; echo last", LONG, caps);
            assert_eq!(said.output.len(), 64);
            assert!(said.output.ends_with(b"\nlast\n"), "{:?}", said.output);
        }
    }

    #[test]
    fn what_is_late_dies_with_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pids");
        let script = format!("sleep 1000 & echo $! $$ > {}; yes; wait", file.display());
        let said = shell(&script, Duration::from_millis(500), Capabilities::probe());
        assert_eq!(said.end, End::Late);
        let pids = std::fs::read_to_string(&file).unwrap();
        let until = Instant::now() + LONG;
        for pid in pids.split_ascii_whitespace().map(|pid| pid.parse::<i32>().unwrap()) {
            while super::super::procfs::stat(pid).is_some_and(|stat| !stat.is_dead()) {
                assert!(Instant::now() < until, "{pid} lives");
                std::thread::sleep(LOOK);
            }
        }
    }

    #[test]
    fn one_that_stays_in_the_background_is_not_waited_for() {
        let began = Instant::now();
        let said = shell("sleep 20 & echo $!", LONG, Capabilities::probe());
        assert_eq!(said.end, End::Ended(ExitKind::Code(0)));
        assert!(began.elapsed() < Duration::from_secs(15));
        let pid = String::from_utf8(said.output).unwrap().trim().parse().unwrap();
        process::kill(pid, SIGKILL).unwrap();
    }

    #[test]
    fn what_cannot_be_started_says_why() {
        let request = SpawnRequest {
            argv: vec!["/no/such/program".into()],
            cwd: PathBuf::from("/"),
            ..SpawnRequest::default()
        };
        let said = run(request, LONG, 64, Capabilities::probe());
        let End::NotStarted(error) = said.end else { panic!("{:?}", said.end) };
        assert_eq!(error.errno, 2);
    }
}
