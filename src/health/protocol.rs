//! What the agent asks its probe worker, and what it answers: one answer a question, in order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::Plan;
use crate::domain::error_file::ErrorNote;
use crate::domain::health::CheckResult;
use crate::domain::ids::Op;

/// Agent to worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// How much room is where these paths lie?
    Space {
        /// Comes back with the answer.
        op: Op,
        /// The paths.
        paths: Vec<PathBuf>,
    },
    /// What do these error files of ranks say?
    ErrorFiles {
        /// Comes back with the answer.
        op: Op,
        /// The files.
        paths: Vec<PathBuf>,
        /// One that was changed last before this, unix milliseconds, is of an earlier run.
        not_before_ms: u64,
    },
    /// Write this file in the place of what it held.
    Leave {
        /// Comes back with the answer.
        op: Op,
        /// The file.
        path: PathBuf,
        /// What it is to hold.
        text: String,
    },
    /// How is this node?
    Checks {
        /// Comes back with the answer.
        op: Op,
        /// What is to be looked at.
        plan: Plan,
    },
}

/// Worker to agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Response {
    /// To [`Request::Space`], path by path.
    Space {
        /// Whose answer.
        op: Op,
        /// One row a path.
        rows: Vec<SpaceRow>,
    },
    /// To [`Request::ErrorFiles`], path by path; none where there is no file that can be read.
    ErrorFiles {
        /// Whose answer.
        op: Op,
        /// One a path.
        notes: Vec<Option<ErrorNote>>,
    },
    /// To [`Request::Leave`].
    Left {
        /// Whose answer.
        op: Op,
        /// It was written.
        done: bool,
    },
    /// To [`Request::Checks`], check by check; what did not answer is unknown.
    Checks {
        /// Whose answer.
        op: Op,
        /// What was found.
        results: Vec<CheckResult>,
    },
}

impl Request {
    /// Whose question.
    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::Space { op, .. }
            | Self::ErrorFiles { op, .. }
            | Self::Leave { op, .. }
            | Self::Checks { op, .. } => *op,
        }
    }
}

impl Response {
    /// Whose answer.
    #[must_use]
    pub fn op(&self) -> Op {
        match self {
            Self::Space { op, .. }
            | Self::ErrorFiles { op, .. }
            | Self::Left { op, .. }
            | Self::Checks { op, .. } => *op,
        }
    }
}

/// Room on the file system of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceRow {
    /// The path.
    pub path: PathBuf,
    /// Bytes that we may still write there, or where the nearest directory above it lies; none if that could
    /// not be told.
    pub free_bytes: Option<u64>,
}
