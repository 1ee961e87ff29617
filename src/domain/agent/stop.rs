//! Stopping ranks: ask the leaders, kill and sweep, report. Every way out of an attempt leads through here.

use std::time::Duration;

use super::super::ids::{Attempt, LocalRank, Op};
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::time::{BootTime, Now};
use super::super::wire::{CoordinatorMsg, StopOrder, Survivor};
use super::state::{Agent, Goal, Life, Phase, RESEND, Said};
use super::{Effect, Scope};

impl Agent {
    /// Stops whatever runs here. Asking twice never gives more time; a shorter grace counts.
    pub(super) fn stop(&mut self, now: Now, order: StopOrder, out: &mut Outbox<Effect>) {
        self.waiting = None;
        let until = now.boot.after(Duration::from_millis(order.grace_ms));
        match &mut self.phase {
            Phase::Idle | Phase::Finished | Phase::Gone | Phase::Sweeping { .. } | Phase::Dirty { .. } => {}
            Phase::Asking { until: earlier } => *earlier = until.min(*earlier),
            Phase::Spawning | Phase::Running => {
                self.phase = Phase::Asking { until };
                if order.grace_ms > 0 {
                    self.ask(now, order.signal, out);
                }
            }
        }
        self.stop_if_quiet(now, out);
    }

    fn ask(&mut self, now: Now, signal: u8, out: &mut Outbox<Effect>) {
        let Some(team) = &mut self.team else { return };
        for (local_rank, local) in &mut team.ranks {
            if !matches!(local.life, Life::Ended { .. }) {
                local.asked.get_or_insert(now.boot);
                out.put(Effect::Signal { local_rank: *local_rank, scope: Scope::Leader, signal });
            }
        }
    }

    /// Whenever the ranks that are left ended: it was none of their doing.
    pub(super) fn disown_ends(&mut self) {
        for local in self.team.iter_mut().flat_map(|team| team.ranks.values_mut()) {
            local.asked = Some(BootTime::default());
        }
    }

    /// The leaders are gone or their time is over: kill what is left.
    pub(super) fn stop_if_quiet(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let Phase::Asking { until } = self.phase else { return };
        if now.boot >= until || self.all_ended() {
            self.sweep(now, Goal::Stop, out);
        }
    }

    pub(super) fn all_ended(&self) -> bool {
        self.team.as_ref().is_none_or(|t| t.ranks.values().all(|l| matches!(l.life, Life::Ended { .. })))
    }

    /// Kills and reaps everything; the answer is [`Agent::swept`].
    pub(super) fn sweep(&mut self, now: Now, goal: Goal, out: &mut Outbox<Effect>) {
        if goal == Goal::Stop
            && let Some(team) = &mut self.team
        {
            for local in team.ranks.values_mut().filter(|l| !matches!(l.life, Life::Ended { .. })) {
                local.asked.get_or_insert(now.boot);
            }
        }
        let op = self.op();
        self.phase = Phase::Sweeping { op, goal };
        out.put(Effect::Sweep { op, patience_ms: self.numbers().sweep_ms });
    }

    /// The sweep is over.
    pub(super) fn swept(&mut self, now: Now, op: Op, survivors: Vec<Survivor>, out: &mut Outbox<Effect>) {
        let Phase::Sweeping { op: ours, goal } = self.phase else {
            return out.note(Note::UnknownOp { op });
        };
        if ours != op {
            return out.note(Note::UnknownOp { op });
        }
        if let Some(team) = &mut self.team {
            // The sweep saw them go, their statuses went to somebody else.
            for local in team.ranks.values_mut().filter(|l| !matches!(l.life, Life::Ended { .. })) {
                let exit = super::super::exit::ExitKind::Signal { no: 9, core: false };
                local.life = Life::Ended { exit, at: now.boot, said: Said::default() };
                local.ours = true;
            }
        }
        self.survivors = survivors;
        if let Some(code) = self.leaving {
            self.phase = Phase::Idle;
            return self.leave(now, code, out);
        }
        self.phase = if self.survivors.is_empty() {
            if goal == Goal::Finish { Phase::Finished } else { Phase::Idle }
        } else if goal == Goal::Finish {
            Phase::Finished
        } else {
            let retry = now.boot.after(Duration::from_millis(self.numbers().sweep_ms));
            Phase::Dirty { retry }
        };
        self.report(now, out);
        self.start_if_granted(now, out);
    }

    /// Tells the coordinator where the newest attempt of this node stands, and again until it answers.
    pub(super) fn report(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let Some(attempt) = self.team.as_ref().map(|t| t.attempt).max(self.floor) else { return };
        let exits = self.exits(now);
        self.resend = None;
        match self.phase {
            Phase::Finished => {
                self.resend = Some(now.boot.after(RESEND));
                self.send(CoordinatorMsg::Finished { attempt, exits }, out);
            }
            Phase::Running if !exits.is_empty() => {
                self.resend = Some(now.boot.after(RESEND));
                self.send(CoordinatorMsg::Exited { attempt, exits }, out);
            }
            Phase::Running => self.send(CoordinatorMsg::Started(attempt), out),
            Phase::Idle | Phase::Dirty { .. } => self.report_stopped(now, attempt, out),
            Phase::Spawning | Phase::Asking { .. } | Phase::Sweeping { .. } | Phase::Gone => {}
        }
    }

    /// Tells of one more end. What is lost with a link is told again in full by [`Self::report`].
    pub(super) fn report_end(&mut self, now: Now, local_rank: LocalRank, out: &mut Outbox<Effect>) {
        let Some(attempt) = self.team.as_ref().map(|t| t.attempt).max(self.floor) else { return };
        let exits: Vec<_> = self.exit(now, local_rank).into_iter().collect();
        self.resend = Some(now.boot.after(RESEND));
        self.send(CoordinatorMsg::Exited { attempt, exits }, out);
    }

    fn report_stopped(&mut self, now: Now, attempt: Attempt, out: &mut Outbox<Effect>) {
        let exits = match &self.team {
            Some(team) if team.attempt == attempt => self.exits(now),
            _ => Vec::new(),
        };
        let (survivors, offer) = (self.survivors.clone(), self.offer.clone());
        if self.link && self.ledger.attempt() <= Some(attempt) && self.ledger.end().is_none() {
            // Until the journal goes on: it may be the only sign that this world broke.
            self.resend = Some(now.boot.after(RESEND));
        }
        self.send(CoordinatorMsg::Stopped { attempt, exits, survivors, offer }, out);
    }

    /// Goes with this code; first kills what is left.
    pub(super) fn leave(&mut self, now: Now, code: u8, out: &mut Outbox<Effect>) {
        self.leaving = Some(code);
        match self.phase {
            Phase::Idle | Phase::Finished | Phase::Dirty { .. } => {}
            // What is below goes first, and what it left in shared memory with it.
            Phase::Sweeping { .. } => return,
            _ => return self.sweep(now, Goal::Stop, out),
        }
        self.send(CoordinatorMsg::Leaving, out);
        self.phase = Phase::Gone;
        out.put(Effect::Exit(code));
    }
}
