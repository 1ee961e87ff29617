//! What the agent asks its probe worker, and what it answers: one answer a question, in order.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

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
