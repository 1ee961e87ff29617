//! Seeded bugs. Each undoes one rule; the simulator must catch every one. Without the feature `mutants`
//! (that is, in the launcher) [`Mutants::has`] is always false and costs nothing.

/// A rule that can be switched off, to prove that the simulator would notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// The node counts its grant from the receipt of the acknowledgement, not from the send of its beat.
    GrantFromReceipt,
    /// The coordinator starts an attempt before its record is written.
    ActBeforeWritten,
    /// Messages of an older term, attempt or incarnation are acted on.
    AcceptStale,
    /// An append of unknown outcome is repeated with other bytes under the same number.
    NewBytesSameSeq,
    /// Rendezvous gives one slot to two nodes.
    SlotTwice,
    /// A coordinator that slept declares nodes lost at once.
    NoPauseGuard,
    /// The coordinator counts its own vote without a message.
    CoordinatorCountsItself,
    /// An attempt starts before the grant of a node that it leaves out is surely over.
    StartBeforeGrantOver,
    /// A restart is charged once for each rank that failed.
    ChargeTwice,
    /// An append of unknown outcome is taken for failed and its record is forgotten.
    ForgetUnknownAppend,
    /// A rank that lost its peer with a node is blamed in the verdict all the same.
    BlameVictim,
    /// A world opens with fewer nodes than the least.
    BelowMin,
    /// Who comes while a smaller world runs is taken in at once.
    GrowAtOnce,
    /// The first world does not wait for more than the least.
    NoLastCall,
    /// Nodes are taken out however many were lately.
    NoBreaker,
    /// A node that was taken out has a place in the next world all the same.
    EvictedReturns,
    /// A run is ended by a budget although it makes progress.
    StopDespiteProgress,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::GrantFromReceipt,
        Self::ActBeforeWritten,
        Self::AcceptStale,
        Self::NewBytesSameSeq,
        Self::SlotTwice,
        Self::NoPauseGuard,
        Self::CoordinatorCountsItself,
        Self::StartBeforeGrantOver,
        Self::ChargeTwice,
        Self::ForgetUnknownAppend,
        Self::BlameVictim,
        Self::BelowMin,
        Self::GrowAtOnce,
        Self::NoLastCall,
        Self::NoBreaker,
        Self::EvictedReturns,
        Self::StopDespiteProgress,
    ];

    /// Its name on the simulator's command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GrantFromReceipt => "grant-from-receipt",
            Self::ActBeforeWritten => "act-before-written",
            Self::AcceptStale => "accept-stale",
            Self::NewBytesSameSeq => "new-bytes-same-seq",
            Self::SlotTwice => "slot-twice",
            Self::NoPauseGuard => "no-pause-guard",
            Self::CoordinatorCountsItself => "coordinator-counts-itself",
            Self::StartBeforeGrantOver => "start-before-grant-over",
            Self::ChargeTwice => "charge-twice",
            Self::ForgetUnknownAppend => "forget-unknown-append",
            Self::BlameVictim => "blame-victim",
            Self::BelowMin => "below-min",
            Self::GrowAtOnce => "grow-at-once",
            Self::NoLastCall => "no-last-call",
            Self::NoBreaker => "no-breaker",
            Self::EvictedReturns => "evicted-returns",
            Self::StopDespiteProgress => "stop-despite-progress",
        }
    }
}

/// Which rule is switched off, if any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants(#[cfg(feature = "mutants")] Option<Mutant>);

impl Mutants {
    /// Every rule holds.
    pub const NONE: Self = Self(
        #[cfg(feature = "mutants")]
        None,
    );

    /// One rule is switched off.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn only(mutant: Mutant) -> Self {
        Self(Some(mutant))
    }

    /// Whether this rule is switched off.
    #[inline]
    #[must_use]
    pub fn has(self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        return self.0 == Some(mutant);
        #[cfg(not(feature = "mutants"))]
        {
            let _ = mutant;
            false
        }
    }
}
