//! A failure soon after a restore first changes what is restored: another copy, then an older generation.
//!
//! Only failures that bad state can explain count: a checkpoint that does not load, a checksum, NaN. Losses, signals and
//! preemption never do.

use serde::{Deserialize, Serialize};

use super::Broken;
use super::progress;

/// So few steps after a restore are soon.
const SOON_STEPS: u64 = 20;

/// What a world was restored from, as far as anybody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restore {
    /// It was restored at all.
    pub restored: bool,
    /// Other copies of the same generation that were not tried.
    pub copies: u32,
    /// Older generations that were not tried.
    pub older: u32,
}

/// Where the next attempt restores from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Another copy of the same generation.
    OtherCopy,
    /// The generation before.
    Older,
}

impl Source {
    /// What that means, for people.
    #[must_use]
    pub fn sentence(self) -> String {
        match self {
            Self::OtherCopy => "it failed soon after a restore: another copy is tried first".to_owned(),
            Self::Older => "it failed soon after a restore: an older checkpoint is tried first".to_owned(),
        }
    }
}

/// The change that comes before anybody is blamed.
#[must_use]
pub fn change(broken: &Broken<'_>) -> Option<Source> {
    let reached = &broken.reached;
    let few = match (reached.first, reached.most) {
        (Some(first), Some(most)) => most.saturating_sub(first) <= SOON_STEPS,
        _ => true,
    };
    let soon = few && progress::is_early(broken.ran_ms, reached);
    if !(broken.restore.restored && broken.found.bad_state && soon) {
        return None;
    }
    match broken.restore {
        Restore { copies: 1.., .. } => Some(Source::OtherCopy),
        Restore { older: 1.., .. } => Some(Source::Older),
        Restore { .. } => None,
    }
}
