//! Identities. Each is a newtype, so that a rank is never taken for a local rank, nor a term for an attempt.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The number after this one.
            #[must_use]
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! text {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// Wraps a text.
            pub fn new(text: impl Into<String>) -> Self {
                Self(text.into())
            }

            /// The text itself.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

text!(
    /// The run: survives attempts, terms and requeues. Names the run directory.
    RunId
);
text!(
    /// The random id in `run.json`: proves that two nodes read one directory.
    StoreId
);

/// `SLURMD_NODENAME`, else the host name; never an address. Held by thousands of lists: clones share the text.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct NodeName(#[serde(serialize_with = "text")] Arc<str>);

fn text<S: Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

impl NodeName {
    /// Wraps a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self::from(text.into())
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for NodeName {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl PartialEq for NodeName {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for NodeName {}

impl Hash for NodeName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialOrd for NodeName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for NodeName {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

number!(
    /// Number of a journal record, from 0.
    Seq(u64)
);
number!(
    /// Count of `lead` records, 0-based. Fences control.
    Term(u64)
);
number!(
    /// Count of `attempt` records, 0-based, opened or never started. Fences ranks, stores, generations.
    /// Exported as `TORCHELASTIC_RESTART_COUNT`.
    Attempt(u64)
);
number!(
    /// Stable logical place of a node in the world: a spare takes the slot of the node it replaces.
    Slot(u32)
);
number!(
    /// Dense index over occupied slots (`GROUP_RANK`).
    GroupRank(u32)
);
number!(
    /// Global rank.
    Rank(u32)
);
number!(
    /// Rank within its node.
    LocalRank(u32)
);
number!(
    /// Ties an effect to the event that tells its outcome; an unknown one is dropped.
    Op(u64)
);

/// One life of one agent process: random, compared only for equality. Which one is current is what the
/// coordinator admitted last, never the larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
