//! Whose fault was it? The verdict on a world that broke, as far as its ends tell by now.

use std::collections::BTreeMap;

use super::super::attribution::Verdict;
use super::super::attribution::judge::{Scene, verdict};
use super::super::first_failure::{Seen, Standing, first_failure};
use super::super::ids::NodeName;
use super::super::liveness::vote::HANG;
use super::state::{Breaking, Coordinator};

impl Coordinator {
    /// Looks at what is known by now, and keeps what was known before where that is surer: a hang was seen, not told.
    pub(super) fn find(&mut self) {
        let crashed = self.breaking.as_ref().filter(|broke| broke.found.cause != HANG);
        let Some(found) = crashed.map(|broke| self.attribute(broke)) else { return };
        if let Some(broke) = &mut self.breaking
            && found.confidence >= broke.found.confidence
            && found != Verdict::default()
        {
            broke.found = found;
        }
    }

    /// The verdict, as far as these ends tell.
    pub(super) fn attribute(&self, broke: &Breaking) -> Verdict {
        let ends: Vec<Seen> = broke.ends.values().cloned().collect();
        let first = first_failure(&ends);
        let victim =
            first.and_then(|at| ends.get(at)).map(|end| end.report.standing()) == Some(Standing::PeerLost);
        let addresses = if victim { self.whose_address(broke) } else { BTreeMap::new() };
        let (members, lost) = (&broke.members, &broke.lost);
        verdict(&Scene { ends: &ends, first, members, lost, addresses: &addresses })
    }

    /// Whose each address is; of one that several nodes have, nobody's.
    fn whose_address(&self, broke: &Breaking) -> BTreeMap<String, NodeName> {
        let mut all: BTreeMap<String, Option<NodeName>> = BTreeMap::new();
        for member in &broke.members {
            let Some(peer) = self.peers.get(&member.node) else { continue };
            for address in peer.spec.addresses.iter().chain([&peer.spec.address]).filter(|a| !a.is_empty()) {
                let known = all.entry(address.clone()).or_insert_with(|| Some(member.node.clone()));
                if known.as_ref() != Some(&member.node) {
                    *known = None;
                }
            }
        }
        all.into_iter().filter_map(|(address, node)| Some((address, node?))).collect()
    }
}
