//! File calls through one hand, so that a test can make the k-th of a kind fail, last or kill.

use std::io;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::IoTrouble;
use crate::sys::files;

/// A kind of file call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// Making a directory.
    Mkdir,
    /// Creating or opening a file.
    Open,
    /// Writing.
    Write,
    /// Making a file's bytes durable.
    Fsync,
    /// Giving a file its final name, exclusively.
    Link,
    /// Counting a file's names.
    Stat,
    /// Making a directory's names durable.
    FsyncDir,
    /// Taking a name away.
    Unlink,
    /// Giving a file its final name.
    Rename,
    /// Reading a whole file.
    Read,
}

impl Call {
    const COUNT: usize = 10;

    /// How people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mkdir => "mkdir",
            Self::Open => "open",
            Self::Write => "write",
            Self::Fsync => "fsync",
            Self::Link => "link",
            Self::Stat => "stat",
            Self::FsyncDir => "fsync of the directory",
            Self::Unlink => "unlink",
            Self::Rename => "rename",
            Self::Read => "read",
        }
    }
}

/// What happens instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// This error number, and nothing is done.
    Fail(i32),
    /// It is done, then this error number.
    FailAfter(i32),
    /// It lasts so many milliseconds longer.
    Slow(u64),
    /// The process dies before it.
    DieBefore,
    /// The process dies after it.
    DieAfter,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Which calls are counted.
    pub call: Call,
    /// The first one that is hit, from 0.
    pub from: u32,
    /// How many are hit.
    pub times: u32,
    /// What happens.
    pub what: What,
}

/// What a test wants to go wrong; empty in earnest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultPlan(pub Vec<Fault>);

/// Does every file call of the store.
#[derive(Debug, Default)]
pub struct Hands {
    plan: FaultPlan,
    counts: [u32; Call::COUNT],
}

impl Hands {
    /// Hands for this plan.
    #[must_use]
    pub fn new(plan: FaultPlan) -> Self {
        Self { plan, counts: [0; Call::COUNT] }
    }

    /// Does one call; an error gets the call's name and the path.
    pub fn call<T>(
        &mut self,
        call: Call,
        path: &Path,
        does: impl FnOnce() -> io::Result<T>,
    ) -> Result<T, IoTrouble> {
        let count = &mut self.counts[call as usize];
        let nth = *count;
        *count = nth.saturating_add(1);
        let hit = self
            .plan
            .0
            .iter()
            .find(|f| f.call == call && nth >= f.from && nth - f.from < f.times)
            .map(|f| f.what);
        let result = match hit {
            None => does(),
            Some(What::Fail(errno)) => Err(files::error_of(errno)),
            Some(What::FailAfter(errno)) => does().and_then(|_| Err(files::error_of(errno))),
            Some(What::Slow(ms)) => {
                std::thread::sleep(Duration::from_millis(ms));
                does()
            }
            Some(What::DieBefore) => files::die_now(),
            Some(What::DieAfter) => {
                let _ = does();
                files::die_now()
            }
        };
        result.map_err(|e| IoTrouble::new(call.name(), path, e))
    }
}
