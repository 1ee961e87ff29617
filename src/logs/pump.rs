//! The thread that reads the ranks' pipes. It waits for nothing but descriptors: what the logs worker does
//! not take in time is thrown away and counted, a pipe is never left unread.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use super::outbox::{Class, Load, Mark, Outbox};
use super::ring::Ring;
use super::spec::LogSpec;
use super::wire::{Blob, Source, Stream, ToPump, ToWorker};
use crate::domain::ids::{Attempt, LocalRank};
use crate::ipc::frame::{self, FrameError};
use crate::sys::pipes::{self, Ready, Want};

/// How much is read at once and travels in one frame, in bytes.
const CHUNK: usize = 64 << 10;
/// How much one pipe may take of a round before the others have their turn, in bytes.
const TURN: usize = 256 << 10;
/// What a drain reads at most where the pipe's size cannot be asked, in bytes.
const DRAIN: usize = 1 << 20;
/// With more ranks than this a round is followed by a rest of a microsecond for each, at most [`REST`].
const MANY: usize = 64;
const REST: Duration = Duration::from_millis(5);
/// This thread did not run when a wait ends so much later than asked.
const STALL: Duration = Duration::from_secs(1);

/// Numbers and rules of a pump.
#[derive(Clone, Debug)]
pub struct Config {
    /// Goes to every worker first.
    pub spec: LogSpec,
    /// Memory for what the worker has not acknowledged, in bytes.
    pub queue: usize,
    /// Memory for the last output of one stream of one rank, in bytes; at least 1.
    pub tail: usize,
    /// A worker that acknowledges nothing for so long is in trouble.
    pub late_after: Duration,
}

impl Config {
    /// 8 MiB of queue, 64 KiB of tail, 5 s.
    #[must_use]
    pub fn new(spec: LogSpec) -> Self {
        Self { spec, queue: 8 << 20, tail: 64 << 10, late_after: Duration::from_secs(5) }
    }
}

/// Why a pump could not start.
#[derive(Debug, thiserror::Error)]
pub enum PumpError {
    /// The spec cannot travel: its directory is no UTF-8.
    #[error("the log directory's name is not valid UTF-8")]
    Spec(#[source] FrameError),
    /// No thread or no socket pair.
    #[error("the log pump could not be started")]
    Io(#[from] io::Error),
}

/// What is wrong with a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It closed its socket: it ended.
    #[error("the logs worker ended")]
    Closed,
    /// It acknowledged nothing for [`Config::late_after`] although something is outstanding.
    #[error("the logs worker makes no progress")]
    Late,
    /// It speaks another language.
    #[error("the logs worker sent an unreadable frame")]
    Garbled,
    /// Its socket failed otherwise.
    #[error("the connection to the logs worker failed: {0}")]
    Broken(io::ErrorKind),
}

/// What the pump tells by itself. The callback runs on the pump's thread and must not block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The worker was let go of: kill it, start another one and [`Handle::attach`] it. Told once per
    /// attached worker.
    WorkerTrouble(Trouble),
    /// A new worker runs, and the log directory can be written.
    Ready,
    /// A file (or the log directory, at a worker's start) cannot be written (`errno`) and is given up for this worker's life; the console goes on.
    FileDisabled {
        /// Which.
        path: PathBuf,
        /// The kernel's error number.
        errno: i32,
    },
    /// So many bytes more are in no file, because it was given up.
    Unwritten {
        /// How many.
        bytes: u64,
    },
}

/// The last output of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// End of its standard output.
    pub stdout: Vec<u8>,
    /// End of its standard error.
    pub stderr: Vec<u8>,
    /// Bytes of both that never reached the worker.
    pub dropped: u64,
}

/// Outcome of [`Handle::flush`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// Everything queued before the call is written out, to the console too.
    pub complete: bool,
    /// Bytes still held, later ones included.
    pub left: usize,
    /// Bytes that were thrown away since the start.
    pub dropped: u64,
}

type Reply<T> = Box<dyn FnOnce(T) + Send>;

enum Command {
    Add(Source, OwnedFd, OwnedFd),
    Drain(Attempt, LocalRank, Reply<Tail>),
    Say(Stream, Vec<u8>),
    Reveal(Source, Tail),
    Flush(Duration, Reply<Flushed>),
    Unsaid(Reply<Vec<u8>>),
    Attach(OwnedFd),
    Stop,
}

/// Speaks to the pump from any thread; never blocks. After the pump's end, calls do nothing and replies do
/// not come (their closures are dropped).
#[derive(Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
    wake: Arc<UnixStream>,
}

impl Handle {
    fn send(&self, command: Command) {
        if self.commands.send(command).is_ok() {
            // A full socket wakes as well.
            let _ = (&*self.wake).write(&[1]);
        }
    }

    /// A rank starts: takes over the read ends of its two pipes. A rank with the same attempt and local
    /// rank that was never drained is closed.
    pub fn add(&self, source: Source, stdout: OwnedFd, stderr: OwnedFd) {
        self.send(Command::Add(source, stdout, stderr));
    }

    /// A rank has exited: reads what its pipes hold, closes them (others may still hold the write ends)
    /// and gives its tail. An unknown rank gives an empty one.
    pub fn drain(&self, attempt: Attempt, local_rank: LocalRank, reply: impl FnOnce(Tail) + Send + 'static) {
        self.send(Command::Drain(attempt, local_rank, Box::new(reply)));
    }

    /// Bytes of our own for the console (and the newest combined log), in order with what was read before.
    /// Whole lines.
    pub fn say(&self, stream: Stream, bytes: impl Into<Vec<u8>>) {
        self.send(Command::Say(stream, bytes.into()));
    }

    /// Shows a failed rank's last output on the console, if the console does not show that rank anyhow.
    pub fn reveal(&self, source: Source, tail: Tail) {
        self.send(Command::Reveal(source, tail));
    }

    /// Answers when everything that was read or said before is in the files and on the console, or when
    /// nothing of it has moved for `patience`.
    pub fn flush(&self, patience: Duration, reply: impl FnOnce(Flushed) + Send + 'static) {
        self.send(Command::Flush(patience, Box::new(reply)));
    }

    /// Gives our own lines that wait, where no worker has ever taken anything: nobody else will say them.
    pub fn unsaid(&self, reply: impl FnOnce(Vec<u8>) + Send + 'static) {
        self.send(Command::Unsaid(Box::new(reply)));
    }

    /// Hands over the socket (a stream) of a new worker; an earlier one is let go of.
    pub fn attach(&self, socket: OwnedFd) {
        self.send(Command::Attach(socket));
    }
}

/// A running pump; its thread ends when this is dropped (unread output and the queue are lost then: flush
/// first).
pub struct Pump {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Pump {
    /// Starts the thread, without a worker: until one is attached, output is queued.
    ///
    /// # Errors
    /// [`PumpError`].
    pub fn start(config: Config, events: impl FnMut(Event) + Send + 'static) -> Result<Self, PumpError> {
        let preamble = frame::encode(&ToWorker::Spec(config.spec.clone())).map_err(PumpError::Spec)?;
        let (wake, woken) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        woken.set_nonblocking(true)?;
        let (commands, inbox) = mpsc::channel();
        let state = State {
            inbox,
            woken,
            ranks: BTreeMap::new(),
            outbox: Outbox::new(config.queue, Instant::now()),
            flushes: Vec::new(),
            buf: vec![0; CHUNK],
            dropped: 0,
            said_dropped: 0,
            events: Box::new(events),
            preamble,
            config,
        };
        let thread = std::thread::Builder::new().name("log-pump".into()).spawn(move || state.run())?;
        Ok(Self { handle: Handle { commands, wake: Arc::new(wake) }, thread: Some(thread) })
    }

    /// A handle for another thread.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.handle.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there.
            let _ = thread.join();
        }
    }
}

/// One stream of one rank.
struct Side {
    /// `None`: at its end.
    pipe: Option<File>,
    tail: Ring,
    /// Thrown away and not yet marked in the stream.
    unmarked: u64,
    dropped: u64,
}

impl Side {
    fn new(pipe: OwnedFd, tail: usize) -> Self {
        // If this fails the pipe is one that never blocks us: reads are made only when poll says so.
        let _ = pipes::set_nonblocking(&pipe);
        Self { pipe: Some(File::from(pipe)), tail: Ring::new(tail.max(1)), unmarked: 0, dropped: 0 }
    }
}

struct RankPipes {
    source: Source,
    sides: [Side; 2],
}

struct Flush {
    target: Mark,
    since: Instant,
    patience: Duration,
    reply: Reply<Flushed>,
}

struct State {
    inbox: mpsc::Receiver<Command>,
    woken: UnixStream,
    ranks: BTreeMap<(Attempt, LocalRank), RankPipes>,
    outbox: Outbox,
    flushes: Vec<Flush>,
    buf: Vec<u8>,
    dropped: u64,
    /// Bytes of our own lines that were thrown away and not yet marked.
    said_dropped: u64,
    events: Box<dyn FnMut(Event) + Send>,
    preamble: Vec<u8>,
    config: Config,
}

impl State {
    fn run(mut self) {
        loop {
            let timeout = self.deadline().map(|d| d.saturating_duration_since(Instant::now()));
            let before = Instant::now();
            self.read_all(timeout);
            let now = Instant::now();
            if timeout.is_some_and(|t| now.duration_since(before) > t + STALL) {
                self.outbox.forgive(now);
            }
            if !self.commands() {
                return;
            }
            self.serve_worker(Instant::now());
            self.answer_flushes(Instant::now());
            if self.ranks.len() > MANY {
                // A look at thousands of pipes for each of thousands of wake-ups: better a few together.
                let ranks = u64::try_from(self.ranks.len()).unwrap_or(u64::MAX);
                std::thread::sleep(Duration::from_micros(ranks).min(REST));
            }
        }
    }

    /// Waits for anything at all and gives each readable pipe its turn.
    fn read_all(&mut self, timeout: Option<Duration>) {
        let keys = self.open_sides();
        let mut ready = Vec::new();
        if self.wait(&keys, timeout, &mut ready).is_err() {
            // ENOMEM at worst: nothing is known to be ready, so try everything, at a bounded pace.
            std::thread::sleep(Duration::from_millis(10));
            ready.clear();
            ready.resize(keys.len() + 2, Ready { read: true, write: true });
        }
        for (key, r) in keys.iter().zip(ready.iter().skip(2)) {
            if r.read {
                self.read_side(*key, TURN);
            }
        }
    }

    fn open_sides(&self) -> Vec<(Attempt, LocalRank, Stream)> {
        let sides = self.ranks.iter().flat_map(|((a, l), r)| Stream::BOTH.map(|s| (*a, *l, s, r)));
        sides.filter(|(_, _, s, r)| r.sides[s.index()].pipe.is_some()).map(|(a, l, s, _)| (a, l, s)).collect()
    }

    /// Descriptors in the order: wake-up, worker, then `keys`.
    fn wait(
        &self,
        keys: &[(Attempt, LocalRank, Stream)],
        timeout: Option<Duration>,
        ready: &mut Vec<Ready>,
    ) -> io::Result<()> {
        let read = Want { read: true, write: false };
        let mut fds: Vec<(BorrowedFd<'_>, Want)> = vec![(self.woken.as_fd(), read)];
        match self.outbox.socket() {
            Some(s) => fds.push((s.as_fd(), Want { read: true, write: self.outbox.wants_write() })),
            None => fds.push((self.woken.as_fd(), Want::default())),
        }
        for (a, l, s) in keys {
            if let Some(pipe) = self.ranks.get(&(*a, *l)).and_then(|r| r.sides[s.index()].pipe.as_ref()) {
                fds.push((pipe.as_fd(), read));
            }
        }
        pipes::wait(&fds, timeout, ready)
    }

    fn deadline(&self) -> Option<Instant> {
        let flushes = self.flushes.iter().map(|f| f.since.max(self.outbox.progress()) + f.patience);
        flushes.chain(self.outbox.late_at(self.config.late_after)).min()
    }

    /// Reads at most about `most` bytes of one stream, until it has no more for now.
    fn read_side(&mut self, (attempt, local_rank, stream): (Attempt, LocalRank, Stream), most: usize) {
        let Some(rank) = self.ranks.get_mut(&(attempt, local_rank)) else { return };
        let source = rank.source;
        let side = &mut rank.sides[stream.index()];
        let mut taken = 0;
        while taken < most {
            let Some(pipe) = &mut side.pipe else { return };
            let n = match pipe.read(&mut self.buf) {
                Ok(0) => {
                    side.pipe = None;
                    return;
                }
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => {
                    side.pipe = None;
                    return;
                }
            };
            taken += n;
            let bytes = &self.buf[..n];
            side.tail.push(bytes);
            let (now, wall_ms) = (Instant::now(), wall_ms());
            if self.outbox.has_room() && side.unmarked > 0 {
                let marker = ToWorker::Dropped { source, stream, wall_ms, bytes: side.unmarked };
                push(&mut self.outbox, &marker, Class::Control, None, now);
                side.unmarked = 0;
            }
            let data = ToWorker::Data { source, stream, wall_ms, bytes: Blob(Cow::Borrowed(bytes)) };
            if !self.outbox.has_room()
                || !push(&mut self.outbox, &data, Class::Data, Some((source, stream, n)), now)
            {
                let n = n as u64;
                side.unmarked += n;
                side.dropped += n;
                self.dropped += n;
            }
        }
    }

    /// False: the end.
    fn commands(&mut self) -> bool {
        let mut sink = [0_u8; 256];
        while matches!((&self.woken).read(&mut sink), Ok(n) if n == sink.len()) {}
        // One round's worth; what comes later wakes the next round.
        let batch: Vec<Command> = self.inbox.try_iter().collect();
        if !batch.is_empty() {
            // What was written before a command was given comes before it.
            self.read_all(Some(Duration::ZERO));
        }
        batch.into_iter().all(|command| self.obey(command))
    }

    /// False: the end.
    fn obey(&mut self, command: Command) -> bool {
        let now = Instant::now();
        match command {
            Command::Add(source, stdout, stderr) => {
                let sides = [stdout, stderr].map(|fd| Side::new(fd, self.config.tail));
                self.ranks.insert((source.attempt, source.local_rank), RankPipes { source, sides });
                push(&mut self.outbox, &ToWorker::Open(source), Class::Control, None, now);
            }
            Command::Drain(attempt, local_rank, reply) => reply(self.drain(attempt, local_rank)),
            Command::Say(stream, bytes) => self.say(stream, &bytes),
            Command::Reveal(source, tail) => {
                for (stream, bytes) in [(Stream::Out, tail.stdout), (Stream::Err, tail.stderr)] {
                    for part in bytes.chunks(1 << 20) {
                        let reveal = ToWorker::Reveal { source, stream, bytes: Blob(Cow::Borrowed(part)) };
                        push(&mut self.outbox, &reveal, Class::Own, None, now);
                    }
                }
            }
            Command::Flush(patience, reply) => {
                self.flushes.push(Flush { target: self.outbox.mark(), since: now, patience, reply });
            }
            Command::Unsaid(reply) => reply(self.outbox.unsaid()),
            Command::Attach(socket) => {
                match self.outbox.attach(UnixStream::from(socket), self.preamble.clone(), now) {
                    Ok(lost) => self.count_lost(lost),
                    Err(e) => (self.events)(Event::WorkerTrouble(Trouble::Broken(e.kind()))),
                }
            }
            Command::Stop => return false,
        }
        true
    }

    fn drain(&mut self, attempt: Attempt, local_rank: LocalRank) -> Tail {
        for stream in Stream::BOTH {
            let rank = self.ranks.get(&(attempt, local_rank));
            let Some(pipe) = rank.and_then(|r| r.sides[stream.index()].pipe.as_ref()) else { continue };
            // All that the dead rank wrote lies in the pipe now; whoever else writes could go on for ever.
            let most = pipes::capacity(pipe).unwrap_or(DRAIN);
            self.read_side((attempt, local_rank, stream), most);
        }
        let Some(mut rank) = self.ranks.remove(&(attempt, local_rank)) else { return Tail::default() };
        let (source, now, wall_ms) = (rank.source, Instant::now(), wall_ms());
        for stream in Stream::BOTH {
            let bytes = rank.sides[stream.index()].unmarked;
            if bytes > 0 {
                let marker = ToWorker::Dropped { source, stream, wall_ms, bytes };
                push(&mut self.outbox, &marker, Class::Control, None, now);
            }
        }
        push(&mut self.outbox, &ToWorker::Close { source, wall_ms }, Class::Control, None, now);
        let [out, err] = &mut rank.sides;
        Tail { stdout: out.tail.take(), stderr: err.tail.take(), dropped: out.dropped + err.dropped }
    }

    fn say(&mut self, stream: Stream, bytes: &[u8]) {
        let (now, wall_ms) = (Instant::now(), wall_ms());
        if self.said_dropped > 0 {
            let text = dropped_marker(self.said_dropped);
            let marker = ToWorker::Say { stream, wall_ms, bytes: Blob(Cow::Borrowed(text.as_bytes())) };
            if push(&mut self.outbox, &marker, Class::Own, None, now) {
                self.said_dropped = 0;
            }
        }
        for part in bytes.chunks(CHUNK) {
            let say = ToWorker::Say { stream, wall_ms, bytes: Blob(Cow::Borrowed(part)) };
            if !push(&mut self.outbox, &say, Class::Own, None, now) {
                self.said_dropped += part.len() as u64;
                self.dropped += part.len() as u64;
            }
        }
    }

    fn serve_worker(&mut self, now: Instant) {
        let events = &mut self.events;
        let served = self
            .outbox
            .read(now, |message| match message {
                ToPump::Ready => events(Event::Ready),
                ToPump::Disabled { path, errno } => {
                    let path = PathBuf::from(std::ffi::OsString::from_vec(path.0.into_owned()));
                    events(Event::FileDisabled { path, errno });
                }
                ToPump::Unwritten(bytes) => events(Event::Unwritten { bytes }),
                ToPump::Ack(_) | ToPump::Shown(_) => {}
            })
            .and_then(|()| self.outbox.write());
        let trouble = match served {
            Err(trouble) => trouble,
            Ok(()) if self.outbox.late_at(self.config.late_after).is_some_and(|d| d <= now) => Trouble::Late,
            Ok(()) => return,
        };
        let lost = self.outbox.detach();
        self.count_lost(lost);
        (self.events)(Event::WorkerTrouble(trouble));
    }

    fn count_lost(&mut self, lost: Load) {
        let Some((source, stream, n)) = lost else { return };
        let n = n as u64;
        self.dropped += n;
        if let Some(rank) = self.ranks.get_mut(&(source.attempt, source.local_rank)) {
            let side = &mut rank.sides[stream.index()];
            side.unmarked += n;
            side.dropped += n;
        }
    }

    fn answer_flushes(&mut self, now: Instant) {
        let (outbox, progress) = (&self.outbox, self.outbox.progress());
        let outcome = Flushed { complete: false, left: outbox.held(), dropped: self.dropped };
        let over = |f: &mut Flush| outbox.reached(&mut f.target) || f.since.max(progress) + f.patience <= now;
        for mut flush in self.flushes.extract_if(.., over) {
            let complete = outbox.reached(&mut flush.target);
            (flush.reply)(Flushed { complete, ..outcome });
        }
    }
}

/// Queues a frame; false: thrown away.
fn push(outbox: &mut Outbox, message: &ToWorker<'_>, class: Class, load: Load, now: Instant) -> bool {
    // Only a frame over 8 MiB cannot be encoded, and none comes near.
    frame::encode(message).is_ok_and(|bytes| outbox.push(bytes, class, load, now))
}

pub(super) fn dropped_marker(bytes: u64) -> String {
    format!("[relight: {bytes} bytes dropped]\n")
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
