//! The gate before a world: a node on which a check fails gets no ranks, as long as others can take its place.
//!
//! Where programs were named, every node asks them before each world, once its old ranks are gone, and the world waits for
//! the answers. Without any, [suspects](super::suspects) alone are asked, for checks of our own. Those hold nothing else up:
//! what they find unasked counts from the next world on. A node that says nothing in time is unknown, and unknown is not
//! bad. Where several nodes fail together and they are more than a fifth of all, it is
//! the check, the storage or the fabric, and no node is blamed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::health::{CheckResult, Finding, failed};
use super::super::ids::{Attempt, Incarnation, NodeName};
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::policy::evict;
use super::super::record::{Body, Evict};
use super::super::time::{BootTime, Now, earlier};
use super::super::wire::AgentMsg;
use super::Effect;
use super::state::{Coordinator, Phase, RESEND};

/// Beyond the time of the programs: their start, and the way there and back.
const BEYOND: Duration = Duration::from_secs(15);
/// For checks of our own, in all.
const OWN: Duration = Duration::from_secs(20);
/// One in so many may fail together with another.
const SHARE: usize = 5;

/// What is known of the nodes' health.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate {
    /// The attempt that waits for answers, and since when nobody has ranks any more.
    asking: Option<(Attempt, Option<BootTime>)>,
    /// It waits no longer for this one.
    late: Option<Attempt>,
    /// Who was asked for it, and when last.
    asked: BTreeMap<NodeName, BootTime>,
    /// Who answered, by which life.
    answers: BTreeMap<NodeName, (Incarnation, Attempt, Vec<CheckResult>)>,
    /// What nodes said unasked.
    unasked: BTreeMap<NodeName, (Incarnation, Vec<CheckResult>)>,
    /// What was said of the nodes for this attempt.
    said: Option<(Attempt, BTreeSet<NodeName>)>,
}

impl Coordinator {
    /// What checks of a node found.
    pub(super) fn health_says(
        &mut self,
        from: &NodeName,
        attempt: Option<Attempt>,
        results: Vec<CheckResult>,
        out: &mut Outbox<Effect>,
    ) {
        let Some(life) = self.peers.get(from).map(|peer| peer.incarnation) else { return };
        // What a node said unasked it need not say again when it is asked.
        let before = self.gate.unasked.get(from).filter(|(l, _)| *l == life && attempt.is_some());
        let told = |r: &CheckResult| before.is_some_and(|(_, all)| all.iter().any(|old| old.says_as(r)));
        let noteworthy: Vec<CheckResult> =
            results.iter().filter(|r| r.is_noteworthy() && !told(r)).cloned().collect();
        let known = match attempt {
            Some(of) => self.gate.answers.get(from).is_some_and(|(l, a, _)| (*l, *a) == (life, of)),
            None => self.gate.unasked.get(from).is_some_and(|(l, old)| *l == life && *old == results),
        };
        if !noteworthy.is_empty() && !known {
            out.note(Note::Unhealthy { node: from.clone(), results: noteworthy });
        }
        match attempt {
            Some(of) => drop(self.gate.answers.insert(from.clone(), (life, of, results))),
            None => drop(self.gate.unasked.insert(from.clone(), (life, results))),
        }
    }

    /// The failed check of a node, if one failed.
    fn failed_check(&self, node: &NodeName) -> Option<&CheckResult> {
        let life = self.peers.get(node)?.incarnation;
        let answer = self.gate.answers.get(node).filter(|(of, ..)| *of == life).map(|(.., results)| results);
        let unasked = self.gate.unasked.get(node).filter(|(of, _)| *of == life).map(|(_, results)| results);
        answer.and_then(|all| failed(all)).or_else(|| unasked.and_then(|all| failed(all)))
    }

    /// Nodes that could have ranks.
    fn at_the_gate(&self) -> Vec<NodeName> {
        let usable = self.peers.iter().filter(|(node, p)| p.usable() && !self.ledger.is_evicted(node));
        usable.map(|(node, _)| node.clone()).collect()
    }

    /// A world must not be opened yet: answers are missing, or a node is being taken out.
    pub(super) fn gate_holds(&mut self, now: Now, out: &mut Outbox<Effect>) -> bool {
        self.answers_missing(now, out) || self.evicts_unfit(now, out)
    }

    fn answers_missing(&mut self, now: Now, out: &mut Outbox<Effect>) -> bool {
        let mut nodes = self.at_the_gate();
        if self.config.spec.health.commands.is_empty() {
            nodes = self.suspects_at(&nodes);
            if nodes.is_empty() {
                self.gate.asking = None;
                return false;
            }
        }
        let next = self.ledger.next_attempt();
        if self.gate.asking.map(|(attempt, _)| attempt) != Some(next) {
            self.gate.asking = Some((next, None));
            self.gate.asked.clear();
        }
        // Who is in question no more is not asked again.
        self.gate.asked.retain(|node, _| nodes.contains(node));
        let quiet = self.busy.is_empty() && !nodes.is_empty();
        let since = match &mut self.gate.asking {
            Some((_, since)) if quiet => Some(*since.get_or_insert(now.boot)),
            Some((_, since)) => {
                *since = None;
                None
            }
            None => None,
        };
        if since.is_some_and(|since| now.boot >= since.after(self.gate_patience())) {
            self.gate.late = Some(next);
            return false;
        }
        let mut missing = false;
        for node in nodes {
            let life = self.peers.get(&node).map(|peer| peer.incarnation);
            let answered = self.gate.answers.get(&node);
            if answered.is_some_and(|(of, attempt, _)| Some(*of) == life && *attempt == next) {
                continue;
            }
            missing = true;
            let due = self.gate.asked.get(&node).is_none_or(|at| now.boot >= at.after(RESEND));
            if due {
                self.gate.asked.insert(node.clone(), now.boot);
                self.send(&node, AgentMsg::Check { attempt: next }, out);
            }
        }
        missing
    }

    fn gate_patience(&self) -> Duration {
        let health = &self.config.spec.health;
        if health.commands.is_empty() {
            return OWN;
        }
        Duration::from_millis(health.timeout_ms).saturating_add(BEYOND)
    }

    /// The next time at which the gate has something to do.
    pub(super) fn gate_at(&self) -> Option<BootTime> {
        let open = self.breaking.as_ref().is_some_and(|broke| broke.open);
        let waits = self.phase == Phase::Gathering && self.append.is_none() && self.want.is_some() && !open;
        let (attempt, since) = self.gate.asking.filter(|_| waits)?;
        if attempt != self.ledger.next_attempt() || self.gate.late == Some(attempt) {
            return None;
        }
        let open = |node: &&NodeName| {
            self.gate.answers.get(*node).is_none_or(|(_, answered, _)| *answered != attempt)
        };
        let asked = self.gate.asked.iter().filter(|(node, _)| open(node) && self.is_usable(node));
        let again = asked.map(|(_, at)| at.after(RESEND)).min()?;
        earlier(Some(again), since.map(|since| since.after(self.gate_patience())))
    }

    fn is_usable(&self, node: &NodeName) -> bool {
        self.peers.get(node).is_some_and(super::state::Peer::usable)
    }

    /// Nodes whose checks failed, and why: those that may be taken out now. Empty where it is nobody's fault, and where a
    /// world could not be opened without them.
    fn unfit(&self) -> (Vec<(NodeName, String)>, Verdict) {
        let nodes = self.at_the_gate();
        let reason = |node: &NodeName| {
            let failed = self.failed_check(node)?;
            Some((node.clone(), format!("its check {} failed: {}", failed.check, failed.sentence)))
        };
        let failing: Vec<(NodeName, String)> = nodes.iter().filter_map(reason).collect();
        let verdict = judge(failing.len(), nodes.len(), self.size().min as usize);
        (failing, verdict)
    }

    /// Takes a node out whose check failed: one record each, before the world that goes on without it.
    fn evicts_unfit(&mut self, now: Now, out: &mut Outbox<Effect>) -> bool {
        let (mut failing, verdict) = self.unfit();
        if failing.is_empty() {
            return false;
        }
        let room = evict::allowed(&self.ledger, now.wall_ms, self.config.mutants) > 0;
        if verdict == Verdict::Evict && room {
            let (node, reason) = failing.remove(0);
            let why = vec![format!("{node} is taken out: {reason}")];
            self.propose(
                now,
                Body::Evict(Evict { node, reason, inferred: true, ..Evict::default() }),
                why,
                out,
            );
            return true;
        }
        let next = self.ledger.next_attempt();
        let nodes: BTreeSet<NodeName> = failing.into_iter().map(|(node, _)| node).collect();
        if self.gate.said.as_ref() != Some(&(next, nodes.clone())) {
            let of = self.at_the_gate().len();
            out.note(Note::NoneBlamed {
                nodes: nodes.iter().cloned().collect(),
                of: u32::try_from(of).unwrap_or(u32::MAX),
                together: verdict == Verdict::Together,
            });
            self.gate.said = Some((next, nodes));
        }
        false
    }

    /// Nodes that failed a check and are still taken.
    #[must_use]
    pub fn unhealthy(&self) -> Vec<NodeName> {
        self.at_the_gate().into_iter().filter(|node| self.failed_check(node).is_some()).collect()
    }

    /// What is known of a node, worst first.
    #[must_use]
    pub fn findings(&self, node: &NodeName) -> Vec<CheckResult> {
        let answer = self.gate.answers.get(node).map(|(.., all)| all.clone()).unwrap_or_default();
        let unasked = self.gate.unasked.get(node).map(|(_, all)| all.clone()).unwrap_or_default();
        let mut all: Vec<CheckResult> = answer.into_iter().chain(unasked).collect();
        all.sort_by_key(|result| (std::cmp::Reverse(result.finding), result.check.clone()));
        all.dedup_by(|a, b| a.check == b.check);
        all.retain(|result| result.finding != Finding::Skipped);
        all
    }
}

/// What is done about nodes that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// They are taken out.
    Evict,
    /// Too many fail together: nobody is blamed.
    Together,
    /// Nobody could take their place: kept.
    Needed,
}

/// `failing` of `all` nodes fail, a world needs `min`.
fn judge(failing: usize, all: usize, min: usize) -> Verdict {
    if failing > 1 && failing.saturating_mul(SHARE) > all {
        Verdict::Together
    } else if all.saturating_sub(failing) < min {
        Verdict::Needed
    } else {
        Verdict::Evict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_many_may_fail() {
        use Verdict::{Evict, Needed, Together};
        // One alone is never "together".
        let table = [
            ((1, 1, 1), Needed),
            ((1, 2, 1), Evict),
            ((1, 2, 2), Needed),
            ((1, 5, 4), Evict),
            ((1, 5, 5), Needed),
            ((2, 6, 4), Together),
            ((2, 10, 8), Evict),
            ((2, 10, 9), Needed),
            ((3, 10, 4), Together),
            ((6, 6, 4), Together),
            ((20, 100, 80), Evict),
            ((21, 100, 1), Together),
        ];
        for ((failing, all, min), wanted) in table {
            assert_eq!(judge(failing, all, min), wanted, "{failing} of {all}, {min} needed");
        }
    }
}
