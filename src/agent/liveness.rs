//! The hands of the agent's watch: looks at pages, and what is collected of ranks that do not advance.

use std::ffi::OsString;
use std::time::Duration;

use super::driver::{Driver, Hooks};
use crate::domain::agent::{AliveRank, Event};
use crate::domain::board::Sample;
use crate::domain::exit::ExitKind;
use crate::domain::ids::{Attempt, LocalRank};
use crate::domain::liveness::collective::of_environment;
use crate::domain::liveness::evidence::{ProcessFacts, RankEvidence};
use crate::domain::liveness::flight::recorder;
use crate::domain::liveness::watch::LOOK;
use crate::domain::time::BootTime;
use crate::stacks::protocol::{Found, Target};
use crate::sys::{clock, facts};

/// Between two looks at a process: what is uninterruptible for so long is stuck.
const BETWEEN: Duration = Duration::from_millis(200);

/// The next look at the pages, and a look at ranks that goes on.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// When pages are looked at next; none: nothing runs.
    pub(super) next: Option<BootTime>,
    inspection: Option<Inspection>,
    /// The environment of the ranks says after how many milliseconds they end by themselves.
    ends_ms: Option<u64>,
}

impl Looks {
    /// At ranks with this environment.
    pub(super) fn new(environment: &[(OsString, OsString)]) -> Self {
        Self { ends_ms: of_environment(environment), ..Self::default() }
    }

    /// The earliest time counts after which collectives give up.
    fn told(&self, sample: Sample) -> Sample {
        let ends = sample.collective_timeout_ms.into_iter().chain(self.ends_ms).min();
        Sample { collective_timeout_ms: ends, ..sample }
    }
}

#[derive(Debug)]
struct Inspection {
    attempt: Attempt,
    id: u64,
    ranks: Vec<AliveRank>,
    /// The first glance at each rank.
    glance: Vec<ProcessFacts>,
    since: BootTime,
    /// Something was seen at a glance and told.
    told: bool,
}

impl<H: Hooks> Driver<H> {
    /// After each event of the machine: pages are looked at as long as ranks run.
    pub(super) fn plan_look(&mut self) {
        let next = self.looks.next.take();
        self.looks.next = self.agent.is_watched().then(|| next.unwrap_or_else(|| clock::boot().after(LOOK)));
    }

    /// Looks at the pages if it is time.
    pub(super) fn look(&mut self) {
        let now = clock::boot();
        if self.looks.next.is_none_or(|next| now < next) {
            return;
        }
        let Some((attempt, ranks)) = self.agent.watches() else { return };
        // One that comes late is not made up for.
        self.looks.next = Some(now.after(LOOK));
        let samples = ranks.into_iter().map(|rank| (rank, self.sample(rank))).collect();
        self.handle(Event::Looked { attempt, samples });
        self.glance_again(now);
    }

    /// What can be seen at a glance is told at once, the rest when it is collected.
    pub(super) fn inspect(&mut self, attempt: Attempt, id: u64, ranks: Vec<AliveRank>) {
        let glance = ranks.iter().map(|rank| facts::glance(number(rank.pid))).collect();
        let since = clock::boot();
        let targets = ranks.iter().map(|rank| self.target(rank)).collect();
        self.looks.inspection = Some(Inspection { attempt, id, ranks, glance, since, told: false });
        self.tell_glance(|facts| facts.state == Some('T'));
        self.hooks.collect_evidence(attempt, targets, BETWEEN);
    }

    /// Who was in uninterruptible sleep a while ago and still is.
    fn glance_again(&mut self, now: BootTime) {
        let due = |i: &Inspection| !i.told && now.since(i.since) >= BETWEEN;
        let Some(inspection) = self.looks.inspection.as_mut().filter(|i| due(i)) else { return };
        let stuck = |facts: &ProcessFacts| facts.state == Some('D');
        if inspection.glance.iter().any(stuck) {
            for (facts, rank) in inspection.glance.iter_mut().zip(&inspection.ranks).filter(|(f, _)| stuck(f))
            {
                *facts = facts::glance(number(rank.pid));
            }
            self.tell_glance(stuck);
        }
        if let Some(inspection) = &mut self.looks.inspection {
            inspection.told = true;
        }
    }

    /// Tells what was seen at a glance if there is such a rank. Through the inbox: the machine may be in the middle of its
    /// effects.
    fn tell_glance(&mut self, decisive: impl Fn(&ProcessFacts) -> bool) {
        let Some(inspection) = &mut self.looks.inspection else { return };
        if !inspection.glance.iter().any(decisive) {
            return;
        }
        inspection.told = true;
        let (attempt, id) = (inspection.attempt, inspection.id);
        let seen = inspection.ranks.iter().zip(&inspection.glance);
        let ranks = seen.map(|(rank, facts)| evidence(rank.local_rank, facts.clone())).collect();
        self.tell(Event::Inspected { attempt, id, ranks, whole: false });
    }

    /// Everything that could be collected came.
    pub(super) fn collected(&mut self, attempt: Attempt, found: Vec<Found>) {
        let Some(inspection) = self.looks.inspection.take_if(|i| i.attempt == attempt) else { return };
        let ranks = found.into_iter().map(|found| RankEvidence {
            local_rank: found.local_rank,
            sample: None,
            silent_ms: 0,
            before: found.before,
            after: found.after,
            between_ms: found.between_ms,
            stack: found.stack,
            flight_recorder: found.flight_recorder,
        });
        let (id, ranks) = (inspection.id, ranks.collect());
        self.handle(Event::Inspected { attempt, id, ranks, whole: true });
    }

    fn sample(&self, rank: LocalRank) -> Option<Sample> {
        Some(self.looks.told(self.boards.as_ref()?.sample(rank)?))
    }

    /// A rank has ended: what it wrote last is read before its end is told.
    pub(super) fn last_page(&self, attempt: Attempt, local_rank: LocalRank, kind: &ExitKind) -> Event {
        let sample = self.boards.as_ref().and_then(|boards| boards.last(local_rank));
        Event::LastPage { attempt, local_rank, sample, failed: !kind.is_success() }
    }

    fn target(&self, rank: &AliveRank) -> Target {
        let sample = self.sample(rank.local_rank);
        let file = self.boards.as_ref().map(|boards| boards.stacks_path(rank.local_rank));
        Target {
            local_rank: rank.local_rank,
            pid: rank.pid,
            owner: sample.as_ref().map(|sample| sample.pid),
            signal: sample.and_then(|sample| sample.stack_signal),
            file,
            recorder: recorder(&self.parts.context.base_env, rank.rank),
        }
    }
}

fn number(pid: u32) -> i32 {
    i32::try_from(pid).unwrap_or(0)
}

/// One glance, in the place of two looks.
fn evidence(local_rank: LocalRank, facts: ProcessFacts) -> RankEvidence {
    RankEvidence {
        local_rank,
        sample: None,
        silent_ms: 0,
        before: facts.clone(),
        after: facts,
        between_ms: 0,
        stack: None,
        flight_recorder: String::new(),
    }
}
