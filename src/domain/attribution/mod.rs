//! Whose fault is it? What ranks, kernels and devices said becomes a verdict with an owner, a culprit and reasons.

pub mod engine;
pub mod evidence;
pub mod fingerprint;
pub mod judge;
pub mod rules;

use serde::{Deserialize, Serialize};

use super::ids::{NodeName, Rank};

/// Who has to do something about a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The program, its configuration or its data.
    User,
    /// A device or a host.
    Hardware,
    /// The fabric, or name resolution.
    Network,
    /// A file system.
    Storage,
    /// Not enough memory on a host.
    Memory,
    /// Somebody wanted the resources back.
    Preemption,
    /// relight, Slurm or the container.
    Launcher,
    /// Nobody can tell.
    #[default]
    Unknown,
}

impl Owner {
    /// One word, for people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Hardware => "hardware",
            Self::Network => "network",
            Self::Storage => "storage",
            Self::Memory => "memory",
            Self::Preemption => "preemption",
            Self::Launcher => "launcher",
            Self::Unknown => "unknown",
        }
    }
}

/// How much a verdict is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// A guess: may restart, never evicts.
    #[default]
    Low,
    /// Evidence points there.
    Medium,
    /// A decisive fact.
    High,
}

/// What an incident was, as far as it can be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whose it is.
    pub owner: Owner,
    /// In a few words: `CUDA error 700`, `out of memory`, `hang`.
    pub cause: String,
    /// The ranks that caused it, each with its node; empty where a node or nobody is to blame.
    pub culprits: Vec<(Rank, NodeName)>,
    /// Nodes that are the cause as a whole.
    pub nodes: Vec<NodeName>,
    /// How sure.
    pub confidence: Confidence,
    /// Decisive evidence against hardware of `nodes`.
    pub hardware: bool,
    /// The same program would fail again: a fault of the program that another try cannot mend.
    pub deterministic: bool,
    /// Bad state could explain it: a checkpoint that does not load, a checksum, NaN.
    pub bad_state: bool,
    /// What the root cause is known by: class, kind of error, innermost frame of the user, normalised message. Two
    /// failures of the same cause have the same; empty: unknown.
    pub fingerprint: String,
    /// What it happened to, apart from the cause: a checkpoint, a sample, a device.
    pub entity: Option<String>,
    /// Why, for people: one sentence each, the most telling first.
    pub reasons: Vec<String>,
}

impl Verdict {
    /// Cause and owner in a few words: `out of memory: the cgroup's limit of 512 MB; owner memory`. Empty where nothing is
    /// known.
    #[must_use]
    pub fn sentence(&self) -> String {
        match (self.cause.as_str(), self.owner) {
            ("", Owner::Unknown) => String::new(),
            ("", owner) => format!("owner {}", owner.word()),
            (cause, Owner::Unknown) => cause.to_owned(),
            (cause, owner) => format!("{cause}; owner {}", owner.word()),
        }
    }
}

#[cfg(test)]
mod tests;
