//! A world breaks: evidence, verdict, and what follows. One incident for each world, however many ranks fail.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::attribution;
use super::super::error_file;
use super::super::exit::ExitKind;
use super::super::first_failure::{Seen, Standing, TIE, first_failure};
use super::super::ids::{Attempt, NodeName, Rank};
use super::super::liveness::vote::HANG;
use super::super::mutant::Mutant;
use super::super::note::Note;
use super::super::outbox::Outbox;
use super::super::policy::restore::Restore;
use super::super::policy::{self, Broken, Sought};
use super::super::record::{
    Body, Break, Cause, Decision, FirstFailure, Incident, MAX_OTHERS, Member, Outcome, Victim,
};
use super::super::rendezvous;
use super::super::time::{BootTime, Now};
use super::super::torch_store::seen::Reach;
use super::super::wire::ExitReport;
use super::Effect;
use super::doubt::REDIAL;
use super::state::{Breaking, Coordinator, Peer, Phase, Want};

/// An attempt and its nodes.
pub(super) type WorldOf<'a> = (Attempt, &'a [Member]);

/// How long ranks of a world that broke at its start have to show that they fail, too.
const AT_START: Duration = Duration::from_millis(300);

/// What broke a world.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// Ranks failed by themselves.
    Failed,
    /// A node is lost.
    Lost(NodeName),
    /// The ranks of a node are gone with its agent.
    Gone(NodeName),
    /// The ranks of a node are gone with its grant.
    RanOut(NodeName),
    /// A process of an earlier world survived SIGKILL on a node of one that has not begun.
    Dirty(NodeName),
    /// Its ranks did not advance.
    Hung,
    /// Somebody wants it, and why.
    Asked(String),
}

/// Why a run ends: its first failure, else what its hang was found to be.
fn last_sentence(first: Option<&FirstFailure>, hang: Option<&String>) -> String {
    let other = || hang.map_or("the run cannot go on", String::as_str).to_owned();
    first.map_or_else(other, FirstFailure::sentence)
}

impl Coordinator {
    pub(super) fn exited(
        &mut self,
        now: Now,
        node: &NodeName,
        attempt: Attempt,
        exits: Vec<ExitReport>,
        out: &mut Outbox<Effect>,
    ) {
        let failed = exits.iter().any(|e| !e.ours && !e.exit.is_success());
        self.merge(now, node, attempt, exits);
        if failed && self.may_break(attempt) {
            self.break_world(now, What::Failed, out);
        } else if !failed {
            // Some ended with 0 already, so all of them ran: its `Started` may be lost.
            self.node_started(now, node, attempt, out);
        }
    }

    pub(super) fn stopped(
        &mut self,
        now: Now,
        node: &NodeName,
        attempt: Attempt,
        exits: Vec<ExitReport>,
        out: &mut Outbox<Effect>,
    ) {
        let failed = exits.iter().any(|e| !e.ours && !e.exit.is_success());
        self.merge(now, node, attempt, exits);
        let was_busy = self.busy.get(node).is_some_and(|b| b.attempt <= attempt);
        if was_busy {
            self.busy.remove(node);
        }
        if self.may_break(attempt) && self.start_sent.is_some() && self.ledger.member(node).is_some() {
            let what = if failed { What::Failed } else { What::RanOut(node.clone()) };
            self.break_world(now, what, out);
        }
        self.note_all_stopped(now);
        self.dirtied(now, node, out);
    }

    /// Nobody has ranks of the world that broke any more, whoever was the last to say so.
    pub(super) fn note_all_stopped(&mut self, now: Now) {
        if self.busy.is_empty()
            && let Some(broke) = &mut self.breaking
        {
            broke.stopped.get_or_insert(now.boot);
        }
    }

    /// A world that has not begun never will with this node: another one is opened.
    fn dirtied(&mut self, now: Now, node: &NodeName, out: &mut Outbox<Effect>) {
        let dirty = self.peers.get(node).is_some_and(|p| !p.survivors.is_empty());
        let planned = self.phase == Phase::Starting && self.start_sent.is_none();
        if dirty
            && planned
            && self.ledger.member(node).is_some()
            && self.ledger.attempt().is_some_and(|attempt| self.may_break(attempt))
        {
            self.break_world(now, What::Dirty(node.clone()), out);
        }
    }

    /// A world breaks once.
    pub(super) fn may_break(&self, attempt: Attempt) -> bool {
        let current = self.ledger.attempt() == Some(attempt);
        let again = self.broken >= Some(attempt) && !self.config.mutants.has(Mutant::ChargeTwice);
        current && !again && self.ending.is_none() && !self.is_closed() && self.phase != Phase::Electing
    }

    /// A node cannot go on with the newest world.
    pub(super) fn node_gone(&mut self, now: Now, node: &NodeName, lost: bool, out: &mut Outbox<Effect>) {
        let member = self.ledger.member(node).is_some();
        let Some(attempt) = self.ledger.attempt().filter(|_| member) else { return };
        if lost {
            self.also_lost(attempt, node);
        }
        if self.may_break(attempt) && matches!(self.phase, Phase::Starting | Phase::Running) {
            let what = if lost { What::Lost(node.clone()) } else { What::Gone(node.clone()) };
            self.break_world(now, what, out);
        }
    }

    /// The world is broken already: one incident, in which every lost node is named.
    fn also_lost(&mut self, attempt: Attempt, node: &NodeName) {
        let known = |lost: &[NodeName]| lost.contains(node);
        if let Some(broke) = self.breaking.as_mut().filter(|b| b.attempt == attempt && !known(&b.lost)) {
            broke.lost.push(node.clone());
        }
        if let Some(Want { cause: Cause::Incident(broke), why, .. }) = &mut self.want
            && broke.attempt == attempt
            && !known(&broke.lost)
        {
            broke.lost.push(node.clone());
            why.push(format!("{node} was lost"));
        }
    }

    /// This coordinator's own agent came back: the world that the journal knows has lost at least its ranks.
    pub(super) fn agent_returned(&mut self, now: Now, out: &mut Outbox<Effect>) {
        self.phase = Phase::Running;
        self.start_sent = Some(now.boot);
        let node = self.config.node.clone();
        self.break_world(now, What::Gone(node), out);
    }

    pub(super) fn break_world(&mut self, now: Now, what: What, out: &mut Outbox<Effect>) {
        let Some(attempt) = self.ledger.attempt() else { return };
        if let Some(old) = self.breaking.take() {
            self.settling.push(old);
        }
        self.acting.forget();
        self.broken = Some(attempt);
        let incident = self.incident_to_come();
        self.next_incident = incident.saturating_add(1);
        let ends = std::mem::take(&mut self.ends);
        let (first, since) = match what {
            What::Failed => {
                let members = self.ledger.world().map_or(&[][..], |w| &w.members);
                self.blame(now, (attempt, members), &ends.values().cloned().collect::<Vec<_>>())
            }
            What::Hung => (self.hung(), now.boot),
            What::Lost(_) | What::Gone(_) | What::RanOut(_) | What::Dirty(_) | What::Asked(_) => {
                (None, now.boot)
            }
        };
        self.down_since.get_or_insert(since);
        let ran = self.start_sent.map_or(0, |at| since.since(at).as_millis());
        let ran_ms = u64::try_from(ran).unwrap_or(u64::MAX);
        let reached = self.acting.take_reached(attempt, now);
        let by_itself = first.as_ref().is_some_and(|first| matches!(first.exit, ExitKind::Code(_)));
        let at_start = by_itself && self.may_be_hopeless(&reached, ran_ms);
        let blames = self.config.mutants.has(Mutant::BlameVictim);
        let suspects = match &first {
            Some(first) if at_start || lost_its_peer(first, &ends) && !blames => self.unheard(attempt),
            _ => BTreeSet::new(),
        };
        let open = !suspects.is_empty();
        let missed = open && !self.missing(attempt).is_empty();
        self.breaking = Some(Breaking {
            incident,
            attempt,
            members: self.ledger.world().map(|w| w.members.clone()).unwrap_or_default(),
            since,
            ran_ms,
            first: first.filter(|_| !open),
            lost: match &what {
                What::Lost(node) => vec![node.clone()],
                _ => Vec::new(),
            },
            dirty: match &what {
                What::Dirty(node) => Some(node.clone()),
                _ => None,
            },
            verdict: None,
            suspects,
            open_since: now.boot,
            open,
            missed,
            another: None,
            telling: false,
            at_start,
            ends,
            stopped: self.busy.is_empty().then_some(now.boot),
            running: None,
            reach: self.take_reach(attempt),
            found: self.hang.take_found(),
            reached,
            sought: Sought::default(),
            heard: false,
        });
        self.phase = Phase::Gathering;
        if !open {
            self.decide(now, &what, out);
        }
        if at_start && open && self.ending.is_none() {
            // Who is stopped first cannot show that it fails, too.
            self.resend = Some(now.boot.after(AT_START));
        } else if self.ending.is_none() {
            self.order_everybody(now, out);
        }
    }

    /// The number of the next incident. A record of an earlier coordinator may have landed since this one began.
    pub(super) fn incident_to_come(&self) -> u64 {
        self.next_incident.max(self.ledger.next_incident())
    }

    /// Members that have not said yet what became of their ranks of this attempt.
    pub(super) fn unheard(&self, attempt: Attempt) -> BTreeSet<NodeName> {
        let members = self.ledger.world().map_or(&[][..], |w| &w.members);
        let unheard = members.iter().filter(|m| {
            let busy = self.busy.get(&m.node).is_some_and(|b| b.attempt == attempt);
            let there = |p: &Peer| p.incarnation == m.incarnation && !p.lost && !p.left;
            busy && self.peers.get(&m.node).is_some_and(there)
        });
        unheard.map(|m| m.node.clone()).collect()
    }

    /// Those of them of which nobody knows whether they still live.
    fn missing(&self, attempt: Attempt) -> BTreeSet<NodeName> {
        let mut unheard = self.unheard(attempt);
        unheard.retain(|n| !self.peers.get(n).is_some_and(|p| p.linked) || self.in_doubt(n));
        unheard
    }

    /// By then a member that is missing is lost, or it has a connection again. Who is there has been asked to stop its
    /// ranks, and is not waited for longer than a verdict may take.
    pub(super) fn open_until(&self, broke: &Breaking) -> BootTime {
        let numbers = &self.config.spec.numbers;
        let lost = Duration::from_millis(numbers.lost_ms) + REDIAL;
        let settle = Duration::from_millis(numbers.settle_ms).min(lost);
        broke.open_since.after(if broke.missed { lost } else { settle })
    }

    /// Nothing is known yet of the ranks of this suspect.
    fn is_suspect(&self, broke: &Breaking, node: &NodeName) -> bool {
        let lost = self.peers.get(node).is_none_or(|p| p.lost);
        let busy = self.busy.get(node).is_some_and(|b| b.attempt == broke.attempt);
        busy && !lost && !self.is_another(node)
    }

    /// Its agent is another one than that of the newest world.
    fn is_another(&self, node: &NodeName) -> bool {
        let member = self.ledger.member(node).map(|m| m.incarnation);
        member.is_some_and(|life| self.peers.get(node).is_some_and(|p| p.incarnation != life))
    }

    /// Whether a rank that lost its peer was the first to fail is decided when it is known of every member what became
    /// of its ranks: the report of the one that died may come later than that of its victim. Until then nobody is blamed,
    /// and no world is opened; ranks are stopped all the same. That costs no time: the ranks of a new world wait for those
    /// nodes anyway.
    pub(super) fn judge(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.phase != Phase::Gathering || self.ending.is_some() {
            return;
        }
        let Some(broke) = self.breaking.as_ref().filter(|b| self.ledger.attempt() == Some(b.attempt)) else {
            return;
        };
        if broke.open {
            if let Some((what, first)) = self.judged(now) {
                self.decide_again(now, &what, first, out);
            }
            return;
        }
        if self.opening() {
            return;
        }
        if broke.stopped.is_some() && !broke.heard {
            return self.all_heard(now, out);
        }
        if !broke.first.as_ref().is_some_and(|first| lost_its_peer(first, &broke.ends)) {
            return;
        }
        if let Some(node) = broke.lost.first().cloned() {
            self.decide_again(now, &What::Lost(node), None, out);
        } else if !broke.missed {
            // It was told already, and only now somebody is missing.
            let suspects = self.missing(broke.attempt);
            if let Some(broke) = self.breaking.as_mut().filter(|_| !suspects.is_empty()) {
                (broke.suspects, broke.open, broke.open_since, broke.missed) =
                    (suspects, true, now.boot, true);
            }
        }
    }

    /// Everybody has said how its ranks ended: what was decided in haste is looked at again, once.
    fn all_heard(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let Some(broke) = &mut self.breaking else { return };
        broke.heard = true;
        let own = |broke: &&Breaking| broke.first.is_some() && !is_hang(broke);
        let Some(broke) = self.breaking.as_ref().filter(own) else { return };
        let ends: Vec<Seen> = broke.ends.values().cloned().collect();
        let first = self.blame(now, broke.world(), &ends).0;
        let changed = first.as_ref().map(|f| f.rank) != broke.first.as_ref().map(|f| f.rank)
            || self.attribute(broke) != broke.found;
        if changed && first.is_some() {
            self.decide_again(now, &What::Failed, first, out);
        }
    }

    /// What broke the world, as soon as that can be told. Asked after every event, with thousands of members.
    fn judged(&mut self, now: Now) -> Option<(What, Option<FirstFailure>)> {
        let mut broke = self.breaking.take()?;
        let judged = self.judged_of(now, &mut broke);
        self.breaking = Some(broke);
        judged
    }

    fn judged_of(&self, now: Now, broke: &mut Breaking) -> Option<(What, Option<FirstFailure>)> {
        if std::mem::take(&mut broke.telling) && !broke.at_start {
            let first = self.blame_for(now, broke).filter(|first| !lost_its_peer(first, &broke.ends));
            if first.is_some() {
                return Some((What::Failed, first));
            }
        }
        if now.boot >= self.open_until(broke) && !broke.missed {
            broke.missed = !self.missing(broke.attempt).is_disjoint(&broke.suspects);
        }
        if now.boot < self.open_until(broke) {
            while let Some(node) = broke.suspects.first() {
                if self.is_suspect(broke, node) {
                    return None;
                }
                let node = broke.suspects.pop_first();
                broke.another = broke.another.take().or(node.filter(|n| self.is_another(n)));
            }
        }
        let first = self.blame_for(now, broke);
        let ends = broke.ends.values();
        // Stopped before anybody failed and before we asked for it: by its guardian or by its grant.
        let earlier = ends.into_iter().find(|s| s.report.ours && s.at.after(TIE) < broke.since);
        let another = || broke.suspects.iter().find(|n| self.is_another(n)).cloned();
        Some(if first.as_ref().is_some_and(|f| !lost_its_peer(f, &broke.ends)) {
            (What::Failed, first)
        } else if let Some(node) = broke.lost.first() {
            (What::Lost(node.clone()), None)
        } else if let Some(node) = broke.another.clone().or_else(another) {
            (What::Gone(node), None)
        } else if let Some(end) = earlier {
            (What::RanOut(end.node.clone()), None)
        } else {
            (What::Failed, first)
        })
    }

    fn decide_again(&mut self, now: Now, what: &What, first: Option<FirstFailure>, out: &mut Outbox<Effect>) {
        if let Some(broke) = &mut self.breaking {
            (broke.first, broke.open) = (first, false);
        }
        self.decide(now, what, out);
    }

    /// Decides what follows from the world that broke last, or decides it again.
    pub(super) fn decide(&mut self, now: Now, what: &What, out: &mut Outbox<Effect>) {
        self.find();
        let Some(broke) = &self.breaking else { return };
        let (incident, attempt, ran_ms) = (broke.incident, broke.attempt, broke.ran_ms);
        let (first, lost, before) = (broke.first.clone(), broke.lost.clone(), broke.verdict.clone());
        let (dirty, found, unstartable) = (broke.dirty.clone(), broke.found.clone(), unstartable(broke));
        let (reached, sought) = (broke.reached, broke.sought);
        let slot = first.as_ref().and_then(|first| self.ledger.slot(&first.node));
        let free = |(n, p): &(&NodeName, &Peer)| {
            p.usable() && self.ledger.member(n).is_none() && !self.ledger.is_evicted(n)
        };
        let because = match what {
            What::Asked(why) => Some(why.as_str()),
            _ => None,
        };
        let mut gone = lost.clone();
        let out_of_it = |m: &&Member| self.ledger.is_evicted(&m.node) && !lost.contains(&m.node);
        gone.extend(broke.members.iter().filter(out_of_it).map(|m| m.node.clone()));
        let hung = is_hang(broke) && lost.is_empty() && because.is_none();
        let broken = Broken {
            first: first.as_ref(),
            hung,
            gone: &gone,
            dirty: dirty.as_ref(),
            unstartable,
            ran_ms,
            spares: self.peers.iter().filter(free).count(),
            found: &found,
            reached,
            slot,
            leader: &self.config.node,
            because,
            sought,
            signalled: self.signalled(broke.since),
            restore: Restore::default(),
            wall_ms: now.wall_ms,
            random: self.random ^ incident,
            mutants: self.config.mutants,
        };
        let verdict = self.or_stop(what, policy::decide(&self.ledger, &broken));
        let preempted = policy::preemption(&broken);
        if self.seeks(now, what, &verdict, out) {
            return;
        }
        let mut found = found;
        if preempted {
            found.owner = attribution::Owner::Preemption;
        }
        if before.as_ref() != Some(&verdict) {
            self.say_broken(attempt, incident, what, first.as_ref(), out);
            out.note(Note::Decided {
                incident,
                decision: verdict.decision.clone(),
                restart: self.ledger.charged() + u32::from(verdict.charged),
                charged: verdict.charged,
                max_restarts: self.config.spec.max_restarts,
                wait_ms: verdict.wait_ms,
                grows: self.grows(),
                why: verdict.why.clone(),
            });
        }
        if let Some(broke) = &mut self.breaking {
            broke.verdict = Some(verdict.clone());
            broke.found = found.clone();
        }
        self.acting.evicts.clone_from(&verdict.evict);
        if let Decision::Stop { code } = verdict.decision {
            let sentence = last_sentence(first.as_ref(), found.reasons.first().filter(|_| hung));
            return self.end(now, Outcome::Failed, code, sentence, out);
        }
        let replace = self.gives_up_slots(&verdict.decision, &lost);
        let broke = Break {
            incident,
            attempt,
            ran_ms,
            first_failure: first,
            lost,
            decision: verdict.decision.clone(),
            charged: verdict.charged,
            verdict: found,
            slot,
            reached,
            progress: verdict.progress,
            wait_ms: verdict.wait_ms,
            source: verdict.source,
            followed: verdict.followed.clone(),
        };
        self.want_after(now, broke, replace, verdict.why);
    }

    /// Whose slots others take. In a world with room for both a node that comes back keeps its slot.
    fn gives_up_slots(&self, decision: &Decision, lost: &[NodeName]) -> BTreeSet<NodeName> {
        let stays = |n: &&NodeName| !(self.elastic() && lost.contains(n));
        match decision {
            Decision::Replace { nodes } | Decision::Shrink { nodes } => {
                nodes.iter().filter(stays).cloned().collect()
            }
            Decision::Restart | Decision::Stop { .. } => BTreeSet::new(),
        }
    }

    /// The world that follows is wanted, if need be after a while.
    fn want_after(&mut self, now: Now, broke: Break, replace: BTreeSet<NodeName>, why: Vec<String>) {
        let wait = Some(Duration::from_millis(broke.wait_ms)).filter(|wait| !wait.is_zero());
        let not_before = wait.and_then(|wait| Some(self.breaking.as_ref()?.since.after(wait)));
        self.want = Some(Want {
            since: not_before.map_or(now.boot, |at| at.max(now.boot)),
            said_waiting: false,
            late: false,
            call: None,
            call_until: None,
            said_call: false,
            cause: Cause::Incident(Box::new(broke)),
            replace,
            not_before,
            why,
        });
    }

    fn say_broken(
        &self,
        attempt: Attempt,
        incident: u64,
        what: &What,
        first: Option<&FirstFailure>,
        out: &mut Outbox<Effect>,
    ) {
        match (what, first) {
            // What was found was said.
            (What::Hung, Some(_)) => {}
            (_, Some(first)) => {
                let ranks = self.ledger.world().map_or(0, |w| rendezvous::world_size(&w.members));
                let stopped = ranks.saturating_sub(1);
                let spread = self.breaking.as_ref().filter(|broke| broke.found.deterministic);
                let spread =
                    spread.and_then(|b| b.found.reasons.iter().find(|r| r.starts_with("the same on ")));
                let spread = spread.cloned().unwrap_or_default();
                out.note(Note::RankFailed { attempt, incident, first: first.clone(), stopped, spread });
            }
            (What::Gone(node), None) => {
                out.note(Note::AgentReturned { node: node.clone(), attempt, incident });
            }
            (What::RanOut(node), None) => {
                let own = *node == self.config.node;
                out.note(Note::GrantRanOut { node: node.clone(), attempt, incident, own });
            }
            // The loss itself was said when it was noticed.
            (What::Lost(_) | What::Failed | What::Dirty(_) | What::Hung | What::Asked(_), None) => {}
        }
    }

    /// The first failure among the ends of a broken world.
    fn blame_for(&self, now: Now, broke: &Breaking) -> Option<FirstFailure> {
        self.blame(now, broke.world(), &broke.ends.values().cloned().collect::<Vec<_>>()).0
    }

    /// The first failure among these ends, and when it was.
    fn blame(&self, now: Now, world: WorldOf<'_>, ends: &[Seen]) -> (Option<FirstFailure>, BootTime) {
        let earliest =
            ends.iter().filter(|s| !s.report.ours && !s.report.exit.is_success()).map(|s| s.at).min();
        let since = earliest.unwrap_or(now.boot);
        let first = first_failure(ends).and_then(|i| ends.get(i)).map(|s| failure(now, world, s));
        (first, since)
    }

    /// No world follows for a while: the verdict does not wait for one.
    pub(super) fn settle_late(&mut self, now: Now) {
        let settle = Duration::from_millis(self.config.spec.numbers.settle_ms);
        let due = |b: &mut Breaking| !b.open && b.stopped.is_some() && now.boot.since(b.since) >= settle;
        if self.append.is_none()
            && !self.acting.seeks()
            && let Some(broke) = self.breaking.take_if(due)
        {
            self.settling.push(broke);
        }
    }

    /// Writes the next settled verdict: who failed first once everybody is heard, and who was a victim.
    pub(super) fn settle_next(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if self.settling.is_empty() {
            return;
        }
        let broke = self.settling.remove(0);
        let incident = self.verdict_of(now, &broke);
        let mut why = incident_why(&incident, broke.dirty.as_ref());
        why.extend(broke.reach.as_ref().and_then(Reach::sentence));
        // No attempt record tells why nothing was started again.
        if matches!(incident.decision, Decision::Stop { .. }) {
            why.extend(broke.verdict.as_ref().and_then(|v| v.why.last().cloned()));
        }
        self.propose(now, Body::Incident(incident), why, out);
    }

    fn verdict_of(&self, now: Now, broke: &Breaking) -> Incident {
        let ends: Vec<Seen> = broke.ends.values().cloned().collect();
        // "First to exit" is the culprit of a crash, never of a hang.
        let hung = is_hang(broke);
        let found = if hung { broke.found.clone() } else { self.attribute(broke) };
        let found = if found.confidence >= broke.found.confidence { found } else { broke.found.clone() };
        let crashed = broke.first.as_ref().filter(|_| !hung);
        let settled = crashed.and_then(|_| self.blame(now, broke.world(), &ends).0);
        let first = settled.or_else(|| broke.first.clone());
        // The loss of a node explains the ranks that lost their peers, whoever was heard first.
        let blames = self.config.mutants.has(Mutant::BlameVictim);
        let first = first.filter(|f| blames || broke.lost.is_empty() || !lost_its_peer(f, &broke.ends));
        let root = first.as_ref().map(|f| f.rank);
        let victims = ends.iter().filter(|s| Some(s.rank) != root).map(|s| Victim {
            rank: s.rank,
            node: s.node.clone(),
            exit: s.report.exit.clone(),
            ours: s.report.ours,
        });
        let ms = |at: BootTime| u64::try_from(at.since(broke.since).as_millis()).unwrap_or(u64::MAX);
        Incident {
            incident: broke.incident,
            attempt: broke.attempt,
            first_failure: first,
            lost: broke.lost.clone(),
            victims: victims.collect(),
            others: others(now, broke.world(), root, &ends),
            // Without one the run was ended before it could be decided.
            decision: broke.verdict.as_ref().map_or(Decision::Restart, |v| v.decision.clone()),
            stopped_ms: ms(broke.stopped.unwrap_or(now.boot)),
            running_ms: broke.running.map(ms),
            verdict: found,
        }
    }
}

/// No rank could start its program, on none of the nodes; where there is one node, one rank tells for all.
fn unstartable(broke: &Breaking) -> bool {
    let mut ends = broke.ends.values().filter(|seen| !seen.report.ours).peekable();
    let heard: BTreeSet<&NodeName> = broke.ends.values().map(|seen| &seen.node).collect();
    let everywhere = broke.members.iter().all(|member| heard.contains(&member.node));
    everywhere && ends.peek().is_some() && ends.all(|seen| policy::cannot_be_started(&seen.report.exit))
}

/// One end as it is written down.
fn failure(now: Now, (attempt, members): WorldOf<'_>, end: &Seen) -> FirstFailure {
    let (report, local_rank) = (&end.report, end.report.local_rank);
    let ago = u64::try_from(now.boot.since(report.moment(end.at)).as_millis()).unwrap_or(0);
    let dir = members.iter().find(|m| m.node == end.node).map_or("", |m| m.log_dir.as_str());
    let noted = report.recorded.filter(|_| !dir.is_empty());
    FirstFailure {
        rank: end.rank,
        local_rank: local_rank.0,
        node: end.node.clone(),
        pid: report.pid,
        exit: report.exit.clone(),
        wall_ms: now.wall_ms.saturating_sub(ago),
        summary: summary(report),
        words: report.words.clone(),
        error_file: noted.map(|_| error_file::path(dir, attempt, local_rank)).unwrap_or_default(),
        recorded_s: report.recorded.and_then(|recorded| recorded.at_s),
    }
}

/// Who else ended by itself, as the report lists them.
fn others(now: Now, world: WorldOf<'_>, root: Option<Rank>, ends: &[Seen]) -> Vec<FirstFailure> {
    let own = |s: &&Seen| !s.report.ours && !s.report.exit.is_success() && Some(s.rank) != root;
    let mut others: Vec<&Seen> = ends.iter().filter(own).collect();
    others.sort_by_key(|s| (s.report.moment(s.at), s.rank));
    let listed = others.into_iter().take(MAX_OTHERS);
    let brief = |s: &Seen| FirstFailure { words: String::new(), ..failure(now, world, s) };
    listed.map(brief).collect()
}

fn lost_its_peer(first: &FirstFailure, ends: &BTreeMap<Rank, Seen>) -> bool {
    if let Some(end) = ends.get(&first.rank) {
        return end.report.standing() == Standing::PeerLost;
    }
    // Without words of its own the summary only says how it ended.
    let summary = if first.summary == first.exit.evidence("") { "" } else { &first.summary };
    Standing::of(&first.exit, summary, &first.words) == Standing::PeerLost
}

/// Its ranks were ended because they did not advance: their ends say nothing.
fn is_hang(broke: &Breaking) -> bool {
    broke.found.cause == HANG
}

fn incident_why(incident: &Incident, dirty: Option<&NodeName>) -> Vec<String> {
    let mut why = Vec::new();
    if let Some(first) = &incident.first_failure {
        why.push(first.sentence());
    }
    why.extend(incident.lost.iter().map(|n| format!("{n} was lost")));
    why.extend(dirty.map(policy::dirty));
    if why.is_empty() {
        why.push("an agent died and its ranks with it".to_owned());
    }
    why
}

/// What it died of, in one line. An exit 0 is a failure only when its peers failed because of it.
fn summary(report: &ExitReport) -> String {
    match &report.exit {
        ExitKind::Code(0) => "ended with exit code 0 while its peers still ran".to_owned(),
        // What was measured, or said in other words than an exception's, explains a signal or a code.
        exit if report.summary.is_empty() => exit.evidence(&report.evidence.explains()),
        exit => exit.evidence(&report.summary),
    }
}
