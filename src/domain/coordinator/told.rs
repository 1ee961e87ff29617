//! Machines without Slurm that were told another run than the one that leads: none of them takes part.

use super::super::ids::NodeName;
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::spec::NodeSpec;
use super::super::told::Difference;
use super::super::wire::RefusedWhy;
use super::Effect;
use super::state::Coordinator;

impl Coordinator {
    /// What this machine was told otherwise; none in a job, where one command starts all.
    pub(super) fn told_otherwise(&self, node: &NodeName, spec: &NodeSpec) -> Option<RefusedWhy> {
        let (told, ours) = (spec.told?, self.config.spec.told(None));
        let same = |rank: u32| {
            let mut others = self.peers.iter().filter(|(other, p)| *other != node && p.linked && !p.lost);
            let (other, _) = others.find(|(_, p)| p.spec.told.is_some_and(|told| told.rank == Some(rank)))?;
            Some(Difference::Rank { rank, other: other.clone() })
        };
        let what = if told.command != ours.command {
            Some(Difference::Command)
        } else if told.nodes != ours.nodes {
            Some(Difference::Nodes { told: told.nodes, leads: ours.nodes })
        } else {
            told.rank.and_then(same)
        };
        what.map(|what| RefusedWhy::Differs { what, leader: self.config.node.clone() })
    }

    /// Machines without a directory that all of them see may have the script in two versions.
    pub(super) fn check_script(&self, node: &NodeName, digest: Option<u64>, out: &mut Outbox<Effect>) {
        let leader = &self.config.node;
        let ours = self.peers.get(leader).and_then(|peer| peer.spec.script_digest);
        if let (Some(theirs), Some(ours)) = (digest, ours)
            && theirs != ours
        {
            out.note(Note::OtherScript { node: node.clone(), leader: leader.clone() });
        }
    }
}
