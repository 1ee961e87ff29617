//! The line to the store worker: one question at a time, each with a deadline; a worker that does not answer is killed,
//! and another one is asked.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::domain::ids::Op;
use crate::slurm::children::{Child, Children};
use crate::store::client::Client;
use crate::store::hint::Hint;
use crate::store::layout::{OpenOptions, Opened};
use crate::store::protocol::{Request, Response};
use crate::sys::memexec::Image;
use crate::sys::spawn::{SpawnRequest, Stdin};

/// A worker that says nothing for so long is killed.
const PATIENCE: Duration = Duration::from_secs(5);
/// So many workers are asked the same.
const TRIES: u32 = 3;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(200);
const SOCKET: i32 = 3;
const IMAGE: i32 = 7;
const SIGKILL: i32 = 9;
/// HUP, INT, QUIT, USR1, USR2, TERM: a worker ends when its supervisor does.
const IGNORED: [i32; 6] = [1, 2, 3, 10, 12, 15];

/// The run directory cannot be used: a sentence and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) sentence: String,
    pub(super) hint: String,
}

/// How workers are started.
pub(super) struct Recipe {
    pub(super) children: Children,
    pub(super) image: Image,
    pub(super) env: Vec<(String, String)>,
}

struct Worker {
    client: Client,
    child: Child,
}

/// Asks the store.
pub(super) struct Files {
    recipe: Recipe,
    worker: Option<Worker>,
    op: u64,
}

impl Files {
    pub(super) fn new(recipe: Recipe) -> Self {
        Self { recipe, worker: None, op: 0 }
    }

    /// Opens the run directory.
    pub(super) async fn open(&mut self, options: &OpenOptions) -> Result<Box<Opened>, Refusal> {
        let ask = |op| Request::Open { op, options: options.clone(), faults: None };
        match self.ask(ask).await? {
            Response::Opened { opened, .. } => Ok(opened),
            other => Err(refused(other)),
        }
    }

    /// Gives a run directory another name.
    pub(super) async fn set_aside(&mut self, dir: &Path) -> Result<PathBuf, Refusal> {
        match self.ask(|op| Request::SetAside { op, dir: dir.to_owned() }).await? {
            Response::Aside { path, .. } => Ok(path),
            other => Err(refused(other)),
        }
    }

    /// Leaves a word in the run directory that is open; is it the first time? What fails is asked of another worker,
    /// which opens the directory anew.
    pub(super) async fn claim(&mut self, options: &OpenOptions, word: &str) -> Result<bool, Refusal> {
        for _ in 0..TRIES {
            if self.worker.is_none() {
                self.open(options).await?;
            }
            let op = self.next();
            match self.ask_once(Request::Claim { op, word: word.to_owned() }).await {
                Ok(Response::Proves { yes, .. }) => return Ok(yes),
                Ok(other) => return Err(refused(other)),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
        Err(Refusal { sentence: "the run directory does not answer".into(), hint: String::new() })
    }

    /// Who leads, says the run directory; none also where it does not answer.
    pub(super) async fn hint(&mut self, dir: &Path) -> Option<Hint> {
        let op = self.next();
        match self.ask_once(Request::Hint { op, dir: dir.to_owned() }).await {
            Ok(Response::Hint { hint, .. }) => hint,
            _ => None,
        }
    }

    fn next(&mut self) -> Op {
        self.op += 1;
        Op(self.op)
    }

    async fn ask(&mut self, request: impl Fn(Op) -> Request) -> Result<Response, Refusal> {
        let mut last = String::new();
        for _ in 0..TRIES {
            let op = self.next();
            match self.ask_once(request(op)).await {
                Ok(answer) => return Ok(answer),
                Err(why) => last = why,
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Refusal {
            sentence: last,
            hint: "look at it from a shell, or choose another place with --run-dir".into(),
        })
    }

    /// The answer of one worker, or why there is none. A worker that was left in the middle of a question is of no use
    /// any more: it is taken out before, and put back after.
    async fn ask_once(&mut self, request: Request) -> Result<Response, String> {
        let op = request.op();
        let mut worker = match self.worker.take() {
            Some(worker) => worker,
            None => self.start().map_err(|error| format!("the store worker cannot be started: {error}"))?,
        };
        let mut question = Unanswered(Some(&mut worker.child));
        if let Err(error) = worker.client.send(request) {
            return Err(format!("the store worker does not listen: {error}"));
        }
        loop {
            let late = worker.client.late_at().map_or_else(Instant::now, Instant::from_std);
            match tokio::time::timeout_at(late, worker.client.recv()).await {
                Ok(Ok(answer)) if answer.ends() == Some(op) => {
                    question.0 = None;
                    drop(question);
                    self.worker = Some(worker);
                    return Ok(answer);
                }
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(format!("the store worker has ended: {error}")),
                Err(_) => {
                    return Err(format!("the run directory does not answer for {} s", PATIENCE.as_secs()));
                }
            }
        }
    }

    fn start(&self) -> io::Result<Worker> {
        let (ours, theirs) = UnixStream::pair()?;
        let image = self.recipe.image.fd().try_clone_to_owned()?;
        let request = SpawnRequest {
            argv: vec![format!("/proc/self/fd/{IMAGE}").into(), "__worker".into(), "store".into()],
            env: self.recipe.env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            cwd: PathBuf::from("/"),
            stdin: Stdin::Null,
            inherit: vec![(SOCKET, theirs.as_fd().try_clone_to_owned()?), (IMAGE, image)],
            death_signal: Some(SIGKILL),
            ignore: IGNORED.to_vec(),
            ..SpawnRequest::default()
        };
        let child = self
            .recipe
            .children
            .start(&request)
            .map_err(|error| io::Error::from_raw_os_error(error.errno))?;
        Ok(Worker { client: Client::new(ours, PATIENCE)?, child })
    }
}

/// Kills the worker of a question that is given up, or whose asker is dropped.
struct Unanswered<'a>(Option<&'a mut Child>);

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            child.abandon();
        }
    }
}

fn refused(answer: Response) -> Refusal {
    match answer {
        Response::Refused { sentence, hint, .. } => Refusal { sentence, hint },
        Response::Failed { text, .. } => Refusal { sentence: text, hint: String::new() },
        _ => Refusal { sentence: "the store worker answers something else".into(), hint: String::new() },
    }
}
