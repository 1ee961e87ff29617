//! One child that the process thread owns.

use std::os::fd::{AsFd, BorrowedFd};

use crate::domain::exit::ExitKind;
use crate::sys::capability::Capabilities;
use crate::sys::spawn::{self, SpawnError, SpawnRequest, StartRecord, Starting};
use crate::sys::wait::{self, Waited};
use crate::sys::{pidfd, process};

#[derive(Debug)]
pub(super) struct Child {
    record: StartRecord,
    starting: Option<Starting>,
    ended: bool,
    session: bool,
}

/// What is new about a child.
#[derive(Debug)]
pub(super) enum Step {
    Started,
    Failed(SpawnError),
    Ended(ExitKind),
}

impl Child {
    /// Forks; the start itself is told by [`step`](Self::step).
    pub(super) fn begin(request: &SpawnRequest, caps: Capabilities) -> Result<Self, SpawnError> {
        let (record, starting) = spawn::begin(request, caps)?;
        Ok(Self { record, starting: Some(starting), ended: false, session: request.session })
    }

    pub(super) fn pid(&self) -> i32 {
        self.record.pid
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// What to poll: the start's report, and the end.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let end = self.record.pidfd.as_ref().filter(|_| !self.ended);
        self.starting.as_ref().map(AsFd::as_fd).into_iter().chain(end.map(AsFd::as_fd))
    }

    /// The next thing that happened, in order; `None` when nothing more did. The zombie stays.
    pub(super) fn step(&mut self) -> Option<Step> {
        if let Some(starting) = &mut self.starting {
            let outcome = match starting.outcome() {
                Some(outcome) => outcome,
                None if wait::peek(self.record.pid) == Waited::Running => return None,
                // It ended without a word: killed on its way.
                None => Ok(()),
            };
            self.starting = None;
            return Some(outcome.map_or_else(Step::Failed, |()| Step::Started));
        }
        if self.ended {
            return None;
        }
        let kind = match wait::peek(self.record.pid) {
            Waited::Running => return None,
            Waited::Ended(kind) => kind,
            Waited::NotOurs => ExitKind::Lost,
        };
        self.ended = true;
        Some(Step::Ended(kind))
    }

    /// Its first process; nobody once that has ended.
    pub(super) fn signal_leader(&self, signal: i32) {
        if self.ended {
            return;
        }
        // Either way it is not reaped, so the number is its own.
        let _ = match &self.record.pidfd {
            Some(fd) => pidfd::send(fd.as_fd(), signal),
            None => process::kill(self.record.pid, signal),
        };
    }

    /// Its whole group; the unreaped first process keeps the number from meaning another one.
    pub(super) fn signal_group(&self, signal: i32) {
        // Just forked it may not lead its group yet: then there is no such group.
        if !self.session || process::kill_group(self.record.pid, signal).is_err() {
            self.signal_leader(signal);
        }
    }

    /// The first process's zombie goes, and with it the hold on the group's number.
    pub(super) fn reap(&self) {
        let _ = wait::reap(self.record.pid);
    }
}
