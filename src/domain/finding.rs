//! The first question of an agent's life: lead, or follow whom? And its last one: who ends the job?
//!
//! The first node of a launch leads. Every other one waits for a coordinator of this launch; one that waited 10 s for
//! each node before it in vain leads itself, and the exclusive append of the `lead` record decides between two who try.
//! An agent whose guardian says that the coordinator was an earlier life of it leads again.

use std::time::Duration;

use super::ids::{Incarnation, NodeName};
use super::ledger::Ledger;
use super::record::{Body, Ground, Record};
use super::takeover;

/// A node that is silent for so long at the start is passed over.
const PASSED_OVER: Duration = Duration::from_secs(10);
/// Between two looks for a coordinator, at first and at most: many nodes look into one directory.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// How long a run directory that a supervisor made may take to be seen here: attribute caches of file servers.
const SEEN: Duration = Duration::from_secs(10);
/// When a node that waits looks whether the run has finished long ago.
const SECOND_THOUGHT: Duration = Duration::from_secs(2);
/// Between two further looks.
const FURTHER_THOUGHTS: Duration = Duration::from_secs(30);
/// Between two agents that would end the same job.
const CLOSING_TURN: Duration = Duration::from_secs(10);
/// Those further back in the list take the turn of this one.
const LAST_CLOSING_TURN: u32 = 3;

/// An agent that looks for its place.
#[derive(Clone, Debug)]
pub struct Seeker {
    /// Its place in the list of nodes.
    pub index: u32,
    /// The launch that it belongs to.
    pub launch: String,
    /// Earlier lives of it, of which no rank is left.
    pub clean_of: Vec<Incarnation>,
    /// The whole world waits no longer than this for its nodes.
    pub join_timeout: Duration,
}

/// What a journal says to an agent that looks for its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody leads this launch yet.
    Nobody,
    /// Somebody else does: follow.
    Follow,
    /// An earlier life of this agent did: lead again.
    Again,
    /// The launch has ended with this code.
    Ended(u8),
}

impl Seeker {
    /// It leads when nobody else has until then, counted from its start.
    #[must_use]
    pub fn turn(&self) -> Duration {
        PASSED_OVER.saturating_mul(self.index)
    }

    /// A hint may be of an earlier launch, or of another run in the same place.
    #[must_use]
    pub fn is_ours(&self, launch: &str) -> bool {
        !self.launch.is_empty() && launch == self.launch
    }

    /// What a journal means to this agent.
    #[must_use]
    pub fn standing(&self, ledger: &Ledger) -> Standing {
        if !ledger.leader().is_some_and(|(lead, _)| self.is_ours(&lead.launch)) {
            return Standing::Nobody;
        }
        match ledger.end() {
            Some(end) => Standing::Ended(end.code),
            None if self.ground(ledger) == Ground::Returned => Standing::Again,
            None => Standing::Follow,
        }
    }

    /// On what ground it leads: the coordinator of an earlier life of this agent comes back; else this is a launch.
    #[must_use]
    pub fn ground(&self, ledger: &Ledger) -> Ground {
        let own = ledger.leader().is_some_and(|(_, writer)| self.clean_of.contains(&writer.incarnation));
        if own { Ground::Returned } else { Ground::First }
    }

    /// A run directory that somebody else made is still looked for.
    #[must_use]
    pub fn looks_on(waited: Duration) -> bool {
        waited < SEEN
    }

    /// A run directory that does not answer is waited for: an agent that gave up would be missed when it answers again.
    /// At the very start it is more likely something that never answers, and somebody looks on.
    #[must_use]
    pub fn outwaits(&self, waited: Duration) -> bool {
        let known = !self.launch.is_empty() || !self.clean_of.is_empty();
        known && waited < self.join_timeout
    }

    /// A node that waits looks so often whether there is anything to wait for.
    #[must_use]
    pub fn thoughts(waited: Duration) -> u32 {
        let later = waited.as_secs() / FURTHER_THOUGHTS.as_secs();
        u32::from(waited >= SECOND_THOUGHT).saturating_add(u32::try_from(later).unwrap_or(u32::MAX))
    }

    /// A run that another job holds has not been taken over by those before this node: it will not be.
    #[must_use]
    pub fn is_left_alone(waited: Duration) -> bool {
        waited > takeover::CLEANING.saturating_add(FURTHER_THOUGHTS)
    }

    /// Until the next look, after `before`.
    #[must_use]
    pub fn pause(before: Option<Duration>) -> Duration {
        before.map_or(LOOK.0, |before| before.saturating_mul(2).min(LOOK.1))
    }
}

/// After so long it is this node's turn to end a job that nobody ends: one after the other, in order, and the first that
/// can is enough.
#[must_use]
pub fn closing_turn(index: u32) -> Duration {
    CLOSING_TURN.saturating_mul(index.saturating_sub(1).min(LAST_CLOSING_TURN))
}

/// Nobody leads the run on without `node`: of the records that it has not read none goes on elsewhere. A node that was
/// merely cut off must not end what others train.
#[must_use]
pub fn is_abandoned<'a>(unread: impl IntoIterator<Item = &'a Record>, node: &NodeName) -> bool {
    unread.into_iter().all(|record| match &record.body {
        Body::Attempt(world) => world.members.iter().any(|m| m.node == *node) || world.spares.contains(node),
        Body::Membership(change) => change.voters.contains(node),
        Body::Incident(_) => true,
        _ => false,
    })
}

#[cfg(test)]
#[path = "finding_tests.rs"]
mod tests;
