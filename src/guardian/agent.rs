//! One agent as the guardian holds it: how it is started, its socket, and what it has not been told yet.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use super::fds;
use crate::domain::guardian::{Start, ToAgent, ToGuardian};
use crate::ipc::guardian::{Heard, Socket, encode};
use crate::sys::capability::Capabilities;
use crate::sys::memexec::Image;
use crate::sys::page::Page;
use crate::sys::process;
use crate::sys::seqpacket::Sent;
use crate::sys::spawn::{self, Nofile, SpawnError, SpawnRequest, StartRecord, Starting, Stdin};
use numbers::{CONT, IGNORED};

/// Words kept for an agent that does not read; a stopped one may read them later.
const BACKLOG: usize = 64;

/// Signal numbers on every architecture that relight is built for.
mod numbers {
    /// Wakes a stopped process: the agent must see that its guardian is gone, whatever state it is in.
    pub(super) const CONT: i32 = 18;
    /// HUP, INT, QUIT, USR1, USR2, TERM: a terminal and Slurm send them to the agent too, perhaps before it catches
    /// them; what they mean comes through the guardian.
    pub(super) const IGNORED: [i32; 6] = [1, 2, 3, 10, 12, 15];
}

/// How every agent is started.
pub(super) struct Recipe {
    pub(super) image: Image,
    pub(super) args: Vec<OsString>,
    pub(super) env: Vec<(OsString, OsString)>,
    pub(super) cwd: PathBuf,
    pub(super) nofile: Option<Nofile>,
}

/// What every agent inherits.
pub(super) struct Shared<'a> {
    pub(super) config: &'a OwnedFd,
    pub(super) page: &'a Page,
    pub(super) lock: Option<BorrowedFd<'a>>,
}

/// A started agent.
pub(super) struct Agent {
    record: StartRecord,
    /// Until its program runs.
    starting: Option<Starting>,
    /// `None` once the agent closed its end.
    socket: Option<Socket>,
    backlog: VecDeque<Vec<u8>>,
}

impl Agent {
    /// Forks one and sends it its first message.
    pub(super) fn fork(
        recipe: &Recipe,
        shared: &Shared<'_>,
        start: Start,
        caps: Capabilities,
    ) -> Result<Self, SpawnError> {
        let refused = |what: &str, error: &io::Error| {
            let errno = error.raw_os_error().unwrap_or(0);
            SpawnError { errno, what: spawn::explain(what, errno) }
        };
        let (ours, theirs) = Socket::pair().map_err(|e| refused("socket for the agent", &e))?;
        let copy =
            |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map_err(|e| refused("descriptor for the agent", &e));
        let mut inherit = vec![
            (fds::CONFIG, copy(shared.config.as_fd())?),
            (fds::SOCKET, theirs.into_fd()),
            (fds::PAGE, copy(shared.page.fd())?),
            (fds::IMAGE, copy(recipe.image.fd())?),
        ];
        if let Some(lock) = shared.lock {
            inherit.push((fds::LOCK, copy(lock)?));
        }
        let program = OsString::from(format!("/proc/self/fd/{}", fds::IMAGE));
        let request = SpawnRequest {
            argv: std::iter::once(program).chain(recipe.args.iter().cloned()).collect(),
            env: recipe.env.clone(),
            cwd: recipe.cwd.clone(),
            stdin: Stdin::Inherit,
            inherit,
            death_signal: Some(CONT),
            ignore: IGNORED.to_vec(),
            nofile: recipe.nofile,
            ..SpawnRequest::default()
        };
        let (record, starting) = spawn::begin(&request, caps)?;
        let mut agent =
            Self { record, starting: Some(starting), socket: Some(ours), backlog: VecDeque::new() };
        agent.tell(&ToAgent::Start(start));
        Ok(agent)
    }

    pub(super) fn pid(&self) -> i32 {
        self.record.pid
    }

    /// Readable when it has ended, where there are pidfds.
    pub(super) fn ended(&self) -> Option<BorrowedFd<'_>> {
        self.record.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Readable when it is known whether its program runs; `None` when that is known.
    pub(super) fn starting(&self) -> Option<BorrowedFd<'_>> {
        self.starting.as_ref().map(AsFd::as_fd)
    }

    /// Whether its program runs, once, when it is known.
    pub(super) fn outcome(&mut self) -> Option<Result<(), SpawnError>> {
        let outcome = self.starting.as_mut()?.outcome()?;
        self.starting = None;
        Some(outcome)
    }

    /// Its socket, and whether something waits to be sent.
    pub(super) fn socket(&self) -> Option<(BorrowedFd<'_>, bool)> {
        self.socket.as_ref().map(|socket| (socket.as_fd(), !self.backlog.is_empty()))
    }

    /// Tells it something, now or when it reads again.
    pub(super) fn tell(&mut self, word: &ToAgent) {
        // A packet that cannot be made cannot be told either; every word here is far below the limit.
        if let Ok(packet) = encode(word) {
            if self.backlog.len() == BACKLOG {
                self.backlog.pop_front();
            }
            self.backlog.push_back(packet);
            self.flush();
        }
        if matches!(word, ToAgent::Signal(signal) if signal.is_stop() || i32::from(signal.no) == CONT) {
            // Who continues the guardian means the agent too, which may be stopped and cannot read. And nobody stops
            // a run who is not heard.
            let _ = process::kill(self.record.pid, CONT);
        }
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        let Some(socket) = &self.socket else { return self.backlog.clear() };
        while let Some(packet) = self.backlog.front() {
            match socket.send_packet(packet) {
                Sent::Full => return,
                Sent::Done | Sent::TooLong => drop(self.backlog.pop_front()),
                // What it said before is still there to be read: the reader closes, not the writer.
                Sent::Closed => return self.backlog.clear(),
            }
        }
    }

    /// Everything it said since the last call.
    pub(super) fn words(&mut self) -> Vec<ToGuardian> {
        let mut words = Vec::new();
        while let Some(socket) = &mut self.socket {
            match socket.receive() {
                Heard::Message(word) => words.push(word),
                Heard::Unreadable(_) => {}
                Heard::Nothing => break,
                Heard::Closed => self.socket = None,
            }
        }
        words
    }
}
