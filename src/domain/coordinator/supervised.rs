//! What the coordinator wants of the supervisor: an agent where one is missing, and what it hears from it.

use std::time::Duration;

use super::super::ids::{Incarnation, NodeName};
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::time::{BootTime, Now, earlier};
use super::super::wire::{AgentMsg, FromSupervisor, ToSupervisor};
use super::state::{Coordinator, Phase};
use super::{Effect, Found};

/// USR1 and USR2: what Slurm and users announce with them is no stop.
const WARNINGS: [u8; 2] = [10, 12];
/// So much longer is an agent waited for that was never there.
const ON_ITS_WAY: Duration = Duration::from_secs(60);

/// A node without an agent for so long is started again: its guardian would have done it by then.
const MISSED: Duration = Duration::from_secs(3);
/// Before it is asked for again.
const AGAIN: Duration = Duration::from_secs(30);

/// A node of this run without an agent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing {
    since: BootTime,
    asked: Option<BootTime>,
}

impl Missing {
    fn ask_at(&self) -> BootTime {
        self.asked.map_or(self.since.after(MISSED), |at| at.after(AGAIN))
    }
}

impl Coordinator {
    pub(super) fn supervisor_says(&mut self, now: Now, message: FromSupervisor, out: &mut Outbox<Effect>) {
        match message {
            FromSupervisor::Attach => self.supervisor_link(true, out),
            // A warning, not a stop: ranks that want it have a handler.
            FromSupervisor::Signal { signal, .. } if WARNINGS.contains(&signal) => {
                out.note(Note::SignalPassed { signal });
                let nodes: Vec<NodeName> = self.peers.keys().cloned().collect();
                for node in nodes {
                    self.send(&node, AgentMsg::PassOn { signal }, out);
                }
            }
            FromSupervisor::Signal { signal, terminal, again } => {
                self.asked_to_stop(now, signal, terminal, None, again, out);
            }
            FromSupervisor::AgentEnded { node, rc } => {
                out.note(Note::TaskEnded { node: node.clone(), rc });
                // Its agent may be another one by now, so this proves nothing. It counts beside a silence that begins with it.
                if self.peers.contains_key(&node) {
                    self.ended_tasks.insert(node, now.boot);
                }
            }
            FromSupervisor::Job(word) => self.found(Found::Job(word)),
        }
    }

    /// A new session has heard nothing yet.
    pub(super) fn supervisor_link(&mut self, up: bool, out: &mut Outbox<Effect>) {
        self.supervised = up;
        if !up {
            return;
        }
        for missing in self.missing.values_mut() {
            missing.asked = None;
        }
        if let Phase::Closed { code } = self.phase {
            out.put(Effect::Supervisor(ToSupervisor::Finish { code, requeue: false }));
        }
    }

    /// Tells the supervisor that the run is over, before any agent hears it.
    pub(super) fn finish_supervisor(&self, code: u8, out: &mut Outbox<Effect>) {
        if self.supervised {
            out.put(Effect::Supervisor(ToSupervisor::Finish { code, requeue: false }));
        }
    }

    /// Asks for agents where they are missing.
    pub(super) fn ask_for_agents(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let goes_on = matches!(self.phase, Phase::Gathering | Phase::Starting | Phase::Running);
        if !self.supervised || !goes_on {
            return self.missing.clear();
        }
        let gone: Vec<NodeName> = self
            .peers
            .iter()
            .filter(|(node, p)| (p.lost || !p.linked || p.left) && !self.kept_out(node))
            .map(|(node, _)| node.clone())
            .collect();
        self.missing.retain(|node, _| gone.contains(node));
        for node in gone {
            // One that never came may still be on its way: the import of an image takes its time.
            let never = self.peers.get(&node).is_some_and(|p| p.incarnation == Incarnation::default());
            let since = if never { now.boot.after(ON_ITS_WAY) } else { now.boot };
            let missing = self.missing.entry(node.clone()).or_insert(Missing { since, asked: None });
            if now.boot >= missing.ask_at() {
                missing.asked = Some(now.boot);
                out.note(Note::AgentWanted { node: node.clone() });
                out.put(Effect::Supervisor(ToSupervisor::StartAgent { node }));
            }
        }
    }

    fn kept_out(&self, node: &NodeName) -> bool {
        self.ledger.is_evicted(node) || self.refused.contains_key(node)
    }

    pub(super) fn ask_at(&self) -> Option<BootTime> {
        self.missing.values().map(|m| Some(m.ask_at())).fold(None, earlier)
    }
}
