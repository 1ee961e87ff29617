//! The heartbeat board: one page of memory for each rank, into which the rank writes and which its agent reads.
//!
//! What stands in a page is a stranger's word: every value is read by itself, no order between words is assumed, and
//! changes are dated by the reader's clock.

mod page;

use serde::{Deserialize, Serialize};

pub use page::{PAGE_BYTES, blank, read};

/// What a rank is doing, by its own word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before the first step.
    #[default]
    Init,
    /// It waits for data.
    Data,
    /// The forward pass.
    Forward,
    /// The backward pass; collectives of gradients run here.
    Backward,
    /// The optimizer.
    Optimizer,
    /// It saves.
    Checkpoint,
    /// It evaluates.
    Eval,
    /// A step, and nothing is known of its parts.
    Step,
}

/// Who feeds a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Feeder {
    /// The hooks on torch's optimizers: counts start at 0 in every attempt, and are no progress.
    Hook,
    /// The program itself.
    Client,
}

/// A section that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Its name, at most 32 bytes, made printable.
    pub name: String,
    /// The time that it was given, in milliseconds; none: that of its phase.
    pub timeout_ms: Option<u64>,
    /// Changes whenever it is entered anew.
    pub entry: u64,
}

/// What a rank asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Take my node out.
    Evict {
        /// Why, made printable.
        reason: String,
    },
    /// End the run.
    Stop {
        /// Why, made printable.
        reason: String,
    },
}

/// One look at a page that somebody has claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The process that owns it: the rank itself or one below it.
    pub pid: u32,
    /// Who feeds it.
    pub feeder: Feeder,
    /// The step that is under way; none before the first.
    pub step: Option<u64>,
    /// What it does.
    pub phase: Phase,
    /// Changes with every beat.
    pub beat: u64,
    /// The sections that are open, outermost first.
    pub sections: Vec<Section>,
    /// So many milliseconds were asked for beyond the limits, since the last beat.
    pub extend_ms: u64,
    /// The collectives of the program give up after so many milliseconds, where it says so.
    pub collective_timeout_ms: Option<u64>,
    /// The signal on which its interpreter writes the stacks of its threads, where it is registered.
    pub stack_signal: Option<u8>,
    /// What it asks for.
    pub request: Option<Request>,
}
