//! What is collected of one rank when the program does not advance.

use serde::{Deserialize, Serialize};

use super::super::board::Sample;
use super::super::ids::LocalRank;

/// From where a stack was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Seen {
    /// Its interpreter wrote it.
    Inside,
    /// Another program read it out of the process.
    Outside,
    /// The kernel's side of it.
    Kernel,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// As the interpreter has it; empty for the kernel's.
    pub file: String,
    /// 0 if it is not known.
    pub line: u32,
    /// The function.
    pub function: String,
}

/// The stack of the thread that matters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// From where.
    pub seen: Seen,
    /// The innermost first, at most 64.
    pub frames: Vec<Frame>,
    /// All threads as they were written, at most 8 KiB.
    pub text: String,
}

/// What the kernel says of a process. What cannot be read is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFacts {
    /// The process.
    pub pid: u32,
    /// `R S D T t Z`; none: there is no such process.
    pub state: Option<char>,
    /// What its main thread waits for in the kernel.
    pub wchan: String,
    /// The file that it waits for input from, where it does: a terminal has a person before it.
    pub reads: String,
    /// A debugger holds it.
    pub traced: bool,
    /// CPU time of it and of everything below it, in milliseconds.
    pub cpu_ms: u64,
    /// Bytes that it and everything below it read and wrote.
    pub io_bytes: u64,
    /// Threads of it.
    pub threads: u32,
}

/// What is known of one rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankEvidence {
    /// Which one.
    pub local_rank: LocalRank,
    /// Its page; none: nobody has claimed it.
    pub sample: Option<Sample>,
    /// Since its page last changed, in milliseconds; only time that the agent itself ran counts.
    pub silent_ms: u64,
    /// The first look.
    pub before: ProcessFacts,
    /// The second one.
    pub after: ProcessFacts,
    /// Between the two, in milliseconds.
    pub between_ms: u64,
    /// Its stack, where one could be had.
    pub stack: Option<Stack>,
    /// What its flight recorder wrote, `path`; empty: none was asked for.
    pub flight_recorder: String,
}

impl ProcessFacts {
    /// It waits for a person.
    #[must_use]
    pub fn reads_terminal(&self) -> bool {
        ["/dev/pts/", "/dev/tty", "/dev/console"].iter().any(|place| self.reads.starts_with(place))
    }
}
