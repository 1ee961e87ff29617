//! The ranks' pages: what is seen of them, and what the coordinator is told.

use super::super::board::Sample;
use super::super::ids::{Attempt, LocalRank};
use super::super::liveness::evidence::RankEvidence;
use super::super::liveness::limits::HangAction;
use super::super::note::{Note, Stale};
use super::super::outbox::Outbox;
use super::super::time::Now;
use super::super::wire::CoordinatorMsg;
use super::Effect;
use super::state::{Agent, Life, Phase, Team};

/// All that was collected of a node, in bytes of text: a message has its bound.
const MOST_TEXT: usize = 256 << 10;
/// The longest text of one rank.
const MOST_OF_ONE: usize = 8 << 10;
/// Frames of one rank.
const MOST_FRAMES: usize = 64;
/// With more ranks than these in a world each tells less.
const FEW: usize = 256;

impl Agent {
    /// Ranks run whose pages are to be looked at, ten times a second: those of this attempt.
    #[must_use]
    pub fn watches(&self) -> Option<(Attempt, Vec<LocalRank>)> {
        let team = self.team.as_ref().filter(|_| matches!(self.phase, Phase::Running))?;
        let alive = team.ranks.iter().filter(|(_, l)| matches!(l.life, Life::Alive));
        let ranks: Vec<LocalRank> = alive.map(|(local_rank, _)| *local_rank).collect();
        (!ranks.is_empty()).then_some((team.attempt, ranks))
    }

    /// There are such ranks.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        let alive = |t: &Team| t.ranks.values().any(|l| matches!(l.life, Life::Alive));
        matches!(self.phase, Phase::Running) && self.team.as_ref().is_some_and(alive)
    }

    pub(super) fn looked(
        &mut self,
        now: Now,
        attempt: Attempt,
        samples: Vec<(LocalRank, Option<Sample>)>,
        out: &mut Outbox<Effect>,
    ) {
        let current = self.watches().is_some_and(|(watched, _)| watched == attempt);
        let Some(spec) = self.spec.as_ref().map(|spec| spec.hang.clone()).filter(|_| current) else { return };
        for (local_rank, sample) in &samples {
            self.pass_request(attempt, *local_rank, sample.as_ref(), out);
        }
        let looked = self.watch.look(now.boot, &spec, self.ledger.limits(), samples);
        if !looked.back.is_empty() {
            self.send(CoordinatorMsg::Back { attempt, back: looked.back }, out);
        }
        if !looked.silent.is_empty() && spec.action != HangAction::Off {
            self.send(CoordinatorMsg::Silent { attempt, silent: looked.silent }, out);
        }
        if !looked.progress.is_empty() {
            let learned = self.watch.learned(self.ledger.limits());
            let news = learned.differs(&self.told);
            if news {
                self.told = learned.clone();
            }
            let learned = news.then(|| Box::new(learned));
            self.send(CoordinatorMsg::Progress { attempt, ranks: looked.progress, learned }, out);
        }
    }

    /// What a rank asks for, once as long as the coordinator remembers it.
    fn pass_request(
        &mut self,
        attempt: Attempt,
        local_rank: LocalRank,
        sample: Option<&Sample>,
        out: &mut Outbox<Effect>,
    ) {
        let request = sample.and_then(|sample| sample.request.clone());
        if let Some(request) = request.filter(|r| self.requests.get(&local_rank) != Some(r)) {
            self.requests.insert(local_rank, request.clone());
            self.send(CoordinatorMsg::Asked { attempt, local_rank, request }, out);
        }
    }

    /// A rank has ended by itself, and this stands in its page: whoever asks for something and goes, and the step that it
    /// had just begun, are heard of before its end is.
    pub(super) fn last_page(
        &mut self,
        attempt: Attempt,
        local_rank: LocalRank,
        sample: Option<Sample>,
        failed: bool,
        out: &mut Outbox<Effect>,
    ) {
        let current = self.team.as_ref().is_some_and(|team| team.attempt == attempt);
        if !current {
            return out.note(Note::Dropped { stale: Stale::Attempt });
        }
        self.pass_request(attempt, local_rank, sample.as_ref(), out);
        let tells = failed && matches!(self.phase, Phase::Running);
        let ranks = if tells { self.watch.ended(local_rank, sample) } else { Vec::new() };
        if !ranks.is_empty() {
            self.send(CoordinatorMsg::Progress { attempt, ranks, learned: None }, out);
        }
    }

    /// The coordinator wants to know what ranks do.
    pub(super) fn inspect(&mut self, attempt: Attempt, id: u64, out: &mut Outbox<Effect>) {
        let team =
            self.team.as_ref().filter(|t| t.attempt == attempt && matches!(self.phase, Phase::Running));
        if team.is_none() {
            return out.note(Note::Dropped { stale: Stale::Attempt });
        }
        let ranks = self.alive().map(|(_, ranks)| ranks).unwrap_or_default();
        out.put(Effect::Inspect { attempt, id, ranks });
    }

    /// Something was collected of them; what their pages say is put beside it.
    pub(super) fn inspected(
        &mut self,
        attempt: Attempt,
        id: u64,
        mut ranks: Vec<RankEvidence>,
        whole: bool,
        out: &mut Outbox<Effect>,
    ) {
        let Some(team) = self.team.as_ref().filter(|t| t.attempt == attempt) else {
            return out.note(Note::Dropped { stale: Stale::Attempt });
        };
        ranks.retain(|e| team.ranks.get(&e.local_rank).is_some_and(|l| matches!(l.life, Life::Alive)));
        let world = self.ledger.world().map_or(0, |w| w.members.iter().map(|m| m.nproc as usize).sum());
        let most =
            (MOST_TEXT / ranks.len().max(1)).min(if world > FEW { MOST_OF_ONE / 8 } else { MOST_OF_ONE });
        for evidence in &mut ranks {
            (evidence.silent_ms, evidence.sample) = self.watch.of(evidence.local_rank);
            if let Some(stack) = &mut evidence.stack {
                stack.frames.truncate(MOST_FRAMES);
                shorten(&mut stack.text, most);
            }
        }
        self.send(CoordinatorMsg::Inspected { attempt, id, ranks, whole }, out);
    }
}

/// Cuts a text at the end of a character.
fn shorten(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}
