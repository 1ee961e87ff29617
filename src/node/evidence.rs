//! The line to the worker that looks at ranks which do not advance: a fresh one for every look, and given up when late.

use std::ffi::OsString;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;

use super::probe::ask;
use super::workers::{STACKS, Workers};
use crate::agent::processes::Command;
use crate::domain::env;
use crate::domain::ids::Op;
use crate::stacks::protocol::{Found, Request, Response, Target};
use crate::stacks::worker::LIMIT;
use crate::sys::facts;

/// Beyond what the worker allows itself: its start, and a loaded machine.
const BEYOND: Duration = Duration::from_millis(700);

/// Looks; cheap to clone. One look at a time: another one ends the one before.
#[derive(Clone)]
pub(crate) struct Evidence {
    workers: Rc<Workers>,
    /// `PATH` of the ranks.
    path: String,
}

impl Evidence {
    /// `base` is what ranks inherit.
    pub(crate) fn new(workers: Rc<Workers>, base: &[(OsString, OsString)]) -> Self {
        let path = base.iter().rev().find(|(name, _)| name == env::PATH.name);
        let path = path.map(|(_, value)| value.to_string_lossy().into_owned()).unwrap_or_default();
        Self { workers, path }
    }

    /// What can be found out about these ranks within [`LIMIT`], in their order. Of a rank that could not be looked at in
    /// time there is at least its state.
    pub(crate) async fn collect(&self, ranks: Vec<Target>, between: Duration) -> Vec<Found> {
        let between_ms = u64::try_from(between.as_millis()).unwrap_or(u64::MAX);
        let request = Request { op: Op(1), ranks: ranks.clone(), between_ms, path: self.path.clone() };
        let response = match self.start() {
            Some(mut socket) => timeout(LIMIT + BEYOND, ask(&mut socket, &request)).await.ok().flatten(),
            None => None,
        };
        // It may hang in the kernel: nobody waits for its end.
        self.workers.processes.send(Command::KillWorker { id: STACKS });
        let mut found = response.map(|response: Response| response.ranks).unwrap_or_default();
        let all = ranks.iter().map(|target| {
            match found.iter().position(|found| found.local_rank == target.local_rank) {
                Some(at) => found.swap_remove(at),
                None => state_of(target),
            }
        });
        all.collect()
    }

    fn start(&self) -> Option<UnixStream> {
        let socket = self.workers.start(STACKS).ok()?;
        socket.set_nonblocking(true).ok()?;
        UnixStream::from_std(socket).ok()
    }
}

/// What the agent may read by itself: nothing in it can wait.
fn state_of(target: &Target) -> Found {
    let facts = facts::glance(i32::try_from(target.pid).unwrap_or(0));
    Found { local_rank: target.local_rank, before: facts.clone(), after: facts, ..Found::default() }
}
