//! Does everybody see the same run directory, and can it decide between two who want the same?
//!
//! What a coordinator wrote into the hint comes back in every join: a node that does not know it reads another
//! directory, or an old copy. And once a launch two nodes make one file, exclusively: exactly one of them must win, or
//! two could lead by the same number one day.

use std::time::Duration;

use super::super::ids::NodeName;
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::time::{BootTime, Now};
use super::super::wire::AgentMsg;
use super::Effect;
use super::state::Coordinator;

/// The two who make one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Probe {
    /// Its name; empty before this coordinator leads, and where nobody else votes.
    name: String,
    own: Option<bool>,
    asked: Option<NodeName>,
    other: Option<bool>,
    /// How often there was no answer.
    round: u32,
    /// When it is begun anew.
    pub(super) again: Option<BootTime>,
}

/// After so long an answer is lost.
const ANSWER: Duration = Duration::from_secs(30);
/// So often it is tried.
const ROUNDS: u32 = 5;

impl Coordinator {
    /// It leads: its own half of the probe.
    pub(super) fn begin_probe(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.ledger.voters().len() < 2 {
            return;
        }
        let (term, round) = (self.term.unwrap_or_default(), self.probe.round);
        // Another file each time: who made the last one cannot make it again, and would seem to have lost.
        let name = format!("{term}-{:016x}-{round}", self.config.incarnation.0);
        let again = Some(now.boot.after(ANSWER));
        self.probe = Probe { name: name.clone(), round, again, ..Probe::default() };
        out.put(Effect::Probe { name });
    }

    /// An answer was lost with a connection or a worker: both halves are made anew.
    pub(super) fn probe_again(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.probe.again.is_none_or(|at| now.boot < at) {
            return;
        }
        self.probe.again = None;
        let known = self.probe.own.is_some() && self.probe.other.is_some();
        if known || self.is_closed() || self.probe.round + 1 >= ROUNDS {
            return;
        }
        self.probe.round += 1;
        self.begin_probe(now, out);
        let there = self.peers.iter().find(|(n, p)| p.heard() && **n != self.config.node);
        if let Some(node) = there.map(|(node, _)| node.clone()) {
            self.ask_probe(&node, out);
        }
    }

    /// The first other node that is there makes the other half.
    pub(super) fn ask_probe(&mut self, node: &NodeName, out: &mut Outbox<Effect>) {
        let Probe { name, asked, other, .. } = &self.probe;
        let asked_alive = asked
            .as_ref()
            .is_some_and(|asked| asked != node && self.peers.get(asked).is_some_and(|p| p.linked));
        if name.is_empty() || other.is_some() || asked_alive || *node == self.config.node {
            return;
        }
        let name = name.clone();
        self.probe.asked = Some(node.clone());
        self.send(node, AgentMsg::Probe { name }, out);
    }

    /// Half of the probe is known.
    pub(super) fn probed(
        &mut self,
        from: Option<&NodeName>,
        name: &str,
        won: bool,
        out: &mut Outbox<Effect>,
    ) {
        if name != self.probe.name {
            return;
        }
        match from {
            None => self.probe.own = Some(won),
            Some(from) if self.probe.asked.as_ref() == Some(from) && self.probe.other.is_none() => {
                self.probe.other = Some(won);
            }
            Some(_) => return,
        }
        if let (Some(own), Some(other), Some(asked)) = (self.probe.own, self.probe.other, &self.probe.asked)
            && own == other
        {
            out.note(Note::NotExclusive { nodes: [self.config.node.clone(), asked.clone()], both: own });
        }
    }

    /// What a join says about the directory that its node reads.
    pub(super) fn check_proof(&mut self, node: &NodeName, proof: Option<u64>, out: &mut Outbox<Effect>) {
        if self.config.proof.is_none() || *node == self.config.node {
            return;
        }
        if proof == self.config.proof {
            self.unproven.remove(node);
        } else if self.unproven.insert(node.clone()) {
            out.note(Note::Unproven { node: node.clone() });
        }
    }
}
