//! Child processes that nobody waits for in vain: their ends are seen through process descriptors (or, without, by
//! looking), and every command that is to answer has a deadline.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use crate::domain::exit::ExitKind;
use crate::sys::capability::Capabilities;
use crate::sys::ready::Ready;
use crate::sys::spawn::{self, SpawnError, SpawnRequest, Starting};
use crate::sys::tree::{self, Owned};
use crate::sys::wait::{self, Waited};
use crate::sys::{pidfd, process, procfs};

const SIGKILL: i32 = 9;
/// Between two looks at a child without a descriptor.
const LOOK: Duration = Duration::from_millis(50);
/// What a command prints is read up to here.
const MOST_OUTPUT: u64 = 8 << 20;

/// Starts children and reaps what loses its parent below us.
#[derive(Clone, Debug)]
pub struct Children {
    caps: Capabilities,
    /// Those whose status somebody waits for, and those that were here before us.
    owned: Rc<RefCell<Owned>>,
}

/// Why a command gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It could not be started.
    #[error("{program}: {source}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        source: SpawnError,
    },
    /// A pipe failed.
    #[error("{program}: {source}")]
    Pipe {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It took too long and was killed.
    #[error("{program} has not answered for {} s", after.as_secs())]
    Late {
        /// Its name.
        program: String,
        /// After so long.
        after: Duration,
    },
    /// It says that it failed.
    #[error("{program} failed: {words}")]
    Failed {
        /// Its name.
        program: String,
        /// Its last line.
        words: String,
    },
}

/// A child of ours.
#[derive(Debug)]
pub struct Child {
    pid: i32,
    pidfd: Option<Ready>,
    starting: Option<(Starting, Option<Ready>)>,
    owned: Rc<RefCell<Owned>>,
    reaped: bool,
}

impl Children {
    /// Becomes the reaper of everything below. Children that are here already stay their own.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn new(caps: Capabilities) -> io::Result<Self> {
        let inherited: Owned = procfs::children(process::own_pid(), caps)?.into_iter().collect();
        process::become_subreaper()?;
        Ok(Self { caps, owned: Rc::new(RefCell::new(inherited)) })
    }

    /// Starts a child. Whether its program runs is told by [`Child::started`].
    ///
    /// # Errors
    /// What kept it from being forked.
    pub fn start(&self, request: &SpawnRequest) -> Result<Child, SpawnError> {
        let (record, starting) = spawn::begin(request, self.caps)?;
        self.owned.borrow_mut().add(record.pid);
        // Without a place in the event loop its end is looked for every now and then.
        let pidfd = record.pidfd.and_then(|fd| Ready::new(fd).ok());
        let news = starting.as_fd().try_clone_to_owned().and_then(Ready::new).ok();
        let starting = Some((starting, news));
        Ok(Child { pid: record.pid, pidfd, starting, owned: self.owned.clone(), reaped: false })
    }

    /// Reaps what ended below us and belongs to nobody.
    pub fn reap_orphans(&self) {
        // What cannot be listed now is listed next time.
        drop(tree::reap_orphans(&self.owned.borrow(), self.caps));
    }

    /// Runs a command to its end and gives what it printed on standard output.
    ///
    /// # Errors
    /// It could not be started, did not answer in time, or failed.
    pub async fn ask(
        &self,
        words: &[&str],
        env: &[(OsString, OsString)],
        within: Duration,
    ) -> Result<String, CommandError> {
        let program = words.first().copied().unwrap_or_default().to_owned();
        let piped = |source| CommandError::Pipe { program: program.clone(), source };
        let started = |source| CommandError::Start { program: program.clone(), source };
        let (sender, mut stdout) = pipe::pipe().map_err(piped)?;
        let (error_sender, mut stderr) = pipe::pipe().map_err(piped)?;
        let request = SpawnRequest {
            argv: words.iter().map(OsString::from).collect(),
            env: env.to_vec(),
            cwd: PathBuf::from("/"),
            stdout: Some(sender.into_blocking_fd().map_err(piped)?),
            stderr: Some(error_sender.into_blocking_fd().map_err(piped)?),
            session: true,
            ..SpawnRequest::default()
        };
        let mut child = self.start(&request).map_err(started)?;
        // Our copies of the writing ends: without them the pipes end with the command.
        drop(request);
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let answer = async {
            child.started().await.map_err(started)?;
            let mut limited = (&mut stdout).take(MOST_OUTPUT);
            let mut words = (&mut stderr).take(64 << 10);
            let (a, b) = tokio::join!(limited.read_to_end(&mut out), words.read_to_end(&mut err));
            a.and(b).map_err(piped)?;
            Ok(child.ended().await)
        };
        match tokio::time::timeout(within, answer).await {
            Err(_) => {
                child.abandon();
                Err(CommandError::Late { program, after: within })
            }
            Ok(Err(error)) => {
                child.abandon();
                Err(error)
            }
            Ok(Ok(kind)) if kind.is_success() => Ok(String::from_utf8_lossy(&out).into_owned()),
            Ok(Ok(kind)) => {
                let text = String::from_utf8_lossy(&err);
                let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
                Err(CommandError::Failed {
                    program,
                    words: last.map_or_else(|| kind.to_string(), str::to_owned),
                })
            }
        }
    }
}

impl Child {
    /// Its number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until its program runs. May be dropped at any time.
    ///
    /// # Errors
    /// It does not: the child has ended by then, or is about to.
    pub async fn started(&mut self) -> Result<(), SpawnError> {
        let Some((starting, news)) = &mut self.starting else { return Ok(()) };
        let outcome = loop {
            if let Some(outcome) = starting.outcome() {
                break outcome;
            }
            look(news.as_ref()).await;
        };
        self.starting = None;
        outcome
    }

    /// Waits for its end. May be dropped at any time.
    pub async fn ended(&mut self) -> ExitKind {
        loop {
            match wait::reap(self.pid) {
                Waited::Running => {}
                Waited::Ended(kind) => {
                    self.forget();
                    return kind;
                }
                Waited::NotOurs => {
                    self.forget();
                    return ExitKind::Lost;
                }
            }
            look(self.pidfd.as_ref()).await;
        }
    }

    /// Sends it a signal; to one that has ended there is none.
    pub fn signal(&self, signal: i32) {
        if !self.reaped {
            // Until it is reaped its number is nobody else's.
            drop(match &self.pidfd {
                Some(fd) => pidfd::send(fd.as_fd(), signal),
                None => process::kill(self.pid, signal),
            });
        }
    }

    /// Kills it, and does not wait: one that is stuck in the kernel is reaped whenever it is.
    pub fn abandon(&mut self) {
        self.signal(SIGKILL);
        if matches!(wait::reap(self.pid), Waited::Running) && !self.reaped {
            self.owned.borrow_mut().remove(self.pid);
        } else {
            self.forget();
        }
    }

    fn forget(&mut self) {
        self.reaped = true;
        self.owned.borrow_mut().remove(self.pid);
    }
}

/// Until there may be something new to see; without a descriptor, until it is worth a look.
async fn look(news: Option<&Ready>) {
    match news {
        Some(news) if news.news().await.is_ok() => {}
        _ => tokio::time::sleep(LOOK).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(what: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
    }

    fn env() -> Vec<(OsString, OsString)> {
        vec![("PATH".into(), std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))]
    }

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_command_answers() {
        run(async {
            let children = Children::new(Capabilities::probe()).unwrap();
            let answer = children.ask(&["sh", "-c", "echo one; echo two >&2"], &env(), SOON).await;
            assert_eq!(answer.unwrap(), "one\n");
            let failed = children.ask(&["sh", "-c", "echo so it is >&2; exit 3"], &env(), SOON).await;
            assert_eq!(failed.unwrap_err().to_string(), "sh failed: so it is");
            let gone = children.ask(&["no-such-command"], &env(), SOON).await.unwrap_err().to_string();
            assert!(gone.starts_with("no-such-command: "), "{gone}");
        });
    }

    #[test]
    fn without_process_descriptors_too() {
        run(async {
            let children = Children::new(Capabilities::forced("all")).unwrap();
            assert_eq!(children.ask(&["echo", "one"], &env(), SOON).await.unwrap(), "one\n");
        });
    }

    #[test]
    fn one_that_does_not_answer_is_killed() {
        run(async {
            let children = Children::new(Capabilities::probe()).unwrap();
            let late = children.ask(&["sleep", "1000"], &env(), Duration::from_millis(50)).await;
            assert_eq!(late.unwrap_err().to_string(), "sleep has not answered for 0 s");
        });
    }
}
