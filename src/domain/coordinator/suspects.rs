//! Who is looked at before it serves again, where no programs were named that look at everybody: nodes against which
//! something speaks, all of them where nobody knows what held up the world, and spares that are about to take a place.
//!
//! Only where it could change something: as long as another node could take the place of one that fails.

use super::super::ids::NodeName;
use super::super::liveness::vote::HANG;
use super::super::record::{Break, Cause};
use super::state::Coordinator;

/// Failures before this one that still speak against a node.
const RECENT: usize = 2;

impl Coordinator {
    /// Nodes that are asked before the next world is opened; the ones `at_the_gate` are those that could have ranks.
    pub(super) fn suspects_at(&self, at_the_gate: &[NodeName]) -> Vec<NodeName> {
        let Some(Cause::Incident(broke)) = self.want.as_ref().map(|want| &want.cause) else {
            return Vec::new();
        };
        if at_the_gate.len() <= self.size().min as usize {
            return Vec::new();
        }
        let replace = self.want.as_ref().map(|want| &want.replace);
        let stays = |node: &&NodeName| {
            self.ledger.member(node).is_some() && !replace.is_some_and(|replace| replace.contains(*node))
        };
        let staying = at_the_gate.iter().filter(stays).count();
        let places = self.ledger.world().map_or(0, |world| world.members.len());
        let asks = |node: &&NodeName| match stays(node) {
            true => self.is_suspected(broke, node),
            // A place is free, and this one may take it.
            false => staying < places,
        };
        at_the_gate.iter().filter(asks).cloned().collect()
    }

    fn is_suspected(&self, broke: &Break, node: &NodeName) -> bool {
        let found = &broke.verdict;
        let hang = found.cause == HANG;
        let named = || found.nodes.contains(node) || hang && found.culprits.iter().any(|(_, on)| on == node);
        let nobody = || hang && found.culprits.is_empty() && found.nodes.is_empty();
        let again = || {
            let first = broke.first_failure.as_ref().is_some_and(|first| first.node == *node);
            let mut before = self.ledger.history().failures.iter().rev().take(RECENT);
            first && before.any(|failure| failure.node == *node)
        };
        named() || nobody() || again()
    }
}
