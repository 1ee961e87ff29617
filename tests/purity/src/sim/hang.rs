//! Ranks that do not advance: pages that are looked at, a rank that is stopped, and who is blamed for it.

use std::collections::BTreeMap;

use super::faults::What;
use super::world::{MS, Ns, Task, Thread, World};
use crate::domain::agent::{AliveRank, Event};
use crate::domain::board::{Feeder, Phase, Sample};
use crate::domain::ids::{Attempt, LocalRank, Rank};
use crate::domain::liveness::evidence::{Frame, ProcessFacts, RankEvidence, Seen, Stack};
use crate::domain::liveness::limits::HangSpec;
use crate::domain::note::Note;

/// Between two looks of an agent.
const LOOK: Ns = 100 * MS;
/// Between two beats of a rank.
const BEAT: Ns = 50 * MS;

/// Attempts in which a rank was stopped, the first one and when.
pub(super) type Stopped = BTreeMap<Attempt, (Ns, Rank)>;

impl World {
    /// Pages are looked at in this scenario.
    pub(super) fn looks(&self) -> bool {
        self.scenario.faults.iter().any(|fault| matches!(fault.what, What::Hang | What::Leave))
    }

    pub(super) fn hang_spec(&self) -> HangSpec {
        HangSpec { timeout_ms: self.looks().then_some(3_000), ..HangSpec::default() }
    }

    /// The agent looks at the pages of its ranks, and again in a while.
    pub(super) fn look(&mut self, node: usize) {
        let watched = self.nodes[node].agent.as_ref().and_then(|process| process.agent.watches());
        if let Some((attempt, ranks)) = watched {
            let samples = ranks.into_iter().map(|local_rank| (local_rank, self.sample(node, attempt)));
            let samples = samples.collect();
            self.agent(node, Event::Looked { attempt, samples });
        }
        self.task(node, LOOK, Thread::Control, Task::Look);
    }

    /// Ranks advance together: where one is stopped all the others wait for it.
    fn sample(&self, node: usize, attempt: Attempt) -> Option<Sample> {
        let stopped = self.stopped.get(&attempt).map_or(Ns::MAX, |(at, _)| *at);
        let beat = self.now.min(stopped) / BEAT;
        Some(Sample {
            pid: u32::try_from(node).unwrap_or(0),
            feeder: Feeder::Client,
            step: Some(beat / 4),
            phase: Phase::Step,
            beat,
            sections: Vec::new(),
            extend_ms: 0,
            collective_timeout_ms: None,
            stack_signal: None,
            request: self.request(node, attempt),
        })
    }

    /// A rank of this node is stopped.
    pub(super) fn hang_rank(&mut self, node: usize) {
        let lives = |r: &&super::node::RankProcess| !r.killed && !r.ending;
        let Some(rank) = self.nodes[node].ranks.values().find(lives).cloned() else { return };
        self.counters.ranks_stopped += 1;
        self.stopped.entry(rank.attempt).or_insert((self.now, rank.rank));
    }

    /// What the kernel and stacks say of these ranks.
    pub(super) fn evidence(&mut self, attempt: Attempt, ranks: &[AliveRank]) -> Vec<RankEvidence> {
        let stopped = self.stopped.get(&attempt).map(|(_, rank)| *rank);
        let of = |rank: &AliveRank| {
            let is_stopped = stopped == Some(rank.rank);
            let frame = Frame { file: "train.py".into(), line: 9, function: "all_reduce".into() };
            let stack = Stack { seen: Seen::Inside, frames: vec![frame], text: String::new() };
            let state = Some(if is_stopped { 'T' } else { 'S' });
            let facts = ProcessFacts { pid: rank.pid, state, ..ProcessFacts::default() };
            RankEvidence {
                local_rank: LocalRank(rank.local_rank.0),
                sample: None,
                silent_ms: 0,
                before: facts.clone(),
                after: facts,
                between_ms: 100,
                stack: (!is_stopped).then_some(stack),
                flight_recorder: String::new(),
            }
        };
        ranks.iter().map(of).collect()
    }

    /// A world ends for a hang only if a rank of it was stopped, and that one is named.
    pub(super) fn check_hang(&mut self, note: &Note) {
        let Note::HangFound { attempt, incident: Some(_), sentence, .. } = note else { return };
        self.counters.hangs += 1;
        match self.stopped.get(attempt) {
            None => self.check.fail("no_false_hang", self.now, format!("attempt {attempt}: {sentence}")),
            // Its node may be cut off, or its answer lost: then that is said.
            Some(_) if sentence.contains("did not answer") => {}
            Some((_, rank)) if !sentence.contains(&format!("rank {rank} (")) => {
                self.check.fail("the_stopped_rank_is_named", self.now, format!("rank {rank}: {sentence}"));
            }
            Some(_) => {}
        }
    }
}
