//! The store worker: the process that may hang on a shared file system so that the agent does not.
//!
//! One thread reads requests, one does them. An append that is in trouble does not hold up the others.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use super::codec;
use super::error::IoTrouble;
use super::faults::{Call, Hands};
use super::layout::{self, LayoutError, OpenOptions, Opened, names};
use super::posix::{self, Created, Journal, Read};
use super::protocol::{Ended, ReadIs, Request, Response};
use super::{hint, nonce, plain};
use crate::domain::append::{Append, AppendEffect, AppendEvent, Found, Outcome, TroubleKind};
use crate::domain::ids::{Op, Seq, StoreId};
use crate::domain::mutant::Mutants;
use crate::domain::note::DAMAGED;
use crate::domain::outbox::{Machine as _, Outbox};
use crate::domain::record::Record;
use crate::domain::time::{BootTime, Now};
use crate::ipc::frame::{self, FrameError};
use crate::sys::files;

/// Requests that are read ahead; more wait in the socket.
const READ_AHEAD: usize = 64;
/// Records are sent in frames of about this many bytes.
const CHUNK: usize = 1 << 20;

/// The agent closed the socket, or asked for the end.
pub const EXIT_OK: i32 = 0;
/// The agent sent what is no request, or cannot be written to.
pub const EXIT_BROKEN: i32 = 1;

/// Serves until the other side closes or asks for the end; returns the exit code of the process.
#[must_use]
pub fn run(socket: OwnedFd) -> i32 {
    let socket = UnixStream::from(socket);
    let Ok(reading) = socket.try_clone() else { return EXIT_BROKEN };
    let (to_worker, requests) = mpsc::sync_channel(READ_AHEAD);
    let reader =
        std::thread::Builder::new().name("requests".into()).spawn(move || read_requests(reading, &to_worker));
    if reader.is_err() {
        return EXIT_BROKEN;
    }
    match Worker::new(socket).serve(&requests) {
        Ok(()) | Err(FrameError::Closed) => EXIT_OK,
        Err(FrameError::TooLong(_) | FrameError::Codec(_) | FrameError::Io(_)) => EXIT_BROKEN,
    }
}

fn read_requests(mut from: UnixStream, to: &SyncSender<Result<Request, FrameError>>) {
    loop {
        let read = frame::read(&mut from);
        let last = read.is_err();
        if to.send(read).is_err() || last {
            return;
        }
    }
}

/// The run directory in use.
struct Place {
    dir: PathBuf,
    store: StoreId,
    journal: Journal,
    /// This life of the worker has seen that the directory is the right one.
    checked: bool,
}

/// The append in flight.
struct Current {
    op: Op,
    record: Box<Record>,
    bytes: Vec<u8>,
    /// What the newest read-back found.
    found: Option<Box<Record>>,
    /// The newest error.
    text: String,
}

struct Worker {
    socket: UnixStream,
    hands: Hands,
    place: Option<Place>,
    append: Append,
    current: Option<Current>,
    waiting: VecDeque<Request>,
    started: Instant,
}

/// What failed, for the answer.
struct Failure {
    kind: TroubleKind,
    text: String,
}

impl From<IoTrouble> for Failure {
    fn from(trouble: IoTrouble) -> Self {
        Self { kind: trouble.kind(), text: trouble.to_string() }
    }
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        let kind = match &error {
            LayoutError::Missing(_) | LayoutError::NoParent { .. } => TroubleKind::Gone,
            LayoutError::Full { .. } => TroubleKind::Full,
            LayoutError::ReadOnly(_) => TroubleKind::ReadOnly,
            LayoutError::NotWritable(_)
            | LayoutError::ForeignOwner { .. }
            | LayoutError::OpenToOthers { .. }
            | LayoutError::SecretOpen { .. } => TroubleKind::Denied,
            LayoutError::OtherRun { .. } | LayoutError::Foreign { .. } => TroubleKind::OtherStore,
            LayoutError::Damaged { .. } => TroubleKind::Unreadable,
            LayoutError::Io(trouble) => trouble.kind(),
            LayoutError::Symlink(_)
            | LayoutError::NotADirectory(_)
            | LayoutError::NoLinks(_)
            | LayoutError::Newer { .. } => TroubleKind::Other,
        };
        Self { kind, text: error.to_string() }
    }
}

impl Failure {
    fn not_open() -> Self {
        Self { kind: TroubleKind::Other, text: "no run directory is open".into() }
    }
}

impl Worker {
    fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            hands: Hands::default(),
            place: None,
            append: Append::new(Mutants::NONE),
            current: None,
            waiting: VecDeque::new(),
            started: Instant::now(),
        }
    }

    /// The machine only takes differences, so the age of this process does as a clock.
    fn now(&self) -> Now {
        let age = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { boot: BootTime(age), wall_ms: 0 }
    }

    fn serve(&mut self, requests: &Receiver<Result<Request, FrameError>>) -> Result<(), FrameError> {
        loop {
            if let Some(first) = self.wait(requests)? {
                self.enqueue(first)?;
            }
            while let Ok(more) = requests.try_recv() {
                self.enqueue(more?)?;
            }
            if self.append.deadline().is_some_and(|at| at <= self.now().boot) {
                self.drive(AppendEvent::Tick)?;
            }
            if let Some(request) = self.next() {
                if let Request::Shutdown { op } = request {
                    return self.say(&Response::Done { op });
                }
                self.perform(request)?;
            }
        }
    }

    /// Waits for a request unless there is something to do; no longer than until the next tick.
    fn wait(&self, requests: &Receiver<Result<Request, FrameError>>) -> Result<Option<Request>, FrameError> {
        if self.has_next() {
            return Ok(None);
        }
        let wait = match self.append.deadline() {
            Some(at) => at.since(self.now().boot),
            None => return requests.recv().unwrap_or(Err(FrameError::Closed)).map(Some),
        };
        match requests.recv_timeout(wait.max(Duration::from_millis(1))) {
            Ok(request) => request.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(FrameError::Closed),
        }
    }

    fn enqueue(&mut self, request: Request) -> Result<(), FrameError> {
        if let Request::Status { .. } = request
            && let Some(at) = self.waiting.iter().position(|r| matches!(r, Request::Status { .. }))
            && let Some(older) = self.waiting.remove(at)
        {
            self.say(&Response::Done { op: older.op() })?;
        }
        if let (Request::Append { op, record, .. }, Some(current)) = (&request, &mut self.current)
            && current.record == *record
        {
            // The same append once more: only its newest `op` is answered.
            current.op = *op;
            return Ok(());
        }
        self.waiting.push_back(request);
        Ok(())
    }

    fn is_ready(&self, request: &Request) -> bool {
        !matches!(request, Request::Append { .. }) || self.current.is_none()
    }

    fn has_next(&self) -> bool {
        self.waiting.iter().any(|r| self.is_ready(r))
    }

    /// The next request that can be done: appends first, everything else in order.
    fn next(&mut self) -> Option<Request> {
        let is_append = |r: &Request| matches!(r, Request::Append { .. });
        let opening = |r: &Request| {
            matches!(r, Request::Open { .. } | Request::Reopen { .. } | Request::SetAside { .. })
        };
        // An append does not overtake what opens its directory.
        let first_open = self.waiting.iter().position(opening).unwrap_or(usize::MAX);
        let append = self.waiting.iter().position(|r| is_append(r) && self.is_ready(r));
        let at = append
            .filter(|at| *at < first_open)
            .or_else(|| self.waiting.iter().position(|r| self.is_ready(r)))?;
        self.waiting.remove(at)
    }

    fn say(&mut self, response: &Response) -> Result<(), FrameError> {
        frame::write(&mut self.socket, response)
    }

    fn perform(&mut self, request: Request) -> Result<(), FrameError> {
        let op = request.op();
        let answer = match request {
            Request::Open { options, faults, .. } => {
                self.hands = Hands::new(faults.unwrap_or_default());
                return self.open(op, &options);
            }
            Request::Hint { dir, .. } => Ok(Response::Hint { op, hint: hint::read(&mut self.hands, &dir) }),
            Request::Probe { name, .. } => self.probe(op, &name),
            Request::Append { record, again, .. } => return self.begin(op, record, again),
            Request::SetAside { dir, .. } => {
                self.place = None;
                Ok(match layout::set_aside(&mut self.hands, &dir) {
                    Ok(path) => Response::Aside { op, path },
                    Err(e) => refused(op, &e),
                })
            }
            Request::Reopen { dir, store, .. } => {
                let journal = Journal::new(dir.join(names::JOURNAL));
                self.place = Some(Place { dir, store, journal, checked: false });
                Ok(Response::Done { op })
            }
            Request::Read { seq, .. } => self.read(op, seq),
            Request::WriteFile { path, bytes, durable, .. } => self.write_file(op, &path, &bytes, durable),
            Request::Status { bytes, .. } => self.write_file(op, names::STATUS, &bytes, false),
            Request::Events { lines, .. } => self.events(op, &lines),
            Request::WriteNonce { .. } => self.write_nonce(op),
            Request::Claim { word, .. } => self.claim(op, &word),
            Request::ReadNonce { word, .. } => self.read_nonce(op, &word),
            Request::Shutdown { .. } => Ok(Response::Done { op }),
        };
        let answer = answer.unwrap_or_else(|f: Failure| Response::Failed { op, kind: f.kind, text: f.text });
        self.say(&answer)
    }

    fn open(&mut self, op: Op, options: &OpenOptions) -> Result<(), FrameError> {
        let mut opened = match layout::open(&mut self.hands, options) {
            Ok(opened) => opened,
            Err(e) => return self.say(&refused(op, &e)),
        };
        let dir = options.dir.clone();
        let journal = Journal::new(dir.join(names::JOURNAL));
        self.place = Some(Place { dir, store: opened.store.clone(), journal, checked: true });
        self.send_records(&mut opened)?;
        self.say(&Response::Opened { op, opened: Box::new(opened) })
    }

    /// A long journal does not fit into one frame.
    fn send_records(&mut self, opened: &mut Opened) -> Result<(), FrameError> {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        for record in opened.records.drain(..) {
            // As JSON it is longer than as a frame.
            bytes += codec::encode(&record).map_or(0, |b| b.len());
            chunk.push(record);
            if bytes >= CHUNK {
                frame::write(&mut self.socket, &Response::Records(std::mem::take(&mut chunk)))?;
                bytes = 0;
            }
        }
        opened.records = chunk;
        Ok(())
    }

    fn begin(&mut self, op: Op, record: Box<Record>, again: bool) -> Result<(), FrameError> {
        if self.place.is_none() {
            let Failure { kind, text } = Failure::not_open();
            return self.say(&Response::Failed { op, kind, text });
        }
        let bytes = match codec::encode(&record) {
            Ok(bytes) => bytes,
            Err(e) => {
                let (kind, text) = (TroubleKind::Other, e.to_string());
                return self.say(&Response::Failed { op, kind, text });
            }
        };
        let event = AppendEvent::Begin { seq: record.seq, nonce: record.nonce, again };
        self.current = Some(Current { op, record, bytes, found: None, text: String::new() });
        self.drive(event)
    }

    /// Carries the append machine on until it waits for time or is done.
    fn drive(&mut self, event: AppendEvent) -> Result<(), FrameError> {
        let mut events = VecDeque::from([event]);
        let mut out = Outbox::default();
        while let Some(event) = events.pop_front() {
            let now = self.now();
            self.append.handle(now, event, &mut out);
            for effect in out.take_effects() {
                match effect {
                    AppendEffect::TryCreate { op, seq, .. } => events.push_back(self.try_create(op, seq)),
                    AppendEffect::ReadBack { op, seq } => events.push_back(self.read_back(op, seq)),
                    AppendEffect::Ended { outcome, .. } => self.ended(outcome)?,
                    AppendEffect::Trouble { kind, since } => self.trouble(kind, since)?,
                }
            }
        }
        Ok(())
    }

    fn try_create(&mut self, op: Op, seq: Seq) -> AppendEvent {
        let created = ensure(&mut self.place, &mut self.hands).and_then(|place| {
            let bytes = self.current.as_ref().map_or(&[][..], |c| &c.bytes);
            Ok(place.journal.create(&mut self.hands, seq, bytes)?)
        });
        match created {
            Ok(Created::Clean) => AppendEvent::Created(op),
            Ok(Created::Exists) => AppendEvent::Exists(op),
            Err(failure) => AppendEvent::Unknown(op, self.remember(failure)),
        }
    }

    fn read_back(&mut self, op: Op, seq: Seq) -> AppendEvent {
        let found = ensure(&mut self.place, &mut self.hands).and_then(|place| {
            let read = place.journal.read(&mut self.hands, seq)?;
            if let Read::Record(_) = read {
                // It will be acted on, and who linked it may not have come as far as this.
                let dir = place.journal.dir();
                let handle = self.hands.call(Call::Open, dir, || files::open_dir(dir))?;
                self.hands.call(Call::FsyncDir, dir, || files::sync_dir(&handle))?;
            }
            Ok(read)
        });
        let found = match found {
            Ok(Read::Record(record)) => {
                let nonce = record.nonce;
                if let Some(current) = &mut self.current {
                    current.found = Some(record);
                }
                Found::Record { nonce }
            }
            Ok(Read::Absent) => Found::Absent,
            Ok(Read::Unreadable(why)) => {
                let text = format!("{DAMAGED}record {seq} cannot be read: {why}");
                self.remember(Failure { kind: TroubleKind::Unreadable, text });
                Found::Unreadable
            }
            Err(failure) => Found::Failed(self.remember(failure)),
        };
        AppendEvent::ReadBackIs(op, found)
    }

    fn remember(&mut self, failure: Failure) -> TroubleKind {
        if let Some(current) = &mut self.current {
            current.text = failure.text;
        }
        failure.kind
    }

    fn ended(&mut self, outcome: Outcome) -> Result<(), FrameError> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let ended = match (outcome, current.found) {
            (Outcome::Lost, Some(other)) => Ended::Lost(other),
            // The machine says *lost* only after a read-back that found a record.
            (Outcome::Lost, None) => return Ok(()),
            (Outcome::Written, _) => Ended::Written,
            #[cfg(feature = "mutants")]
            (Outcome::Forgotten, _) => return Ok(()),
        };
        self.say(&Response::Appended { op: current.op, ended })
    }

    fn trouble(&mut self, kind: TroubleKind, since: BootTime) -> Result<(), FrameError> {
        let Some(current) = &self.current else { return Ok(()) };
        let since_ms = u64::try_from(self.now().boot.since(since).as_millis()).unwrap_or(u64::MAX);
        let response = Response::Trouble { op: current.op, kind, text: current.text.clone(), since_ms };
        self.say(&response)
    }

    fn read(&mut self, op: Op, seq: Seq) -> Result<Response, Failure> {
        let place = ensure(&mut self.place, &mut self.hands)?;
        let is = match place.journal.read(&mut self.hands, seq)? {
            Read::Record(record) => ReadIs::Record(record),
            Read::Absent => ReadIs::Absent,
            Read::Unreadable(why) => ReadIs::Unreadable(why.to_string()),
        };
        Ok(Response::ReadIs { op, is })
    }

    fn write_file(&mut self, op: Op, path: &str, bytes: &[u8], durable: bool) -> Result<Response, Failure> {
        let place = ensure(&mut self.place, &mut self.hands)?;
        let Some(target) = plain::resolve(&place.dir, path) else {
            let text = format!("{path:?} is no file of a run directory");
            return Err(Failure { kind: TroubleKind::Denied, text });
        };
        if path.contains('/') {
            plain::make_dir_of(&mut self.hands, &target)?;
        }
        plain::replace(&mut self.hands, &target, bytes, durable)?;
        Ok(Response::Done { op })
    }

    fn events(&mut self, op: Op, lines: &[String]) -> Result<Response, Failure> {
        let place = ensure(&mut self.place, &mut self.hands)?;
        plain::append_events(&mut self.hands, &place.dir, lines)?;
        Ok(Response::Done { op })
    }

    /// As a record is made: the same calls decide.
    fn probe(&mut self, op: Op, name: &str) -> Result<Response, Failure> {
        let place = ensure(&mut self.place, &mut self.hands)?;
        if !files::is_plain_name(name) {
            let text = format!("{name:?} is no name of a probe");
            return Err(Failure { kind: TroubleKind::Denied, text });
        }
        let made = posix::create(&mut self.hands, &place.dir.join(names::PROBE), name, b"probe\n")?;
        Ok(Response::Probed { op, won: made == Created::Clean })
    }

    fn write_nonce(&mut self, op: Op) -> Result<Response, Failure> {
        let place = ensure(&mut self.place, &mut self.hands)?;
        let word = nonce::write(&mut self.hands, &place.dir.join(names::NONCE))?;
        Ok(Response::Nonce { op, word })
    }

    fn claim(&mut self, op: Op, word: &str) -> Result<Response, Failure> {
        let place = ensure(&mut self.place, &mut self.hands)?;
        let yes = nonce::claim(&mut self.hands, &place.dir.join(names::NONCE), word)?;
        Ok(Response::Proves { op, yes })
    }

    fn read_nonce(&mut self, op: Op, word: &str) -> Result<Response, Failure> {
        let place = ensure(&mut self.place, &mut self.hands)?;
        let yes = nonce::proves(&mut self.hands, &place.dir.join(names::NONCE), word)?;
        Ok(Response::Proves { op, yes })
    }
}

/// The open place; once in each life it is made sure that it is the right one.
fn ensure<'a>(place: &'a mut Option<Place>, hands: &mut Hands) -> Result<&'a Place, Failure> {
    let place = place.as_mut().ok_or_else(Failure::not_open)?;
    if !place.checked {
        let run = layout::identify(hands, &place.dir)?;
        if run.store != place.store {
            let text = format!("{} holds another run directory by now", display(&place.dir));
            return Err(Failure { kind: TroubleKind::OtherStore, text });
        }
        place.checked = true;
    }
    Ok(place)
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

fn refused(op: Op, error: &LayoutError) -> Response {
    let missing = matches!(error, LayoutError::Missing(_));
    Response::Refused { op, sentence: error.to_string(), hint: error.hint().to_owned(), missing }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
