//! What the agent asks, and what the worker answers.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::domain::ids::{LocalRank, Op};
use crate::domain::liveness::evidence::{ProcessFacts, Stack};
use crate::domain::liveness::flight::Recorder;

/// One rank to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Which.
    pub local_rank: LocalRank,
    /// Its first process.
    pub pid: u32,
    /// Who owns its page, by the page's word.
    pub owner: Option<u32>,
    /// The signal on which its interpreter writes its stacks, by the page's word.
    pub signal: Option<u8>,
    /// The file into which it writes them.
    pub file: Option<PathBuf>,
    /// Its flight recorder.
    pub recorder: Option<Recorder>,
}

/// Look at these ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Comes back with the answer.
    pub op: Op,
    /// The ranks.
    pub ranks: Vec<Target>,
    /// Between the two looks at a rank lie at least so many milliseconds.
    pub between_ms: u64,
    /// `PATH`, for `py-spy`.
    pub path: String,
}

/// What was found, those that could be looked at in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// Whose answer.
    pub op: Op,
    /// One a rank, in the order of the question.
    pub ranks: Vec<Found>,
}

/// What was found out about one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Which.
    pub local_rank: LocalRank,
    /// The first look.
    pub before: ProcessFacts,
    /// The second one.
    pub after: ProcessFacts,
    /// Between the two, in milliseconds.
    pub between_ms: u64,
    /// Its stack.
    pub stack: Option<Stack>,
    /// Where its flight recorder writes; empty: nobody could ask it.
    pub flight_recorder: String,
}
