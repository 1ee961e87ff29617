//! The line to the store worker: a task that owns its client, kills a late worker and carries on with a new
//! one where the old one left off.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::workers::{STORE, Workers};
use crate::domain::coordinator::{Appended, Event};
use crate::domain::exit::ExitKind;
use crate::domain::ids::Op;
use crate::domain::record::Record;
use crate::domain::time::human;
use crate::store::client::{Client, MAX_UNANSWERED};
use crate::store::hint::Hint;
use crate::store::layout::{OpenOptions, Opened};
use crate::store::protocol::{Ended, Request, Response};

/// A worker that owes an answer and says nothing for so long is killed and started anew.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests that nobody waits for are dropped beyond this, so that appends always have room.
const ROOM: usize = MAX_UNANSWERED - 32;
/// Between two starts of a worker that does not stay.
const RESTART_PAUSE: Duration = Duration::from_millis(200);
/// So many workers in a row that do not open the run directory are enough.
const OPEN_TRIES: u32 = 3;
/// Between two tries of an append that could not be begun.
const AGAIN: Duration = Duration::from_secs(1);
/// Event lines are gathered for so long.
const GATHER: Duration = Duration::from_millis(20);

/// Why the run directory cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) sentence: String,
    pub(crate) hint: String,
    pub(crate) kind: Unusable,
}

/// In which way it cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// There is none, and this node must not make it.
    Missing,
    /// It does not answer.
    Silent,
    /// Something is wrong with it.
    Refused,
}

enum Job {
    Open(Box<OpenOptions>, oneshot::Sender<Result<Box<Opened>, Refusal>>),
    SetAside(std::path::PathBuf, oneshot::Sender<Result<std::path::PathBuf, Refusal>>),
    Hint(std::path::PathBuf, oneshot::Sender<Option<Hint>>),
    Probe(String, oneshot::Sender<Option<bool>>),
    Append(Op, Box<Record>),
    Write(String, Vec<u8>),
    Status(Vec<u8>),
    Finish(oneshot::Sender<()>),
}

/// The near end; cheap to clone. Nothing here waits.
#[derive(Clone)]
pub(crate) struct StoreLine {
    jobs: mpsc::UnboundedSender<Job>,
    events: Rc<RefCell<Vec<String>>>,
    wake: Rc<tokio::sync::Notify>,
}

/// Event lines that wait for the worker at most.
const MAX_LINES: usize = 10_000;

impl StoreLine {
    /// Opens the run directory.
    pub(crate) async fn open(&self, options: OpenOptions) -> Result<Box<Opened>, Refusal> {
        let (tell, answer) = oneshot::channel();
        let _ = self.jobs.send(Job::Open(Box::new(options), tell));
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Gives the run directory another name.
    pub(crate) async fn set_aside(&self, dir: std::path::PathBuf) -> Result<std::path::PathBuf, Refusal> {
        let (tell, answer) = oneshot::channel();
        let _ = self.jobs.send(Job::SetAside(dir, tell));
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Whether this node could make this file among the probes; none: nobody can say.
    pub(crate) async fn probe(&self, name: String) -> Option<bool> {
        let (tell, answer) = oneshot::channel();
        let _ = self.jobs.send(Job::Probe(name, tell));
        answer.await.ok()?
    }

    /// Who leads, as the run directory says; none also when it does not answer in time.
    pub(crate) async fn hint(&self, dir: std::path::PathBuf) -> Option<Hint> {
        let (tell, answer) = oneshot::channel();
        let _ = self.jobs.send(Job::Hint(dir, tell));
        tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()?
    }

    /// Appends a record; the answer is an event of the coordinator.
    pub(crate) fn append(&self, op: Op, record: Box<Record>) {
        let _ = self.jobs.send(Job::Append(op, record));
    }

    /// Writes a file of the run directory.
    pub(crate) fn write(&self, path: String, bytes: Vec<u8>) {
        let _ = self.jobs.send(Job::Write(path, bytes));
    }

    /// Writes the newest status.
    pub(crate) fn status(&self, bytes: Vec<u8>) {
        let _ = self.jobs.send(Job::Status(bytes));
    }

    /// Writes an event line, with others, soon.
    pub(crate) fn event(&self, line: String) {
        let mut lines = self.events.borrow_mut();
        if lines.len() < MAX_LINES {
            lines.push(line);
        }
        self.wake.notify_one();
    }

    /// Resolves when everything that was asked is answered, but for an append that does not end.
    pub(crate) async fn finish(&self) {
        let (tell, answer) = oneshot::channel();
        let _ = self.jobs.send(Job::Finish(tell));
        let _ = answer.await;
    }
}

fn gone() -> Refusal {
    Refusal {
        sentence: "the store worker cannot be started".into(),
        hint: "look at the limits of this node".into(),
        kind: Unusable::Refused,
    }
}

/// The far end: runs as a task.
pub(crate) struct StoreTask {
    client: Client,
    workers: Rc<Workers>,
    jobs: mpsc::UnboundedReceiver<Job>,
    events: Rc<RefCell<Vec<String>>>,
    wake: Rc<tokio::sync::Notify>,
    /// Where answers to appends go, once there is a coordinator.
    coordinator: Rc<RefCell<Option<mpsc::UnboundedSender<Event>>>>,
    appends: BTreeMap<Op, Box<Record>>,
    /// Those that the worker could not even begin, and when they are asked for again.
    refused: VecDeque<(Instant, Op)>,
    open: Option<oneshot::Sender<Result<Box<Opened>, Refusal>>>,
    aside: Option<oneshot::Sender<Result<std::path::PathBuf, Refusal>>>,
    hint: Option<oneshot::Sender<Option<Hint>>>,
    probes: BTreeMap<Op, oneshot::Sender<Option<bool>>>,
    finish: Option<oneshot::Sender<()>>,
    is_open: bool,
    next_op: u64,
    started: Instant,
    /// Workers that were started anew since the run directory was to be opened.
    opening: u32,
    /// Since when it is to be opened.
    asked: Instant,
}

/// Starts the worker and gives both ends. `coordinator` may be filled later.
pub(crate) fn start(
    workers: Rc<Workers>,
    coordinator: Rc<RefCell<Option<mpsc::UnboundedSender<Event>>>>,
) -> std::io::Result<(StoreLine, StoreTask)> {
    let client = Client::new(workers.start(STORE)?, PATIENCE)?;
    let (sender, jobs) = mpsc::unbounded_channel();
    let (events, wake) = (Rc::new(RefCell::new(Vec::new())), Rc::new(tokio::sync::Notify::new()));
    let line = StoreLine { jobs: sender, events: events.clone(), wake: wake.clone() };
    let task = StoreTask {
        client,
        workers,
        jobs,
        events,
        wake,
        coordinator,
        appends: BTreeMap::new(),
        refused: VecDeque::new(),
        open: None,
        aside: None,
        hint: None,
        probes: BTreeMap::new(),
        finish: None,
        is_open: false,
        // Below are the coordinator's own numbers.
        next_op: 1 << 40,
        started: Instant::now(),
        opening: 0,
        asked: Instant::now(),
    };
    Ok((line, task))
}

impl StoreTask {
    pub(crate) async fn run(mut self) {
        let mut flush_at: Option<Instant> = None;
        loop {
            let late = self.client.late_at().map_or_else(far, Instant::from_std);
            tokio::select! {
                biased;
                response = self.client.recv() => match response {
                    Ok(response) => self.answer(response),
                    Err(_) => self.replace().await,
                },
                job = self.jobs.recv() => match job {
                    Some(job) => self.take(job),
                    None => return,
                },
                () = sleep_until(late) => {
                    self.trouble("the store worker does not answer");
                    self.replace().await;
                }
                () = self.wake.notified(), if flush_at.is_none() => flush_at = Some(Instant::now() + GATHER),
                () = sleep_until(self.refused.front().map_or_else(far, |(at, _)| *at)) => self.repeat(),
                () = sleep_until(flush_at.unwrap_or_else(far)), if flush_at.is_some() => {
                    flush_at = None;
                    self.flush_events();
                }
            }
            self.finish_if_done();
        }
    }

    /// Asks once more for an append that was refused: its bytes stay the same.
    fn repeat(&mut self) {
        let Some((_, op)) = self.refused.pop_front() else { return };
        if let Some(record) = self.appends.get(&op).cloned() {
            self.ask(Request::Append { op, record, again: true });
        }
    }

    fn op(&mut self) -> Op {
        self.next_op += 1;
        Op(self.next_op)
    }

    fn take(&mut self, job: Job) {
        let op = self.op();
        match job {
            Job::Open(options, tell) => {
                self.open = Some(tell);
                (self.opening, self.asked) = (0, Instant::now());
                self.ask(Request::Open { op, options: *options, faults: None });
            }
            Job::SetAside(dir, tell) => {
                self.aside = Some(tell);
                (self.opening, self.asked) = (0, Instant::now());
                self.is_open = false;
                self.ask(Request::SetAside { op, dir });
            }
            Job::Hint(dir, tell) => {
                // One is asked for at a time; who asked before hears nothing.
                self.hint = Some(tell);
                self.ask(Request::Hint { op, dir });
            }
            Job::Probe(name, tell) => {
                self.probes.insert(op, tell);
                self.ask(Request::Probe { op, name });
            }
            Job::Append(op, record) => {
                self.appends.insert(op, record.clone());
                self.ask(Request::Append { op, record, again: false });
            }
            Job::Write(path, bytes) => {
                self.ask_if_room(Request::WriteFile { op, path, bytes, durable: false })
            }
            Job::Status(bytes) => self.ask_if_room(Request::Status { op, bytes }),
            Job::Finish(tell) => {
                self.flush_events();
                self.finish = Some(tell);
            }
        }
    }

    fn ask(&mut self, request: Request) {
        // Full or too long: what waits for the answer sees a store that does not answer.
        if self.client.send(request).is_err() {
            self.trouble("the store worker has too much to do");
        }
    }

    fn ask_if_room(&mut self, request: Request) {
        if self.is_open && self.client.owed() < ROOM {
            self.ask(request);
        }
    }

    fn flush_events(&mut self) {
        if !self.is_open {
            return;
        }
        let lines = std::mem::take(&mut *self.events.borrow_mut());
        if !lines.is_empty() {
            let op = self.op();
            self.ask_if_room(Request::Events { op, lines });
        }
    }

    fn answer(&mut self, response: Response) {
        match response {
            Response::Opened { opened, .. } => {
                self.is_open = true;
                self.flush_events();
                self.tell_open(Ok(opened));
            }
            Response::Refused { sentence, hint, missing, .. } => {
                let kind = if missing { Unusable::Missing } else { Unusable::Refused };
                let refusal = Refusal { sentence, hint, kind };
                match self.aside.take() {
                    Some(tell) => drop(tell.send(Err(refusal))),
                    None => self.tell_open(Err(refusal)),
                }
            }
            Response::Probed { op, won } => {
                if let Some(tell) = self.probes.remove(&op) {
                    let _ = tell.send(Some(won));
                }
            }
            Response::Hint { hint, .. } => {
                if let Some(tell) = self.hint.take() {
                    let _ = tell.send(hint);
                }
            }
            Response::Aside { path, .. } => {
                if let Some(tell) = self.aside.take() {
                    let _ = tell.send(Ok(path));
                }
            }
            Response::Appended { op, ended } => {
                self.appends.remove(&op);
                let outcome = match ended {
                    Ended::Written => Appended::Written,
                    Ended::Lost(other) => Appended::Lost(other),
                };
                self.tell(Event::Appended { op, outcome });
            }
            Response::Trouble { text, .. } => self.trouble(&text),
            Response::Failed { op, text, .. } => {
                drop(self.probes.remove(&op));
                if self.appends.contains_key(&op) {
                    // Not even begun: no other answer comes.
                    self.trouble(&text);
                    self.refused.push_back((Instant::now() + AGAIN, op));
                }
            }
            Response::Records(_)
            | Response::ReadIs { .. }
            | Response::Nonce { .. }
            | Response::Proves { .. }
            | Response::Done { .. } => {}
        }
    }

    fn tell_open(&mut self, result: Result<Box<Opened>, Refusal>) {
        if let Some(tell) = self.open.take() {
            let _ = tell.send(result);
        }
    }

    fn tell(&self, event: Event) {
        if let Some(coordinator) = &*self.coordinator.borrow() {
            let _ = coordinator.send(event);
        }
    }

    fn trouble(&self, text: &str) {
        if !self.appends.is_empty() {
            self.tell(Event::StoreTrouble { text: text.to_owned() });
        }
    }

    /// The worker is gone, late, or talks nonsense.
    async fn replace(&mut self) {
        let age = self.started.elapsed();
        if age < RESTART_PAUSE {
            tokio::time::sleep(RESTART_PAUSE - age).await;
        }
        self.started = Instant::now();
        self.give_up_opening();
        tracing::warn!(target: "relight::store", owed = self.client.owed(), "the store worker is started anew");
        let replaced = self.workers.start(STORE).map(|stream| self.client.replace(stream));
        if !matches!(replaced, Ok(Ok(()))) {
            self.trouble("the store worker cannot be started");
        }
    }

    /// Whoever waits for the run directory is told when it stays silent.
    fn give_up_opening(&mut self) {
        if self.open.is_none() && self.aside.is_none() {
            return;
        }
        self.opening += 1;
        if self.opening >= OPEN_TRIES {
            let refusal = || silent(self.workers.ends.last(STORE), self.asked.elapsed());
            if let Some(tell) = self.aside.take() {
                let _ = tell.send(Err(refusal()));
            }
            self.tell_open(Err(refusal()));
        }
    }

    fn finish_if_done(&mut self) {
        if self.finish.is_some()
            && self.client.owed() <= self.appends.len()
            && let Some(tell) = self.finish.take()
        {
            let _ = tell.send(());
        }
    }
}

/// Why nobody opens the run directory: a worker that we killed for its silence leaves no end, any other one does.
fn silent(end: Option<ExitKind>, after: Duration) -> Refusal {
    let (kind, sentence, hint) = match end {
        Some(how) => (
            Unusable::Refused,
            format!("the store worker: {how}"),
            "look at the limits of this node (ulimit -a)",
        ),
        None => (
            Unusable::Silent,
            format!(
                "the run directory does not answer for {}: a file server that hangs, or something in it that is no file",
                human(after)
            ),
            "look at it from a shell, or choose another place with --run-dir",
        ),
    };
    Refusal { sentence, hint: hint.into(), kind }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_start_a_worker_is_not_told_of_a_file_server() {
        let refused = ExitKind::NeverStarted { errno: 11, what: "fork (processes: limit 5)".into() };
        let refusal = silent(Some(refused), Duration::from_millis(600));
        assert_eq!(refusal.sentence, "the store worker: could not start: fork (processes: limit 5): EAGAIN");
        assert!(refusal.hint.contains("ulimit"));
        let refusal = silent(None, Duration::from_secs(15));
        assert!(refusal.sentence.contains("does not answer for 15 s"), "{}", refusal.sentence);
    }
}
