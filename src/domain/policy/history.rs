//! What a run remembers of its failures: part of the ledger, changed by records alone, so that it survives a
//! coordinator and a requeue.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::ids::{NodeName, Rank, Slot};
use super::super::record::{Break, Evict, Resume};
use super::progress::{self, Progress, Reached};

/// So many failures are remembered.
const REMEMBERED: usize = 3;
/// So many evictions and swaps are remembered.
const MOST: usize = 256;

/// One failure that counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where it was.
    pub node: NodeName,
    /// The slot of that node.
    pub slot: Option<Slot>,
    /// Who failed first.
    pub rank: Rank,
    /// What the root cause is known by; see [`super::root`].
    pub root: String,
    /// The client's step at which it was.
    pub step: Option<u64>,
}

/// A node that was taken out because ranks failed there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swap {
    /// The node.
    pub node: NodeName,
    /// Its slot.
    pub slot: Slot,
    /// What failed there.
    pub root: String,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The furthest step that a client of any attempt has told.
    pub best: Option<u64>,
    /// The newest generation that any attempt left.
    pub generation: Option<Resume>,
    /// An attempt made a step, whoever told it.
    pub stepped: bool,
    /// Attempts in a row that made no progress.
    pub without: u32,
    /// Those in a row of which it is unknown.
    pub unknown: u32,
    /// Attempts in a row without known progress that ended before their first step or soon after.
    pub early: u32,
    /// Failures since there was progress last.
    pub at_point: u32,
    /// The newest failures, the newest last.
    pub failures: Vec<Failure>,
    /// When nodes were taken out by inference, unix milliseconds.
    pub inferred: Vec<(u64, NodeName)>,
    /// Which nodes were taken out because ranks failed there.
    pub swaps: Vec<Swap>,
    /// Failures that followed their slot: no node is taken out for them any more.
    pub followed: BTreeSet<String>,
}

impl History {
    /// A world broke, and it counts.
    pub fn failed(&mut self, broke: &Break) {
        let now = progress::of(self, &broke.reached);
        let counts = self.with(now, broke.ran_ms, &broke.reached);
        (self.without, self.unknown, self.early) = (counts.without, counts.unknown, counts.early);
        self.at_point = if now == Progress::Made { 1 } else { self.at_point.saturating_add(1) };
        self.saw(&broke.reached, broke.ran_ms);
        if let Some(first) = &broke.first_failure {
            self.failures.push(Failure {
                node: first.node.clone(),
                slot: broke.slot,
                rank: first.rank,
                root: super::root(first, &broke.verdict),
                step: broke.reached.at_step(),
            });
            let extra = self.failures.len().saturating_sub(REMEMBERED);
            self.failures.drain(..extra);
        }
        if let Some(root) = &broke.followed {
            self.followed.insert(root.clone());
        }
    }

    /// How far an attempt came, whether or not its end counts.
    pub fn saw(&mut self, reached: &Reached, ran_ms: u64) {
        self.stepped |= reached.most.is_some() || ran_ms >= super::stop::LONG_MS;
        if reached.is_client() {
            self.best = self.best.max(reached.most);
        }
        self.generation = self.generation.max(reached.generation);
    }

    /// The three counts with one more attempt.
    #[must_use]
    pub fn with(&self, made: Progress, ran_ms: u64, reached: &Reached) -> Counts {
        let early = progress::is_early(ran_ms, reached);
        match made {
            Progress::Made => Counts::default(),
            none_or_unknown => Counts {
                without: self.without.saturating_add(u32::from(none_or_unknown == Progress::None)),
                unknown: self.unknown.saturating_add(u32::from(none_or_unknown == Progress::Unknown)),
                early: if early { self.early.saturating_add(1) } else { 0 },
            },
        }
    }

    /// A node was taken out or given back.
    pub fn evicted(&mut self, evict: &Evict, wall_ms: u64) {
        if evict.back {
            self.inferred.retain(|(_, node)| *node != evict.node);
            self.swaps.retain(|swap| swap.node != evict.node);
            return;
        }
        if evict.inferred {
            self.inferred.push((wall_ms, evict.node.clone()));
        }
        if let (Some(slot), false) = (evict.slot, evict.root.is_empty()) {
            self.swaps.push(Swap { node: evict.node.clone(), slot, root: evict.root.clone() });
        }
        let extra = |len: usize| len.saturating_sub(MOST);
        self.inferred.drain(..extra(self.inferred.len()));
        self.swaps.drain(..extra(self.swaps.len()));
    }

    /// The run is launched anew by a person: what failed before is history, which nodes were bad is not.
    pub fn launched(&mut self) {
        let (inferred, swaps) = (std::mem::take(&mut self.inferred), std::mem::take(&mut self.swaps));
        *self = Self { inferred, swaps, ..Self::default() };
    }
}

/// Attempts in a row, by what is known of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Without progress.
    pub without: u32,
    /// Of which it is unknown.
    pub unknown: u32,
    /// That ended early.
    pub early: u32,
}
