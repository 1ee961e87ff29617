//! A program that does not advance: what ranks say of themselves, a look into it, and what is done.
//!
//! An explicit limit ends the world when it is reached, whatever the look brings. A learned one opens a look, and ends
//! the world only with evidence against a rank, or at its ceiling if nothing speaks against it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::attribution::Verdict;
use super::super::board::{Phase as RankPhase, Request};
use super::super::exit::ExitKind;
use super::super::exit_code;
use super::super::ids::{Attempt, LocalRank, NodeName, Rank};
use super::super::liveness::evidence::RankEvidence;
use super::super::liveness::limits::{HangAction, Learned, Pause, has_leave, has_own_time};
use super::super::liveness::vote::{self, Finding, Vote};
use super::super::liveness::watch::{Back, RankProgress, Silence, progress_every};
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::policy;
use super::super::record::{Body, Decision, FirstFailure, Outcome};
use super::super::rendezvous;
use super::super::time::{BootTime, Now, human};
use super::super::wire::{AgentMsg, CoordinatorMsg};
use super::Effect;
use super::breaking::What;
use super::state::{Coordinator, Phase};

/// A look ends after so long, whoever has not answered.
const PATIENCE: Duration = Duration::from_secs(5);
/// A fact that decides ends it so long after it began at the earliest: what others answer meanwhile is kept.
const MOMENT: Duration = Duration::from_millis(300);
/// On its way a word of a rank gets so much older than it is told.
const LATER: Duration = Duration::from_millis(500);
/// Looks that ended nothing are kept in so many places.
const KEPT: u64 = 16;
/// Between two records of what was learned.
const RARELY: Duration = Duration::from_secs(600);

/// Where a rank is, as it said last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankState {
    /// The rank.
    pub rank: Rank,
    /// Its node.
    pub node: NodeName,
    /// The step that is under way.
    pub step: Option<u64>,
    /// What it does.
    pub phase: RankPhase,
    /// Steps behind the first.
    pub lag: u64,
}

/// What was collected of the ranks of a world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// Where it is kept, relative to the run directory.
    pub dir: String,
    /// Of each rank that could be asked.
    pub ranks: Vec<(Rank, NodeName, RankEvidence)>,
}

/// The word of one rank.
#[derive(Clone, Debug)]
struct Word {
    node: NodeName,
    step: Option<u64>,
    phase: RankPhase,
    /// When its page changed.
    at: BootTime,
}

/// A look that goes on.
#[derive(Clone, Debug)]
struct Look {
    id: u64,
    since: BootTime,
    until: BootTime,
    /// Who has not answered.
    asked: BTreeSet<NodeName>,
    answers: Vec<(Rank, NodeName, RankEvidence)>,
    /// Who was silent, and how.
    rank: Rank,
    silence: Silence,
    /// It was looked into before.
    again: bool,
}

/// What a look found, until the world is broken by it.
#[derive(Clone, Debug, Default)]
struct Found {
    verdict: Verdict,
    first: Option<FirstFailure>,
}

/// Everything about it that the journal does not say.
#[derive(Clone, Debug, Default)]
pub(super) struct Hang {
    attempt: Option<Attempt>,
    words: BTreeMap<Rank, Word>,
    /// Ranks that are silent beyond a limit and were told of.
    silent: BTreeSet<Rank>,
    /// A silence was said.
    said: bool,
    look: Option<Look>,
    looks: u64,
    found: Option<Found>,
    /// A program that never beats is warned of once.
    warned: bool,
    learned: Learned,
    written: Option<BootTime>,
}

impl Hang {
    /// The verdict with which a world breaks; what was known of its ranks is history.
    pub(super) fn take_found(&mut self) -> Verdict {
        self.begin(None);
        self.found.take().unwrap_or_default().verdict
    }

    fn begin(&mut self, attempt: Option<Attempt>) {
        self.attempt = attempt;
        self.words.clear();
        self.silent.clear();
        (self.look, self.said) = (None, false);
    }
}

impl Coordinator {
    /// An agent tells of its ranks. What it says of another attempt than the newest is old.
    pub(super) fn hears_of_ranks(
        &mut self,
        now: Now,
        node: &NodeName,
        msg: CoordinatorMsg,
        out: &mut Outbox<Effect>,
    ) {
        let attempt = match &msg {
            CoordinatorMsg::Silent { attempt, .. }
            | CoordinatorMsg::Back { attempt, .. }
            | CoordinatorMsg::Progress { attempt, .. }
            | CoordinatorMsg::Inspected { attempt, .. }
            | CoordinatorMsg::Asked { attempt, .. } => *attempt,
            _ => return,
        };
        let runs = matches!(self.phase, Phase::Starting | Phase::Running) && self.may_break(attempt);
        // Who wants the end of the run wants it, too, when something else broke the world in the same moment.
        if let (CoordinatorMsg::Asked { request: Request::Stop { .. }, .. }, false) = (&msg, runs)
            && self.ledger.attempt() == Some(attempt)
            && self.ending.is_none()
        {
            return self.rank_asks_late(now, node, msg, out);
        }
        let Some((first, nproc)) = self.first_of(node, attempt).filter(|_| runs) else { return };
        if self.hang.attempt != Some(attempt) {
            self.hang.begin(Some(attempt));
        }
        let rank = |local: LocalRank| (local.0 < nproc).then(|| Rank(first.0.saturating_add(local.0)));
        match msg {
            CoordinatorMsg::Silent { silent, .. } => {
                let silent = silent.into_iter().filter_map(|s| Some((rank(s.local_rank)?, s)));
                self.silent_ranks(now, attempt, silent.collect(), out);
            }
            CoordinatorMsg::Back { back, .. } => {
                let back = back.into_iter().filter_map(|b| Some((rank(b.local_rank)?, b)));
                self.ranks_back(node, attempt, back.collect(), out);
            }
            CoordinatorMsg::Progress { ranks, learned, .. } => {
                let ranks = ranks.into_iter().filter_map(|r| Some((rank(r.local_rank)?, r)));
                let ranks: Vec<(Rank, RankProgress)> = ranks.collect();
                self.ranks_reach(now, attempt, &ranks);
                self.ranks_advance(now, node, ranks);
                if let Some(learned) = learned {
                    self.hang.learned.merge(&learned);
                }
            }
            CoordinatorMsg::Inspected { id, ranks, whole, .. } => {
                let ranks = ranks.into_iter().filter_map(|r| Some((rank(r.local_rank)?, node.clone(), r)));
                self.inspected(now, node, id, (ranks.collect(), whole), out);
            }
            CoordinatorMsg::Asked { local_rank, request, .. } => {
                if let Some(rank) = rank(local_rank) {
                    self.rank_asks(now, rank, node, request, out);
                }
            }
            _ => {}
        }
    }

    /// The first rank of a node in the newest world, and how many it has.
    fn first_of(&mut self, node: &NodeName, attempt: Attempt) -> Option<(Rank, u32)> {
        if self.firsts.0 != Some(attempt) {
            let members = self.ledger.world().map_or(&[][..], |w| &w.members);
            self.firsts = (Some(attempt), rendezvous::first_ranks(members));
        }
        self.firsts.1.get(node).copied()
    }

    /// Where the ranks of the world are, by rank; empty before any has said it.
    #[must_use]
    pub fn rank_states(&self) -> Vec<RankState> {
        let most = self.hang.words.values().filter_map(|word| word.step).max();
        let state = |(rank, word): (&Rank, &Word)| RankState {
            rank: *rank,
            node: word.node.clone(),
            step: word.step,
            phase: word.phase,
            lag: most.unwrap_or(0).saturating_sub(word.step.unwrap_or(0)),
        };
        self.hang.words.iter().map(state).collect()
    }

    fn ranks_advance(&mut self, now: Now, node: &NodeName, ranks: Vec<(Rank, RankProgress)>) {
        for (rank, progress) in ranks {
            let at = now.boot.before(Duration::from_millis(progress.age_ms));
            let (step, phase) = (progress.step, progress.phase);
            self.hang.words.insert(rank, Word { node: node.clone(), step, phase, at });
        }
    }

    fn silent_ranks(
        &mut self,
        now: Now,
        attempt: Attempt,
        silent: Vec<(Rank, Silence)>,
        out: &mut Outbox<Effect>,
    ) {
        if self.config.spec.hang.action == HangAction::Off {
            return;
        }
        let beginning = |s: &Silence| !s.explicit && !s.kills;
        for (rank, silence) in silent {
            let warns = self.config.spec.hang.action == HangAction::Warn && self.hang.silent.contains(&rank);
            if warns || (beginning(&silence) && self.hang.warned) {
                continue;
            }
            self.hang.warned |= beginning(&silence);
            self.hang.silent.insert(rank);
            match &mut self.hang.look {
                Some(look) if weight(&silence) > weight(&look.silence) => {
                    (look.rank, look.silence) = (rank, silence);
                }
                Some(_) => {}
                None => self.look_into(now, attempt, rank, silence, out),
            }
        }
    }

    /// Asks every node of the world what its ranks do.
    fn look_into(
        &mut self,
        now: Now,
        attempt: Attempt,
        rank: Rank,
        silence: Silence,
        out: &mut Outbox<Effect>,
    ) {
        let members = self.ledger.world().map_or(&[][..], |w| &w.members);
        let asked: BTreeSet<NodeName> = members
            .iter()
            .filter(|m| {
                self.peers.get(&m.node).is_some_and(|p| p.heard()) && !self.finished.contains(&m.node)
            })
            .map(|m| m.node.clone())
            .collect();
        let node = members.iter().find(|m| {
            self.firsts
                .1
                .get(&m.node)
                .is_some_and(|(first, n)| (first.0..first.0.saturating_add(*n)).contains(&rank.0))
        });
        let node = node.map(|m| m.node.clone()).unwrap_or_default();
        let silent = Duration::from_millis(silence.silent_ms);
        // Words of ranks are not newer than this: who advances may look silent for so long.
        let news = progress_every(members.len());
        let mut others = self.hang.words.values();
        let everybody = self.hang.words.len() > 1
            && silent >= news.saturating_mul(2)
            && others
                .all(|word| now.boot.since(word.at).saturating_add(news).saturating_add(LATER) >= silent);
        // It is looked into again while something speaks against an end: that was said.
        let again = std::mem::replace(&mut self.hang.said, true);
        let suspected = Note::Suspected {
            attempt,
            rank,
            node,
            everybody,
            silent,
            usual: silence.usual_ms.map(Duration::from_millis),
            limit: Duration::from_millis(silence.limit_ms),
            explicit: silence.explicit,
            place: silence.place.clone(),
            step: silence.step,
        };
        if !again {
            out.note(suspected);
        }
        let id = self.hang.looks;
        self.hang.looks = id.saturating_add(1);
        for node in &asked {
            self.send(node, AgentMsg::Inspect { attempt, id }, out);
        }
        let (since, until) = (now.boot, now.boot.after(PATIENCE));
        self.hang.look = Some(Look { id, since, until, asked, answers: Vec::new(), rank, silence, again });
    }

    fn inspected(
        &mut self,
        now: Now,
        node: &NodeName,
        id: u64,
        (ranks, whole): (Vec<(Rank, NodeName, RankEvidence)>, bool),
        out: &mut Outbox<Effect>,
    ) {
        let Some(look) = self.hang.look.as_mut().filter(|look| look.id == id) else { return };
        if look.asked.contains(node) {
            if whole {
                look.asked.remove(node);
            }
            look.answers.retain(|(_, from, _)| from != node);
            look.answers.extend(ranks);
            look.answers.sort_by_key(|(rank, ..)| *rank);
            self.conclude(now, false, out);
        }
    }

    /// When a look ends at the latest.
    pub(super) fn hang_at(&self) -> Option<BootTime> {
        let learned = || {
            let from = self.limits_from().filter(|_| self.hang.learned.differs(self.ledger.limits()))?;
            (self.phase == Phase::Running && self.append.is_none()).then_some(from)
        };
        self.hang.look.as_ref().map(|look| look.until).or_else(learned)
    }

    pub(super) fn hang_on_time(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.hang.look.as_ref().is_none_or(|look| now.boot < look.until) {
            return;
        }
        let runs = matches!(self.phase, Phase::Starting | Phase::Running);
        if runs && self.hang.attempt.is_some_and(|attempt| self.may_break(attempt)) {
            self.conclude(now, true, out);
        } else {
            self.hang.look = None;
        }
    }

    /// Ends the look if nothing more can be learned by waiting, and does what follows from it.
    fn conclude(&mut self, now: Now, late: bool, out: &mut Outbox<Effect>) {
        let (Some(look), Some(attempt)) = (&self.hang.look, self.hang.attempt) else { return };
        let all = late || look.asked.is_empty();
        let votes: Vec<Vote<'_>> =
            look.answers.iter().map(|(rank, node, evidence)| Vote { rank: *rank, node, evidence }).collect();
        let finding = vote::judge(&votes, all);
        if !all && !finding.decisive {
            return;
        }
        let ripe = look.since.after(MOMENT);
        if !all && now.boot < ripe {
            self.hang.look.iter_mut().for_each(|look| look.until = look.until.min(ripe));
            return;
        }
        let Some(look) = self.hang.look.take() else { return };
        let kills = self.ends_world(&look, &finding);
        let mut sentence = finding.verdict.reasons.first().cloned().unwrap_or_default();
        if !finding.decisive {
            sentence.push_str(&self.unanswered(&look));
        }
        let incident = kills.then(|| self.incident_to_come());
        let dir = match incident {
            Some(incident) => format!("incidents/{incident:04}"),
            None => format!("incidents/look-{:02}", look.id % KEPT),
        };
        let next = if kills { String::new() } else { self.next_step(&look, &finding) };
        if kills || !look.again {
            out.note(Note::HangFound { attempt, incident, sentence, dir: dir.clone(), next });
        }
        let first = self.first_of_hang(now, &look, &finding);
        out.put(Effect::Collected(Box::new(Collected { dir, ranks: look.answers })));
        if kills {
            if let (false, Some(step)) = (look.silence.explicit, look.silence.step) {
                let ms = look.silence.silent_ms;
                self.hang.learned.pause(Pause { step, ms, over: false });
            }
            self.hang.found = Some(Found { verdict: finding.verdict, first });
            self.break_world(now, What::Hung, out);
        }
    }

    /// Nodes that said nothing of their ranks: who holds up the others may be one of those.
    fn unanswered(&self, look: &Look) -> String {
        const NAMED: usize = 3;
        let answered: BTreeSet<&NodeName> = look.answers.iter().map(|(_, node, _)| node).collect();
        let members = self.ledger.world().map_or(&[][..], |world| &world.members);
        let silent = members.iter().filter(|member| !answered.contains(&member.node));
        let silent: Vec<&str> = silent.map(|member| member.node.as_str()).collect();
        let named = silent.get(..NAMED).unwrap_or(&silent).join(", ");
        match silent.len() {
            0 => String::new(),
            n if n > NAMED => format!("; {named} and {} more nodes did not answer", n - NAMED),
            _ => format!("; {named} did not answer"),
        }
    }

    /// Whether a world ends by what was found.
    fn ends_world(&self, look: &Look, finding: &Finding) -> bool {
        let Silence { explicit, last, kills, limit_ms, .. } = look.silence;
        if matches!(self.config.spec.hang.action, HangAction::Warn | HangAction::Off) {
            return false;
        }
        if explicit {
            return last && (finding.decisive || !self.is_excused(look));
        }
        if !kills || finding.spared.is_some() || (!finding.decisive && self.waits_for_others(look)) {
            return false;
        }
        // A rank that never beat says nothing of its progress.
        let silent =
            |evidence: &RankEvidence| evidence.sample.is_none() || evidence.silent_ms >= limit_ms / 2;
        let culprits: BTreeSet<Rank> = finding.verdict.culprits.iter().map(|(rank, _)| *rank).collect();
        let of = |rank: &Rank| finding.decisive && !culprits.contains(rank);
        let nobody_advances = look.answers.iter().all(|(rank, _, evidence)| of(rank) || silent(evidence));
        nobody_advances && (finding.corroborated || last)
    }

    /// Others are given more time, and who is silent may wait for them.
    fn is_excused(&self, look: &Look) -> bool {
        let hang = &self.config.spec.hang;
        look.answers.iter().any(|(rank, _, evidence)| {
            let leave = |sample| has_leave(hang, sample, evidence.silent_ms);
            !self.hang.silent.contains(rank) && evidence.sample.as_ref().is_some_and(leave)
        })
    }

    /// Another rank does what has a time of its own, which is not over: whoever is silent may wait for it.
    fn waits_for_others(&self, look: &Look) -> bool {
        look.answers.iter().any(|(rank, _, evidence)| {
            !self.hang.silent.contains(rank) && evidence.sample.as_ref().is_some_and(has_own_time)
        })
    }

    /// What follows where nothing is ended.
    fn next_step(&self, look: &Look, finding: &Finding) -> String {
        let silence = &look.silence;
        if self.config.spec.hang.action == HangAction::Warn {
            return "nothing is done (--hang-action warn)".to_owned();
        }
        if !silence.kills {
            return "nothing is done before the first step (--phase-timeout init=SEC gives it a limit)"
                .to_owned();
        }
        let later = |end| format!("restarting if it is still so after {}", human(Duration::from_millis(end)));
        if let (true, false, Some(end)) = (silence.explicit, silence.last, silence.end_ms) {
            return later(end);
        }
        if silence.explicit || (!finding.decisive && self.waits_for_others(look)) {
            return "waiting: another rank is given more time".to_owned();
        }
        match (&finding.spared, silence.end_ms) {
            (Some(why), _) => format!("nothing is done: {why}"),
            (None, Some(end)) if end > silence.silent_ms => later(end),
            _ => "waiting: some rank advances".to_owned(),
        }
    }

    /// The culprit as it is written down; none where nobody is one.
    fn first_of_hang(&self, now: Now, look: &Look, finding: &Finding) -> Option<FirstFailure> {
        let (rank, node) = finding.verdict.culprits.first()?;
        let (.., evidence) = look.answers.iter().find(|(other, ..)| other == rank)?;
        let silent = human(Duration::from_millis(evidence.silent_ms));
        Some(FirstFailure {
            rank: *rank,
            local_rank: evidence.local_rank.0,
            node: node.clone(),
            pid: evidence.before.pid,
            exit: ExitKind::Hung,
            wall_ms: now.wall_ms,
            summary: format!("did not advance for {silent}: it {}", finding.does),
            words: evidence.stack.as_ref().map(|stack| stack.text.clone()).unwrap_or_default(),
            error_file: String::new(),
            recorded_s: None,
        })
    }

    /// Who is to blame for the hang by which the world breaks now.
    pub(super) fn hung(&self) -> Option<FirstFailure> {
        self.hang.found.as_ref()?.first.clone()
    }

    /// With `--hang-action stop` nothing follows.
    pub(super) fn or_stop(&self, what: &What, mut verdict: policy::Verdict) -> policy::Verdict {
        if matches!(what, What::Hung) && self.config.spec.hang.action == HangAction::Stop {
            verdict.decision = Decision::Stop { code: exit_code::FAILED };
            verdict.why.push("a hang ends the run (--hang-action stop)".to_owned());
        }
        verdict
    }

    fn ranks_back(
        &mut self,
        node: &NodeName,
        attempt: Attempt,
        back: Vec<(Rank, Back)>,
        out: &mut Outbox<Effect>,
    ) {
        for (rank, back) in back {
            self.hang.silent.remove(&rank);
            self.hang.look.take_if(|look| look.rank == rank);
            if self.hang.silent.is_empty() && std::mem::take(&mut self.hang.said) {
                let silent = Duration::from_millis(back.silent_ms);
                out.note(Note::GoesOn { attempt, rank, node: node.clone(), silent });
            }
        }
    }

    /// The world broke before it was heard.
    fn rank_asks_late(&mut self, now: Now, node: &NodeName, msg: CoordinatorMsg, out: &mut Outbox<Effect>) {
        if let CoordinatorMsg::Asked { attempt, local_rank, request } = msg
            && let Some((first, nproc)) = self.first_of(node, attempt)
            && local_rank.0 < nproc
        {
            self.rank_asks(now, Rank(first.0.saturating_add(local_rank.0)), node, request, out);
        }
    }

    /// A rank may ask for the end of the run, and for its own node to be taken out.
    fn rank_asks(
        &mut self,
        now: Now,
        rank: Rank,
        node: &NodeName,
        request: Request,
        out: &mut Outbox<Effect>,
    ) {
        out.note(Note::RankAsks { rank, node: node.clone(), request: request.clone() });
        match request {
            Request::Stop { reason } => {
                let sentence = format!("rank {rank} ({node}) asked for the end of the run: {reason}");
                self.end(now, Outcome::Stopped, exit_code::DO_NOT_REQUEUE, sentence, out);
            }
            Request::Evict { reason } => self.rank_evicts(now, rank, node, &reason, out),
        }
    }

    /// From when on what was learned may be written.
    fn limits_from(&self) -> Option<BootTime> {
        let floor = Duration::from_millis(self.config.spec.hang.floor_ms);
        let started = self.start_sent?.after(floor);
        Some(self.hang.written.map_or(started, |written| written.after(RARELY).max(started)))
    }

    /// Puts what was learned into the journal, rarely: the next attempt, and the next job, begin with it.
    pub(super) fn write_limits(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let due = self.limits_from().is_some_and(|from| now.boot >= from);
        if due && self.hang.learned.differs(self.ledger.limits()) {
            self.hang.written = Some(now.boot);
            let body = Body::Limits(Box::new(self.hang.learned.clone()));
            self.propose(now, body, vec!["how long steps usually take".to_owned()], out);
        }
    }
}

/// Which of two silences says more.
fn weight(silence: &Silence) -> (bool, bool, bool) {
    (silence.last && silence.explicit, silence.last, silence.kills)
}
