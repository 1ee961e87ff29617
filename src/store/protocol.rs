//! What the agent and its store worker say to each other. Every request is answered once under its `op`,
//! except that an append may be answered by any number of [`Response::Trouble`] before it ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::faults::FaultPlan;
use super::hint::Hint;
use super::layout::{OpenOptions, Opened};
use crate::domain::append::TroubleKind;
use crate::domain::ids::{Op, Seq, StoreId};
use crate::domain::record::Record;

/// Agent to worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Open the run directory; the first request of a life.
    Open {
        /// Comes back with the answer.
        op: Op,
        /// What and how.
        options: OpenOptions,
        /// What a test wants to go wrong.
        faults: Option<FaultPlan>,
    },
    /// Work in a run directory that an earlier life of the worker opened. Never fails: what is wrong shows as
    /// trouble of the appends.
    Reopen {
        /// Comes back with the answer.
        op: Op,
        /// The directory.
        dir: PathBuf,
        /// The id that it must have.
        store: StoreId,
    },
    /// Who leads? Needs no open directory.
    Hint {
        /// Comes back with the answer.
        op: Op,
        /// The run directory.
        dir: PathBuf,
    },
    /// Make this file among the probes, exclusively.
    Probe {
        /// Comes back with the answer.
        op: Op,
        /// Its name.
        name: String,
    },
    /// Give the run directory another name. An open one is closed by it.
    SetAside {
        /// Comes back with the answer.
        op: Op,
        /// The directory.
        dir: PathBuf,
    },
    /// Put this record under its number and never other bytes. One at a time; more are queued.
    Append {
        /// Comes back with the answer.
        op: Op,
        /// The record.
        record: Box<Record>,
        /// An earlier life of the worker may have tried: read first.
        again: bool,
    },
    /// What lies under this number?
    Read {
        /// Comes back with the answer.
        op: Op,
        /// The number.
        seq: Seq,
    },
    /// Write a file below the run directory, all or nothing.
    WriteFile {
        /// Comes back with the answer.
        op: Op,
        /// Relative: `incidents/0003/why.json`, `result.json`.
        path: String,
        /// Its bytes.
        bytes: Vec<u8>,
        /// It must survive a power loss.
        durable: bool,
    },
    /// The newest `status.json`; of several that wait only the last is written.
    Status {
        /// Comes back with the answer.
        op: Op,
        /// Its bytes.
        bytes: Vec<u8>,
    },
    /// Lines for `events.jsonl`, without newlines.
    Events {
        /// Comes back with the answer.
        op: Op,
        /// The lines.
        lines: Vec<String>,
    },
    /// Write a store proof.
    WriteNonce {
        /// Comes back with the answer.
        op: Op,
    },
    /// Leave this word beside the store proofs; is it the first time?
    Claim {
        /// Comes back with the answer.
        op: Op,
        /// The word: a plain name.
        word: String,
    },
    /// Can this store proof be read here?
    ReadNonce {
        /// Comes back with the answer.
        op: Op,
        /// The word that another node has just written.
        word: String,
    },
    /// Finish what waits, except an append that does not end, and go.
    Shutdown {
        /// Comes back with the answer.
        op: Op,
    },
}

impl Request {
    /// The number that comes back with the answer.
    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::Open { op, .. }
            | Self::Reopen { op, .. }
            | Self::Hint { op, .. }
            | Self::Probe { op, .. }
            | Self::SetAside { op, .. }
            | Self::Append { op, .. }
            | Self::Read { op, .. }
            | Self::WriteFile { op, .. }
            | Self::Status { op, .. }
            | Self::Events { op, .. }
            | Self::Claim { op, .. }
            | Self::WriteNonce { op }
            | Self::ReadNonce { op, .. }
            | Self::Shutdown { op } => *op,
        }
    }
}

/// What lies under a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadIs {
    /// A record.
    Record(Box<Record>),
    /// Nothing.
    Absent,
    /// Something that is no record; why.
    Unreadable(String),
}

/// How an append ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// Ours is under the number, durably.
    Written,
    /// This one is.
    Lost(Box<Record>),
}

/// Worker to agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// Records of an open that did not fit into one frame; [`Response::Opened`] follows. The client joins
    /// them.
    Records(Vec<Record>),
    /// To [`Request::Open`].
    Opened {
        /// Whose answer.
        op: Op,
        /// What is there.
        opened: Box<Opened>,
    },
    /// To [`Request::Open`] and [`Request::SetAside`].
    Refused {
        /// Whose answer.
        op: Op,
        /// One sentence.
        sentence: String,
        /// What to do about it.
        hint: String,
        /// There is no run directory, and this caller must not make it.
        missing: bool,
    },
    /// To [`Request::Probe`]: made here, or it was there.
    Probed {
        /// Whose answer.
        op: Op,
        /// It was made here.
        won: bool,
    },
    /// To [`Request::Hint`].
    Hint {
        /// Whose answer.
        op: Op,
        /// What the file says; none when there is none.
        hint: Option<Hint>,
    },
    /// To [`Request::SetAside`]: the new name.
    Aside {
        /// Whose answer.
        op: Op,
        /// Where it lies now.
        path: PathBuf,
    },
    /// To [`Request::Append`].
    Appended {
        /// Whose answer.
        op: Op,
        /// How it ended.
        ended: Ended,
    },
    /// An append goes on, but not well.
    Trouble {
        /// Which.
        op: Op,
        /// What is wrong.
        kind: TroubleKind,
        /// The same for people, with path and error number.
        text: String,
        /// For how long, in milliseconds.
        since_ms: u64,
    },
    /// To [`Request::Read`].
    ReadIs {
        /// Whose answer.
        op: Op,
        /// What is there.
        is: ReadIs,
    },
    /// To [`Request::WriteNonce`].
    Nonce {
        /// Whose answer.
        op: Op,
        /// The word to show to the others.
        word: String,
    },
    /// To [`Request::ReadNonce`] and [`Request::Claim`].
    Proves {
        /// Whose answer.
        op: Op,
        /// It was readable; nobody had left the word before.
        yes: bool,
    },
    /// To every other request: done.
    Done {
        /// Whose answer.
        op: Op,
    },
    /// To every other request and to reads: it was tried once and failed.
    Failed {
        /// Whose answer.
        op: Op,
        /// What is wrong.
        kind: TroubleKind,
        /// The same for people.
        text: String,
    },
}

impl Response {
    /// The request that this is the last word to; none for what comes before a last word.
    #[must_use]
    pub fn ends(&self) -> Option<Op> {
        match self {
            Self::Records(_) | Self::Trouble { .. } => None,
            Self::Opened { op, .. }
            | Self::Refused { op, .. }
            | Self::Hint { op, .. }
            | Self::Probed { op, .. }
            | Self::Aside { op, .. }
            | Self::Appended { op, .. }
            | Self::ReadIs { op, .. }
            | Self::Nonce { op, .. }
            | Self::Proves { op, .. }
            | Self::Done { op }
            | Self::Failed { op, .. } => Some(*op),
        }
    }
}
