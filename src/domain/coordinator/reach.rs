//! What the store of an attempt sees of its ranks: who came, and who did not.

use std::time::Duration;

use super::super::ids::Attempt;
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::time::{BootTime, Now};
use super::super::torch_store::seen::Reach;
use super::super::wire::World;
use super::Effect;
use super::state::{Coordinator, Phase};

/// After the first rank came: when those that did not are named. Imports of a large program take minutes on a busy
/// file system, but on all nodes alike.
const LATE: Duration = Duration::from_secs(60);

/// The newest word of the store of the newest attempt.
#[derive(Clone, Debug)]
pub(super) struct Reached {
    attempt: Attempt,
    reach: Reach,
    /// When its first word came.
    since: BootTime,
    /// Who is missing was said.
    said: bool,
}

impl Coordinator {
    /// The world as the host of its store is told it: with where each member may come from.
    pub(super) fn hosted_world(&self, mut world: World) -> World {
        let addresses = |node| self.peers.get(node).map(|p| p.spec.addresses.clone()).unwrap_or_default();
        world.addresses = world.members.iter().map(|member| addresses(&member.node)).collect();
        world
    }

    /// A store says who came.
    pub(super) fn store_says(&mut self, now: Now, attempt: Attempt, reach: Reach) {
        if let Some(broke) =
            self.breaking.as_mut().into_iter().chain(&mut self.settling).find(|b| b.attempt == attempt)
        {
            broke.reach = Some(reach);
        } else if self.ledger.attempt() == Some(attempt) {
            let before = self.reached.take().filter(|before| before.attempt == attempt);
            let (since, said) = before.map_or((now.boot, false), |before| (before.since, before.said));
            self.reached = Some(Reached { attempt, reach, since, said });
        }
    }

    /// Who came to the store of this attempt, as it breaks.
    pub(super) fn take_reach(&mut self, attempt: Attempt) -> Option<Reach> {
        self.reached.take().filter(|reached| reached.attempt == attempt).map(|reached| reached.reach)
    }

    /// While some ranks of the newest attempt came to its store and others did not.
    #[must_use]
    pub fn store_reach(&self) -> Option<&Reach> {
        let reached = self.reached.as_ref().filter(|r| self.ledger.attempt() == Some(r.attempt))?;
        let starts = matches!(self.phase, Phase::Starting | Phase::Running) && reached.reach.is_partial();
        starts.then_some(&reached.reach)
    }

    /// When those who are missing are named.
    pub(super) fn late_at(&self) -> Option<BootTime> {
        let reached = self.reached.as_ref().filter(|r| !r.said && r.reach.is_partial())?;
        matches!(self.phase, Phase::Starting | Phase::Running).then(|| reached.since.after(LATE))
    }

    pub(super) fn say_late(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.late_at().is_none_or(|at| now.boot < at) {
            return;
        }
        if let Some(reached) = &mut self.reached {
            reached.said = true;
            let (attempt, reach) = (reached.attempt, reached.reach.clone());
            out.note(Note::StoreLate { attempt, reach, since: now.boot.since(reached.since) });
        }
    }
}
