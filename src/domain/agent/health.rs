//! Checks of this node: those that a coordinator waits for, and those that nobody asked for.

use super::super::health::CheckResult;
use super::super::ids::Attempt;
use super::super::outbox::Outbox;
use super::super::wire::CoordinatorMsg;
use super::Effect;
use super::state::Agent;

/// Where the checks of this node stand.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    /// The attempt that waits for them.
    asked: Option<Attempt>,
    /// They were begun.
    begun: bool,
    /// What the last asked ones found.
    answer: Option<(Attempt, Vec<CheckResult>)>,
    /// What somebody should hear of although nobody asked, by check.
    unasked: Vec<CheckResult>,
}

impl Agent {
    /// The coordinator asks; again if an answer of ours was lost.
    pub(super) fn asked_for_health(&mut self, attempt: Attempt, out: &mut Outbox<Effect>) {
        if let Some((answered, results)) = self.health.answer.clone().filter(|(of, _)| *of == attempt) {
            return self.send(CoordinatorMsg::Health { attempt: Some(answered), results }, out);
        }
        if self.health.asked != Some(attempt) {
            (self.health.asked, self.health.begun) = (Some(attempt), false);
        }
    }

    /// Programs look at devices that ranks use: they begin when no rank is left.
    pub(super) fn check_if_quiet(&mut self, out: &mut Outbox<Effect>) {
        if let Some(attempt) = self.health.asked
            && !self.health.begun
            && !self.busy()
        {
            self.health.begun = true;
            out.put(Effect::Check { attempt });
        }
    }

    /// Checks are over.
    pub(super) fn checked(
        &mut self,
        attempt: Option<Attempt>,
        results: Vec<CheckResult>,
        out: &mut Outbox<Effect>,
    ) {
        let Some(attempt) = attempt else { return self.heard(results, out) };
        if self.health.asked != Some(attempt) {
            return;
        }
        self.health.asked = None;
        self.health.answer = Some((attempt, results.clone()));
        self.send(CoordinatorMsg::Health { attempt: Some(attempt), results }, out);
    }

    fn heard(&mut self, results: Vec<CheckResult>, out: &mut Outbox<Effect>) {
        let before = self.health.unasked.clone();
        for result in results {
            self.health.unasked.retain(|old| old.check != result.check);
            if result.is_noteworthy() {
                self.health.unasked.push(result);
            }
        }
        let told = |all: &[CheckResult]| {
            all.iter().map(|one| (one.check.clone(), one.finding, one.sentence.clone())).collect::<Vec<_>>()
        };
        if told(&before) != told(&self.health.unasked) && self.welcomed {
            self.tell_unasked(out);
        }
    }

    /// All of them, also none when what was wrong is over.
    fn tell_unasked(&mut self, out: &mut Outbox<Effect>) {
        self.send(CoordinatorMsg::Health { attempt: None, results: self.health.unasked.clone() }, out);
    }

    /// A coordinator that has just admitted this node knows nothing of it.
    pub(super) fn tell_health(&mut self, out: &mut Outbox<Effect>) {
        if !self.health.unasked.is_empty() {
            self.tell_unasked(out);
        }
    }
}
