//! The ranks' output: the pump, the worker that it feeds, and what is told of both.

use std::cell::Cell;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};

use super::tasks;
use super::teller::{Teller, Who};
use super::workers::{LOGS, Workers};
use crate::domain::note::Note;
use crate::logs::pump::{Config, Event, Handle, Pump, PumpError};
use crate::logs::spec::LogSpec;
use crate::sys::pipes::{self, Want};

/// The last output may take as long as it likes while it moves; so long without a move ends it.
const STUCK: Duration = Duration::from_secs(5);
/// And so long ends it in any case.
const LONGEST: Duration = Duration::from_secs(120);
/// Between two starts of a worker that does not stay.
const PAUSE: Duration = Duration::from_millis(200);
/// So many workers in a row that end before they look at the log directory are enough.
const TRIES: u32 = 3;
/// A log directory that does not answer for so long is left to time.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of our own words that no worker took, in bytes.
const MOST: usize = 64 << 10;
/// How long words that no worker takes may take on their way to standard error.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What is known of the first worker.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Standing {
    Unknown,
    /// It runs, and its directory can be written.
    Ready,
    /// Why there are no logs.
    Refused(Why),
}

/// Why there is no output, or there are no files of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// This log directory cannot be written.
    Directory { path: String, errno: i32 },
    /// No worker stays; how the last one ended.
    NoWorker(String),
}

/// The near end.
pub(super) struct Output {
    pump: Pump,
    standing: watch::Receiver<Standing>,
    troubles: Cell<Option<mpsc::UnboundedReceiver<Note>>>,
    /// Bytes that are in no file.
    unwritten: Rc<Cell<u64>>,
}

impl Output {
    /// Starts the pump and its worker, and a new one for each that goes.
    pub(super) fn start(spec: LogSpec, workers: &Rc<Workers>) -> Result<Self, PumpError> {
        let (tell, mut events) = mpsc::unbounded_channel();
        let dir = spec.dir.clone();
        let pump = Pump::start(Config::new(spec), move |event| drop(tell.send(event)))?;
        let (said, standing) = watch::channel(Standing::Unknown);
        let (notes, troubles) = mpsc::unbounded_channel();
        attach(&pump.handle(), workers);
        let (handle, own) = (pump.handle(), workers.clone());
        let unwritten = Rc::new(Cell::new(0_u64));
        let count = unwritten.clone();
        tasks::spawn(async move {
            let (mut failed, mut told) = (0, Vec::new());
            while let Some(event) = events.recv().await {
                match event {
                    Event::Ready => {
                        failed = 0;
                        said.send_replace(Standing::Ready);
                    }
                    Event::FileDisabled { path, errno } => {
                        let first = *said.borrow() == Standing::Unknown && Some(&path) == dir.as_ref();
                        let path = path.display().to_string();
                        if first {
                            said.send_replace(Standing::Refused(Why::Directory { path, errno }));
                        } else if !told.contains(&errno) {
                            // One full disk is hundreds of files.
                            told.push(errno);
                            let _ = notes.send(Note::LogsDisabled { path, errno });
                        }
                    }
                    Event::Unwritten { bytes } => count.set(count.get().saturating_add(bytes)),
                    Event::WorkerTrouble(trouble) => {
                        failed += 1;
                        // The process thread hears of its end a moment later than the socket.
                        tokio::time::sleep(PAUSE).await;
                        if failed >= TRIES && *said.borrow() == Standing::Unknown {
                            let how = own.ends.last(LOGS);
                            let how = how.map_or_else(|| trouble.to_string(), |kind| kind.to_string());
                            said.send_replace(Standing::Refused(Why::NoWorker(how)));
                        }
                        attach(&handle, &own);
                    }
                }
            }
        });
        Ok(Self { pump, standing, troubles: Cell::new(Some(troubles)), unwritten })
    }

    pub(super) fn handle(&self) -> Handle {
        self.pump.handle()
    }

    /// From now on files that cannot be written are told.
    pub(super) fn tell(&self, teller: &Teller) {
        let (Some(mut troubles), teller) = (self.troubles.take(), teller.clone()) else { return };
        tasks::spawn(async move {
            while let Some(note) = troubles.recv().await {
                teller.note(Who::Agent, note);
            }
        });
    }

    /// Nobody refuses any more: it is told.
    pub(super) fn go_on_without(&self, teller: &Teller, why: Why) {
        match why {
            Why::Directory { path, errno } => teller.note(Who::Agent, Note::LogsDisabled { path, errno }),
            Why::NoWorker(how) => {
                teller.say(&format!("warning: output of the ranks is lost: the logs worker: {how}"))
            }
        }
    }

    /// Whether output can be written. A directory that does not answer in time is no reason to refuse.
    pub(super) async fn usable(&self) -> Result<(), Why> {
        let mut standing = self.standing.clone();
        let known = standing.wait_for(|standing| *standing != Standing::Unknown);
        match tokio::time::timeout(PATIENCE, known).await {
            Ok(Ok(standing)) => match &*standing {
                Standing::Refused(why) => Err(why.clone()),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// How much of the output is in no file, if any is not: for people and events, at the end.
    pub(super) async fn count_lost(&self, teller: &Teller) {
        if self.unwritten.get() > 0 {
            // What is still on its way counts, too.
            let (tell, flushed) = oneshot::channel();
            self.pump.handle().flush(STUCK, move |done| {
                let _ = tell.send(done);
            });
            let _ = tokio::time::timeout(LONGEST, flushed).await;
            teller.note(Who::Agent, Note::LogsLost { bytes: self.unwritten.get() });
        }
    }

    /// What is left is written, as long as somebody takes it. Where no worker ever took anything our own words go
    /// straight to standard error.
    pub(super) async fn finish(&self) {
        let pump = self.pump.handle();
        let patience = if matches!(*self.standing.borrow(), Standing::Refused(Why::NoWorker(_))) {
            Duration::ZERO
        } else {
            STUCK
        };
        let (tell, flushed) = oneshot::channel();
        pump.flush(patience, move |flushed| {
            let _ = tell.send(flushed);
        });
        if let Ok(Ok(flushed)) = tokio::time::timeout(LONGEST, flushed).await
            && flushed.complete
        {
            return;
        }
        let (tell, unsaid) = oneshot::channel();
        pump.unsaid(move |text| drop(tell.send(text)));
        let Ok(Ok(mut text)) = tokio::time::timeout(LAST_WORDS, unsaid).await else { return };
        text.truncate(MOST);
        say_directly(&text);
    }
}

/// Without a worker output is queued, then dropped and counted; ranks go on.
fn attach(pump: &Handle, workers: &Workers) {
    if let Ok(socket) = workers.start(LOGS) {
        pump.attach(OwnedFd::from(socket));
    }
}

/// Never waits longer than [`LAST_WORDS`] for a reader.
fn say_directly(text: &[u8]) {
    // What a pipe that polls as writable takes at once.
    const PIPE_BUF: usize = 4096;
    let end = Instant::now() + LAST_WORDS;
    let stderr = std::io::stderr();
    for part in text.chunks(PIPE_BUF) {
        let mut ready = Vec::new();
        let want = Want { read: false, write: true };
        let left = end.saturating_duration_since(Instant::now());
        let waited = pipes::wait(&[(stderr.as_fd(), want)], Some(left), &mut ready);
        if waited.is_err()
            || !ready.first().is_some_and(|ready| ready.write)
            || (&stderr).write_all(part).is_err()
        {
            return;
        }
    }
}
