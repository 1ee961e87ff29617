//! What an agent does about each event.

use std::sync::Arc;
use std::time::Duration;

use super::super::attribution::evidence::{Facts, Spoken, weigh};
use super::super::exit::ExitKind;
use super::super::ids::{Attempt, Incarnation, LocalRank, Op, Rank, StoreId};
use super::super::liveness::watch::Watch;
use super::super::mutant::Mutant;
use super::super::note::{NoPlace, Note, Stale};
use super::super::outbox::Outbox;
use super::super::record::{Body, Record};
use super::super::rendezvous;
use super::super::spec::RunSpec;
use super::super::time::{BootTime, Now};
use super::super::wire::{AgentMsg, CoordinatorMsg, RefusedWhy, StopOrder, ToAgent, World};
use super::signals::Heard;
use super::state::{Agent, GONE, Goal, Joining, LONGEST_JOIN, Life, Local, Phase, QUIT, RESEND, Said, Team};
use super::{Effect, Event, Scope, Seat};

impl Agent {
    pub(super) fn take(&mut self, now: Now, event: Event, out: &mut Outbox<Effect>) {
        match event {
            Event::Begin => self.begin(now, out),
            Event::LinkUp => {
                self.link = true;
                self.join(now, out);
            }
            Event::LinkDown => self.link_down(now, out),
            Event::Recv(frame) => self.recv(now, frame, out),
            Event::Spawned { op, pid } => self.spawned(now, op, pid, out),
            Event::SpawnFailed { op, errno, what } => {
                let exit = ExitKind::NeverStarted { errno, what };
                let evidence = Box::new(weigh(&exit, &Spoken::default(), &[], Facts::default()));
                let said = Said { evidence, ..Said::default() };
                match self.seat(op) {
                    Some(local) => self.ended(now, local, exit, now.boot, said, out),
                    None => out.note(Note::UnknownOp { op }),
                }
            }
            Event::RankExited { attempt, local_rank, kind, at, summary, words, recorded, evidence } => {
                if self.team.as_ref().is_some_and(|t| t.attempt == attempt) {
                    let said = Said { summary, words, recorded, evidence };
                    self.ended(now, local_rank, kind, at, said, out);
                } else {
                    out.note(Note::Dropped { stale: Stale::Attempt });
                }
            }
            Event::LastPage { attempt, local_rank, sample, failed } => {
                self.last_page(attempt, local_rank, sample, failed, out);
            }
            Event::Swept { op, survivors } => self.swept(now, op, survivors, out),
            Event::OfferReady { op, offer } if self.offer_op == Some(op) => {
                self.offer_op = None;
                self.offer = Some(offer.clone());
                if self.welcomed {
                    self.send(CoordinatorMsg::Offered(offer), out);
                }
            }
            Event::OfferFailed { op } if self.offer_op == Some(op) => {
                self.offer_op = None;
                self.offer_retry = Some(now.boot.after(RESEND));
            }
            Event::StoreSeen { attempt, reach } => {
                if self.welcomed && self.team.as_ref().is_some_and(|t| t.attempt == attempt) {
                    self.send(CoordinatorMsg::Store { attempt, reach }, out);
                }
            }
            Event::OfferReady { op, .. } | Event::OfferFailed { op } => out.note(Note::UnknownOp { op }),
            Event::Granted(until) => {
                self.grant = self.grant.max(until);
                self.start_if_granted(now, out);
            }
            Event::Reached { node, ok } => self.send(CoordinatorMsg::Reach { node, ok }, out),
            Event::LeaderSilent { since } if self.welcomed => {
                self.alone = Some(since);
                self.link_down(now, out);
            }
            // It is looked for already.
            Event::LeaderSilent { .. } => {}
            Event::Proof(proof) => self.proof = Some(proof),
            Event::Probed { name, won } => self.send(CoordinatorMsg::Probed { name, won }, out),
            Event::Checked { attempt, results } => self.checked(attempt, results, out),
            Event::RunEnded { code } => self.leave(now, code, out),
            Event::RanksKilled => {
                if matches!(self.phase, Phase::Spawning | Phase::Running | Phase::Asking { .. }) {
                    self.disown_ends();
                    self.sweep(now, Goal::Stop, out);
                }
            }
            Event::OsSignal { signal, terminal, pid, uid, user } => {
                self.os_signal(now, signal, (terminal, user), pid, uid, out);
            }
            Event::Tick => {}
            Event::Looked { attempt, samples } => self.looked(now, attempt, samples, out),
            Event::Inspected { attempt, id, ranks, whole } => self.inspected(attempt, id, ranks, whole, out),
        }
    }

    fn begin(&mut self, now: Now, out: &mut Outbox<Effect>) {
        self.orphan = Some(now.boot.after(Duration::from_millis(self.numbers().join_timeout_ms)));
        if !self.survivors.is_empty() {
            self.phase =
                Phase::Dirty { retry: now.boot.after(Duration::from_millis(self.numbers().sweep_ms)) };
        }
        self.open_offer(out);
        out.put(Effect::Connect);
    }

    fn open_offer(&mut self, out: &mut Outbox<Effect>) {
        let op = self.op();
        self.offer_op = Some(op);
        self.offer_retry = None;
        out.put(Effect::OpenOffer { op });
    }

    fn join(&mut self, now: Now, out: &mut Outbox<Effect>) {
        // It says what runs here; a `Start` from before the answer must not make it untrue.
        self.waiting = None;
        let pause = self.joining.map_or(RESEND, |join| (join.pause * 2).min(LONGEST_JOIN));
        self.joining = Some(Joining { n: self.sent, again: now.boot.after(pause), pause });
        let msg = CoordinatorMsg::Join {
            spec: Box::new(self.config.spec.clone()),
            offer: self.offer.clone(),
            store: self.config.store.clone(),
            proof: self.proof,
            clean_of: self.config.clean_of.clone(),
            running: self.alive().map(|(attempt, _)| attempt),
            next: self.ledger.next(),
            survivors: self.survivors.clone(),
        };
        self.send(msg, out);
    }

    fn link_down(&mut self, now: Now, out: &mut Outbox<Effect>) {
        // A link that brought no welcome, or a try that failed, gives no more time.
        let had = self.welcomed || self.orphan.is_none();
        self.link = false;
        self.welcomed = false;
        self.resend = None;
        self.joining = None;
        self.waiting = None;
        if !had {
            return out.put(Effect::Connect);
        }
        // Until the grant is over the coordinator may come back; after that for a while still.
        let from = if self.grant == BootTime::NEVER { now.boot } else { self.grant.max(now.boot) };
        let patience = Duration::from_millis(self.numbers().orphan_ms);
        self.orphan = Some(from.after(patience));
        self.alone.get_or_insert(now.boot);
        self.mourn = Some(from.max(now.boot.after(GONE)));
        out.note(Note::NoCoordinator { patience: from.after(patience).since(now.boot) });
        out.put(Effect::Connect);
    }

    fn recv(&mut self, now: Now, frame: ToAgent, out: &mut Outbox<Effect>) {
        let stale = match self.promised {
            Some(promised) if frame.term < promised => Some(Stale::Term),
            Some(promised) if frame.term == promised && self.seen.is_some_and(|seen| frame.n <= seen) => {
                Some(Stale::Repeated)
            }
            _ => None,
        };
        if let Some(stale) = stale
            && !self.config.mutants.has(Mutant::AcceptStale)
        {
            return out.note(Note::Dropped { stale });
        }
        if self.promised != Some(frame.term) {
            self.welcomed = false;
        }
        self.promised = Some(frame.term);
        self.seen = Some(frame.n);
        match frame.msg {
            AgentMsg::Welcome { store, .. } if self.is_other_run(store.as_ref()) => {
                // Its numbers start anew: what is known of the run before must not be taken for its own.
                out.note(Note::NoPlace { why: NoPlace::OtherRun });
                self.leave(now, super::super::exit_code::FAILED, out);
            }
            AgentMsg::Welcome { answers, store, spec, tail, leader, dead, forever } => {
                self.run_of = store.or(self.run_of.take());
                if self.joining.is_some_and(|join| join.n == answers) {
                    self.joining = None;
                }
                self.welcome(now, *spec, &tail, out);
                let previous_dead = self.leader.is_some_and(|before| dead.contains(&before));
                self.leader = Some(leader);
                out.put(Effect::Follow { term: frame.term, leader, previous_dead, forever });
            }
            AgentMsg::Refused(why) => {
                let no_place = match &why {
                    RefusedWhy::SameName => Some(NoPlace::SameName { node: self.config.node.clone() }),
                    RefusedWhy::Differs { what, leader } => {
                        Some(NoPlace::Differs { what: what.clone(), leader: leader.clone() })
                    }
                    RefusedWhy::Ended(_) | RefusedWhy::OtherStore | RefusedWhy::Evicted => None,
                };
                if let Some(why) = no_place {
                    out.note(Note::NoPlace { why });
                }
                self.leave(now, refused_code(&why), out);
            }
            AgentMsg::Start { attempt, life, world } => self.start(now, attempt, life, world, out),
            AgentMsg::Stop { attempt, order, why: _ } => self.stop_order(now, attempt, order, out),
            AgentMsg::Committed(record) => self.committed(now, &record, out),
            AgentMsg::TryReach { node, address } => out.put(Effect::Reach { node, address }),
            AgentMsg::PassOn { signal } => self.pass_on(signal, out),
            AgentMsg::Probe { name } => out.put(Effect::Probe { name }),
            AgentMsg::Finish { code } => self.leave(now, code, out),
            AgentMsg::Inspect { attempt, id } => self.inspect(attempt, id, out),
            AgentMsg::Evicted { why } => {
                out.note(Note::TakenOut { why });
                self.leave(now, 0, out);
            }
            AgentMsg::Check { attempt } => self.asked_for_health(attempt, out),
        }
    }

    /// A coordinator that writes into another run directory than the one that was followed leads another run.
    fn is_other_run(&self, store: Option<&StoreId>) -> bool {
        store.zip(self.run_of.as_ref()).is_some_and(|(theirs, ours)| theirs != ours)
    }

    fn welcome(&mut self, now: Now, spec: RunSpec, tail: &[Arc<Record>], out: &mut Outbox<Effect>) {
        self.spec = Some(spec);
        self.welcomed = true;
        self.orphan = None;
        (self.alone, self.mourn) = (None, None);
        self.resend = None;
        for record in tail {
            // Read already, or a gap that the next Welcome fills.
            let _ = self.ledger.apply(record);
            self.store_over(record, out);
        }
        if let (Some(offer), true) = (self.offer.clone(), self.offer_op.is_none()) {
            self.send(CoordinatorMsg::Offered(offer), out);
        }
        self.report(now, out);
        self.watch.tell_again();
        self.requests.clear();
        self.tell_health(out);
        if let Some(signal) = self.signals.first() {
            let msg = CoordinatorMsg::Signal { signal, terminal: false, pid: None, uid: None, again: false };
            self.send(msg, out);
        }
    }

    fn committed(&mut self, now: Now, record: &Record, out: &mut Outbox<Effect>) {
        if record.seq < self.ledger.next() {
            return out.note(Note::Dropped { stale: Stale::Repeated });
        }
        if self.ledger.apply(record).is_err() {
            // Something between was lost on the way: the answer to a new Join brings it.
            self.join(now, out);
        }
        self.store_over(record, out);
    }

    /// A node that becomes a spare is not told of the next attempt's start: the record is what it learns of it. Others
    /// may have ranks still.
    fn store_over(&mut self, record: &Record, out: &mut Outbox<Effect>) {
        let Body::Attempt(world) = &record.body else { return };
        let spare = world.members.iter().all(|member| member.node != self.config.node);
        if let Some(team) = self.team.as_ref().filter(|team| spare && team.attempt < record.attempt) {
            out.put(Effect::StoreOver { attempt: team.attempt });
        }
    }

    fn start(
        &mut self,
        now: Now,
        attempt: Attempt,
        life: Incarnation,
        world: Arc<World>,
        out: &mut Outbox<Effect>,
    ) {
        let running = self.team.as_ref().is_some_and(|t| t.attempt == attempt);
        if running && matches!(self.phase, Phase::Running | Phase::Finished) {
            // Our answer got lost.
            return self.report(now, out);
        }
        let old = self.floor.is_some_and(|floor| attempt <= floor)
            || self.ledger.attempt().is_some_and(|newest| attempt < newest);
        if (old || self.joining.is_some()) && !self.config.mutants.has(Mutant::AcceptStale) {
            out.note(Note::Dropped { stale: Stale::Attempt });
            if self.floor == Some(attempt) && self.joining.is_none() {
                // It is over here already; that word got lost.
                self.report(now, out);
            }
            return;
        }
        let seat =
            life == self.config.incarnation && world.members.iter().any(|m| m.node == self.config.node);
        if !seat || self.leaving.is_some() {
            return out.note(Note::Dropped { stale: Stale::Incarnation });
        }
        self.waiting = Some((attempt, Box::new(Arc::unwrap_or_clone(world))));
        self.start_if_granted(now, out);
    }

    /// Ranks start only under a grant and only when nothing of an earlier attempt is left.
    pub(super) fn start_if_granted(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let quiet = matches!(self.phase, Phase::Idle | Phase::Finished);
        if !quiet || !self.has_grant(now) {
            return;
        }
        let Some((attempt, world)) = self.waiting.take() else { return };
        if self.ledger.attempt().is_some_and(|newest| attempt < newest) {
            return out.note(Note::Dropped { stale: Stale::Attempt });
        }
        let own = world.members.iter().find(|m| m.node == self.config.node);
        let (Some(slot), Some(first)) =
            (own.map(|m| m.slot), rendezvous::first_rank(&world.members, &self.config.node))
        else {
            return;
        };
        let mut seats = Vec::new();
        let mut ranks = std::collections::BTreeMap::new();
        for local in 0..self.config.spec.nproc {
            let (op, rank, local_rank) = (self.op(), Rank(first.0.saturating_add(local)), LocalRank(local));
            seats.push(Seat { op, rank, local_rank });
            ranks.insert(
                local_rank,
                Local { op, rank, pid: 0, life: Life::Spawning, asked: None, ours: false },
            );
        }
        self.team = Some(Team { attempt, ranks });
        self.floor = Some(attempt);
        let place = world.members.iter().position(|m| m.node == self.config.node).unwrap_or(0);
        self.watch = Watch::of_node(place, world.members.len());
        self.requests.clear();
        self.offer = None;
        self.resend = None;
        self.phase = Phase::Spawning;
        out.put(Effect::Spawn { attempt, world, slot, seats });
        self.open_offer(out);
    }

    fn stop_order(&mut self, now: Now, attempt: Attempt, order: StopOrder, out: &mut Outbox<Effect>) {
        let newest = self.team.as_ref().map(|t| t.attempt);
        let old = newest.is_some_and(|running| attempt < running);
        if old && !self.config.mutants.has(Mutant::AcceptStale) {
            return out.note(Note::Dropped { stale: Stale::Attempt });
        }
        self.floor = self.floor.max(Some(attempt));
        if self.busy() {
            return self.stop(now, order, out);
        }
        if self.waiting.as_ref().is_some_and(|(waiting, _)| *waiting <= attempt) {
            self.waiting = None;
        }
        if let Phase::Finished = self.phase {
            self.phase = Phase::Idle;
        }
        self.report(now, out);
    }

    fn seat(&self, op: Op) -> Option<LocalRank> {
        let team = self.team.as_ref()?;
        team.ranks
            .iter()
            .find(|(_, l)| l.op == op && matches!(l.life, Life::Spawning))
            .map(|(local, _)| *local)
    }

    fn spawned(&mut self, now: Now, op: Op, pid: u32, out: &mut Outbox<Effect>) {
        let Some(local_rank) = self.seat(op) else { return out.note(Note::UnknownOp { op }) };
        let Some(team) = &mut self.team else { return };
        let attempt = team.attempt;
        if let Some(local) = team.ranks.get_mut(&local_rank) {
            local.pid = pid;
            local.life = Life::Alive;
            out.note(Note::Spawned { attempt, rank: local.rank, pid });
        }
        self.settle_spawning(now, out);
    }

    fn settle_spawning(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let spawning = |t: &Team| t.ranks.values().any(|l| matches!(l.life, Life::Spawning));
        if !matches!(self.phase, Phase::Spawning) || self.team.as_ref().is_some_and(spawning) {
            return;
        }
        self.phase = Phase::Running;
        let Some(attempt) = self.team.as_ref().map(|t| t.attempt) else { return };
        let failed = |t: &Team| t.ranks.values().any(|l| matches!(l.life, Life::Ended { .. }));
        if !self.team.as_ref().is_some_and(failed) {
            return self.report(now, out);
        }
        // Some ended while others were still being spawned. The start is told all the same unless one
        // of them never ran.
        let never = |t: &Team| {
            t.ranks
                .values()
                .any(|l| matches!(&l.life, Life::Ended { exit: ExitKind::NeverStarted { .. }, .. }))
        };
        if !self.team.as_ref().is_some_and(never) {
            self.send(CoordinatorMsg::Started(attempt), out);
        }
        self.settle_running(now, None, out);
    }

    /// With only one end that is new, only that one is told: the coordinator has the others, or asks again.
    fn settle_running(&mut self, now: Now, newest: Option<LocalRank>, out: &mut Outbox<Effect>) {
        if !matches!(self.phase, Phase::Running) {
            return;
        }
        let success = |t: &Team| {
            t.ranks
                .values()
                .all(|l| matches!(&l.life, Life::Ended { exit, .. } if exit.is_success() && !l.ours))
        };
        if self.team.as_ref().is_some_and(success) {
            self.sweep(now, Goal::Finish, out);
        } else if let Some(local_rank) = newest {
            self.report_end(now, local_rank, out);
        } else {
            self.report(now, out);
        }
    }

    fn ended(
        &mut self,
        now: Now,
        local_rank: LocalRank,
        exit: ExitKind,
        at: BootTime,
        said: Said,
        out: &mut Outbox<Effect>,
    ) {
        let Some(team) = &mut self.team else { return };
        let attempt = team.attempt;
        let Some(local) = team.ranks.get_mut(&local_rank) else { return };
        if matches!(local.life, Life::Ended { .. }) {
            return out.note(Note::Dropped { stale: Stale::Repeated });
        }
        // The guardian kills at the end of the grant, also while this agent is stopped: no evidence. What ended before it was
        // asked to is, though its last words were read and it is heard of only after that.
        local.ours = local.asked.is_some_and(|asked| at >= asked) || at >= self.grant;
        out.note(Note::RankEnded { attempt, rank: local.rank, how: exit.to_string(), ours: local.ours });
        local.life = Life::Ended { exit, at, said };
        match self.phase {
            Phase::Spawning => self.settle_spawning(now, out),
            Phase::Running => self.settle_running(now, Some(local_rank), out),
            Phase::Asking { .. } => self.stop_if_quiet(now, out),
            _ => {}
        }
    }

    fn os_signal(
        &mut self,
        now: Now,
        signal: u8,
        (terminal, user): (bool, bool),
        pid: Option<u32>,
        uid: Option<u32>,
        out: &mut Outbox<Effect>,
    ) {
        const PASSED_ON: [u8; 2] = [10, 12];
        if PASSED_ON.contains(&signal) {
            if self.welcomed {
                self.send(CoordinatorMsg::Heard { signal }, out);
            }
            return self.pass_on(signal, out);
        }
        // Slurm sends CONT around its TERM.
        if !super::super::guardian::STOP_SIGNALS.contains(&signal) {
            return;
        }
        let heard = self.signals.hear(now.boot, signal, terminal, user);
        if heard == Heard::Same {
            return;
        }
        let again = heard == Heard::Again;
        if self.welcomed {
            self.send(CoordinatorMsg::Signal { signal, terminal, pid, uid, again }, out);
        }
        if again {
            // A stop needs nobody's leave, and a person who asks twice does not wait for a coordinator either.
            self.quit = self.quit.or(Some((now.boot.after(QUIT), 128_u8.saturating_add(signal))));
            self.stop(now, Self::kill_order(), out);
        }
        if !self.welcomed {
            let code = 128_u8.saturating_add(signal);
            if again || !self.busy() {
                self.leave(now, code, out);
            } else {
                self.leaving = Some(code);
                let explicit = self.spec.as_ref().and_then(|spec| spec.shutdown_timeout_ms);
                let grace_ms = explicit.unwrap_or(self.numbers().leave_ms);
                self.stop(now, StopOrder { signal, grace_ms }, out);
                if let Phase::Asking { until } = self.phase {
                    // Nobody is looked for any more; the ranks have the time that they were given.
                    self.orphan = self.orphan.map(|at| at.max(until));
                }
            }
        }
    }

    /// Ranks that handle it get it; the others would die of it.
    fn pass_on(&self, signal: u8, out: &mut Outbox<Effect>) {
        out.note(Note::SignalPassed { signal });
        let Some(team) = &self.team else { return };
        for (local_rank, _) in team.ranks.iter().filter(|(_, l)| matches!(l.life, Life::Alive)) {
            out.put(Effect::Signal { local_rank: *local_rank, scope: Scope::IfCaught, signal });
        }
    }

    /// Ranks run only under a grant. Looked at before every event too: the end of a rank that the guardian
    /// killed for it is no failure.
    pub(super) fn kill_without_grant(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let runs = matches!(self.phase, Phase::Spawning | Phase::Running | Phase::Asking { .. });
        if runs && !self.has_grant(now) {
            if let Some(team) = &self.team {
                out.note(Note::GrantOver { attempt: team.attempt });
            }
            // From then on the guardian killed them, whatever grant we have by the time we hear of it.
            let over = self.grant;
            for local in self.team.iter_mut().flat_map(|team| team.ranks.values_mut()) {
                local.asked = Some(local.asked.map_or(over, |asked| asked.min(over)));
            }
            self.sweep(now, Goal::Stop, out);
        }
    }

    /// Whatever is due at this instant, whichever event brought us here.
    pub(super) fn on_time(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let due = |at: Option<BootTime>| at.is_some_and(|at| now.boot >= at);
        self.kill_without_grant(now, out);
        self.stop_if_quiet(now, out);
        self.check_if_quiet(out);
        if let Phase::Dirty { retry } = self.phase
            && now.boot >= retry
        {
            self.sweep(now, Goal::Stop, out);
        }
        if due(self.offer_retry) {
            self.open_offer(out);
        }
        if due(self.resend) {
            self.resend = None;
            self.report(now, out);
        }
        if due(self.joining.map(|join| join.again)) {
            self.join(now, out);
        }
        if let Some((at, code)) = self.quit
            && now.boot >= at
        {
            self.quit = None;
            self.leave(now, code, out);
        }
        if due(self.mourn) {
            self.mourn = None;
            self.mourns(now, out);
        }
        if due(self.orphan) {
            self.orphan = None;
            self.mourn = None;
            out.note(self.gave_up(now));
            self.leave(now, 1, out);
        }
    }

    /// No coordinator says anything any more: of all agents the one on the first voter that is left speaks.
    /// Voters that were lost are none any more, so it is most likely there. Whoever is no voter speaks for itself.
    fn speaks(&self) -> bool {
        let leader = self.ledger.leader().map(|(lead, _)| &lead.node);
        let voters = self.ledger.voters();
        let first = voters.iter().find(|v| Some(*v) != leader).or(voters.first());
        first == Some(&self.config.node) || !voters.contains(&self.config.node)
    }

    fn mourns(&self, now: Now, out: &mut Outbox<Effect>) {
        let Some((lead, _)) = self.ledger.leader() else { return };
        out.note(Note::LeaderGone {
            leader: lead.node.clone(),
            silent: self.alone.map_or(Duration::ZERO, |since| now.boot.since(since)),
            patience: self.orphan.map_or(Duration::ZERO, |at| at.since(now.boot)),
            // In the same process the coordinator has said why it ended.
            speaks: self.speaks() && lead.node != self.config.node,
        });
    }

    fn gave_up(&self, now: Now) -> Note {
        let leader = self.ledger.leader().map(|(lead, _)| lead.node.clone());
        let first = self.ledger.leader().is_some_and(|(lead, _)| lead.voters.first() == Some(&lead.node));
        let silent = self.alone.map_or(Duration::ZERO, |since| now.boot.since(since));
        Note::GaveUp { leader, first, silent, speaks: self.speaks() }
    }
}

fn refused_code(why: &RefusedWhy) -> u8 {
    match why {
        RefusedWhy::Ended(code) => *code,
        RefusedWhy::OtherStore => 1,
        // A node that is kept out must not spoil the exit code of the step that the others run in.
        RefusedWhy::Evicted => 0,
        RefusedWhy::SameName | RefusedWhy::Differs { .. } => super::super::exit_code::USAGE,
    }
}
