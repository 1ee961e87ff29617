//! What a coordinator does about each event, and what it does next whichever event came.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::super::ids::{NodeName, Op};
use super::super::mutant::Mutant;
use super::super::note::{Note, Stale};
use super::super::outbox::Outbox;
use super::super::record::{Body, Cause, Ground, Lead, Membership, Outcome, Record};
use super::super::time::{BootTime, Now};
use super::super::wire::{AgentMsg, CoordinatorMsg, ToCoordinator};
use super::state::{Busy, Coordinator, FIRST_WAIT, PARTING, Phase, REMOVAL, Want};
use super::{Appended, Effect, Event};

/// With more nodes than these a record is no short message.
const FEW: usize = 64;

impl Coordinator {
    pub(super) fn take(&mut self, now: Now, event: Event, out: &mut Outbox<Effect>) {
        match event {
            Event::Begin => self.elect(now, out),
            Event::Recv { from, frame } => self.recv(now, from, frame, out),
            Event::LinkDown { node, incarnation } => self.link_down(now, &node, incarnation),
            Event::Silent { node, silent } => self.silent(now, &node, silent, out),
            Event::Quiet { node, silent } => self.quiet(now, node, silent, out),
            Event::Late { node, silent } => self.late(node, silent, out),
            Event::Supervisor(message) => self.supervisor_says(now, message, out),
            Event::SupervisorLink { up } => self.supervisor_link(up, out),
            Event::Back { node } => self.back(&node),
            Event::AuthorityHeld => {
                self.authority = true;
                self.authority_missed = None;
            }
            Event::AuthorityOver => self.authority = false,
            Event::GrantsClosed { node, over_at } => self.grants_closed(&node, over_at, out),
            Event::Appended { op, outcome } => self.appended(now, op, outcome, out),
            Event::Probed { name, won } => self.probed(None, &name, won, out),
            Event::StoreTrouble { text } => self.store_trouble(now, text, out),
            Event::Order { id, ordered } => self.order(now, id, ordered, out),
            Event::Found(found) => self.found(found),
            Event::Tick => {}
            Event::Burst(events) => {
                for event in events {
                    if self.phase != Phase::StoodDown {
                        self.take(now, event, out);
                    }
                }
            }
        }
    }

    fn elect(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let lead = Lead {
            node: self.config.node.clone(),
            addresses: self.config.addresses.clone(),
            job: self.config.job.clone(),
            launch: self.config.launch.clone(),
            voters: if self.config.ground == Ground::Returned && !self.ledger.voters().is_empty() {
                self.ledger.voters().to_vec()
            } else {
                self.config.voters.clone()
            },
            ground: self.config.ground,
            spec: (self.config.ground == Ground::First).then(|| self.config.spec.clone()),
        };
        let why = match self.config.ground {
            Ground::First => "the run is launched",
            Ground::Returned => "the agent of the coordinator died and its guardian started it again",
        };
        self.propose(now, Body::Lead(lead), vec![why.to_owned()], out);
    }

    fn recv(&mut self, now: Now, from: NodeName, frame: ToCoordinator, out: &mut Outbox<Effect>) {
        if self.term.is_none() {
            match frame.msg {
                CoordinatorMsg::Join { .. } => drop(self.early.insert(from, frame)),
                CoordinatorMsg::Leaving if from == self.config.node => {
                    self.stand_down("its own agent left before it led".to_owned(), out);
                }
                _ => {}
            }
            return;
        }
        if let CoordinatorMsg::Join { .. } = frame.msg {
            return self.join(now, from, frame, out);
        }
        let stale = match self.peers.get(&from) {
            None => Some(Stale::Incarnation),
            Some(peer) if peer.incarnation != frame.incarnation => Some(Stale::Incarnation),
            Some(_) if frame.term != self.term => Some(Stale::Term),
            Some(peer) if peer.seen.is_some_and(|seen| frame.n <= seen) => Some(Stale::Repeated),
            Some(_) => None,
        };
        if let Some(stale) = stale
            && !self.config.mutants.has(Mutant::AcceptStale)
        {
            return out.note(Note::Dropped { stale });
        }
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.seen = Some(frame.n);
        }
        self.hear(now, &from, frame.msg, out);
    }

    fn hear(&mut self, now: Now, from: &NodeName, msg: CoordinatorMsg, out: &mut Outbox<Effect>) {
        match msg {
            CoordinatorMsg::Join { .. } => {}
            CoordinatorMsg::Started(attempt) => self.node_started(now, from, attempt, out),
            CoordinatorMsg::Exited { attempt, exits } => self.exited(now, from, attempt, exits, out),
            CoordinatorMsg::Stopped { attempt, exits, survivors, offer } => {
                if let (Some(peer), Some(_)) = (self.peers.get_mut(from), &offer) {
                    peer.offer = offer;
                }
                self.survived(from, survivors, out);
                self.stopped(now, from, attempt, exits, out);
            }
            CoordinatorMsg::Finished { attempt, exits } => self.node_finished(now, from, attempt, exits, out),
            CoordinatorMsg::Reach { node, ok } => self.reach(from, &node, ok),
            CoordinatorMsg::Probed { name, won } => self.probed(Some(from), &name, won, out),
            CoordinatorMsg::Signal { signal, terminal, pid, uid, again } => {
                self.asked_to_stop(now, signal, terminal, pid.zip(uid), again, out);
            }
            CoordinatorMsg::Store { attempt, reach } => self.store_says(now, attempt, reach),
            CoordinatorMsg::Offered(offer) => {
                if let Some(peer) = self.peers.get_mut(from) {
                    peer.offer = Some(offer);
                }
            }
            CoordinatorMsg::Heard { signal } => self.heard_signal(now, signal),
            CoordinatorMsg::Silent { .. }
            | CoordinatorMsg::Back { .. }
            | CoordinatorMsg::Progress { .. }
            | CoordinatorMsg::Inspected { .. }
            | CoordinatorMsg::Asked { .. } => self.hears_of_ranks(now, from, msg, out),
            CoordinatorMsg::Health { attempt, results } => self.health_says(from, attempt, results, out),
            CoordinatorMsg::Leaving => {
                self.busy.remove(from);
                if let Some(peer) = self.peers.get_mut(from) {
                    peer.left = true;
                }
            }
        }
    }

    fn appended(&mut self, now: Now, op: Op, outcome: Appended, out: &mut Outbox<Effect>) {
        let Some(flight) = self.append.take_if(|f| f.op == op) else {
            return out.note(Note::UnknownOp { op });
        };
        let took = now.boot.since(flight.since);
        if flight.trouble_said.is_some() {
            out.note(Note::StoreBack { after: took });
        }
        match outcome {
            Appended::Written => {
                out.note(Note::Written { seq: flight.record.seq, took });
                if self.learn(&flight.record, out) {
                    self.after(now, &flight.record, out);
                }
            }
            Appended::Lost(other) => {
                out.note(Note::AppendLost { seq: flight.record.seq });
                self.learn(&other, out);
                let overtaken = self.ledger.term() > self.term && self.term.is_some();
                if overtaken {
                    return self.stand_down(format!("{} leads", other.writer.node), out);
                }
                if self.phase == Phase::Electing {
                    // Two of one launch wanted to lead: who came second joins.
                    let other = self.ledger.leader().filter(|(lead, _)| self.is_of_this_launch(lead));
                    if let Some((lead, _)) = other.filter(|_| self.ledger.end().is_none()) {
                        return self.stand_down(format!("{} leads this launch already", lead.node), out);
                    }
                    self.elect(now, out);
                }
            }
        }
    }

    fn is_of_this_launch(&self, lead: &Lead) -> bool {
        !self.config.launch.is_empty()
            && lead.launch == self.config.launch
            && self.config.ground == Ground::First
            && lead.node != self.config.node
    }

    /// Applies a record and tells everybody. False if it does not follow, which a sound store never brings.
    fn learn(&mut self, record: &Record, out: &mut Outbox<Effect>) -> bool {
        let before = matches!(record.body, Body::Attempt(_)).then(|| self.ledger.world().cloned());
        if self.ledger.apply(record).is_err() {
            self.stand_down(format!("record {} does not continue the journal", record.seq), out);
            return false;
        }
        if let Some(before) = before {
            self.before = before;
        }
        self.untold.push(Arc::new(for_agents(record)));
        if !matches!(record.body, Body::Attempt(_)) {
            self.tell(out);
        }
        true
    }

    /// Tells everybody what was written. Of a large world, whose start thousands of long records would hold up, everybody
    /// hears at the first event at which it runs already (`ran`).
    pub(super) fn tell_written(&mut self, ran: bool, out: &mut Outbox<Effect>) {
        let many = self.ledger.world().is_some_and(|world| world.members.len() > FEW);
        let holds_up = self.phase == Phase::Starting || (self.phase == Phase::Running && !ran);
        if !(many && holds_up) {
            self.tell(out);
        }
    }

    fn tell(&mut self, out: &mut Outbox<Effect>) {
        for record in std::mem::take(&mut self.untold) {
            for node in self.peers.keys().cloned().collect::<Vec<_>>() {
                self.send(&node, AgentMsg::Committed(record.clone()), out);
            }
        }
    }

    /// What a written record allows.
    fn after(&mut self, now: Now, record: &Record, out: &mut Outbox<Effect>) {
        match &record.body {
            Body::Lead(lead) => self.leads(now, record, lead, out),
            Body::Attempt(_) => self.opened(now, out),
            Body::Membership(change) => out.put(Effect::Voters(change.voters.clone())),
            Body::Incident(incident) => out.put(Effect::Report(Box::new(incident.clone()))),
            Body::End(end) => self.close(now, end.code, &end.sentence, out),
            Body::Evict(evict) => self.evicted(now, evict, out),
            Body::Order(ordered) => self.ordered(now, ordered, out),
            Body::Snapshot(_) | Body::Unknown | Body::Limits(_) => {}
        }
    }

    fn leads(&mut self, now: Now, record: &Record, lead: &Lead, out: &mut Outbox<Effect>) {
        self.term = Some(record.term);
        let continues = record.seq.0 > 0;
        let (node, next_attempt) = (self.config.node.clone(), self.ledger.next_attempt());
        out.note(Note::Leads { term: record.term, node, continues, next_attempt });
        let voters = lead.voters.iter();
        let passed: Vec<NodeName> = voters.take_while(|v| **v != self.config.node).cloned().collect();
        if lead.ground == Ground::First && !passed.is_empty() && passed.len() < lead.voters.len() {
            out.note(Note::PassedOver { nodes: passed, leads: self.config.node.clone() });
        }
        out.put(Effect::Lead { term: record.term, voters: lead.voters.clone() });
        self.begin_probe(now, out);
        self.phase = Phase::Gathering;
        self.want = Some(Want {
            since: now.boot,
            said_waiting: false,
            late: false,
            call: None,
            call_until: None,
            said_call: false,
            cause: Cause::Start,
            replace: Default::default(),
            not_before: None,
            why: vec!["the first world of this launch".to_owned()],
        });
        if lead.ground == Ground::Returned {
            self.returned(now, out);
        }
        for (node, frame) in std::mem::take(&mut self.early) {
            self.join(now, node, frame, out);
        }
    }

    /// Whoever was in a world of this run may still have ranks: until he says otherwise, or until every
    /// grant that an earlier life of ours gave is over.
    fn returned(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let numbers = &self.config.spec.numbers;
        let over_at = (!self.forever()).then(|| now.boot.after(Duration::from_millis(numbers.lost_ms)));
        let attempt = self.ledger.attempt().unwrap_or_default();
        for node in self.ledger.ever().clone() {
            let incarnation = self.ledger.member(&node).map(|m| m.incarnation).unwrap_or_default();
            self.busy.insert(node, Busy { incarnation, attempt, over_at });
        }
        if self.ledger.world().is_some() && self.ledger.end().is_none() {
            self.agent_returned(now, out);
        }
    }

    fn store_trouble(&mut self, now: Now, text: String, out: &mut Outbox<Effect>) {
        const AGAIN: Duration = Duration::from_secs(60);
        let runs = self.phase == Phase::Running;
        let Some(flight) = &mut self.append else { return };
        if flight.trouble_said.is_none_or(|said| now.boot.since(said) >= AGAIN) {
            flight.trouble_said = Some(now.boot);
            out.note(Note::StoreTrouble { text, since: now.boot.since(flight.since), runs });
        }
    }

    /// What is due at this instant.
    pub(super) fn on_time(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let numbers = &self.config.spec.numbers;
        let (join, store) = (numbers.join_timeout_ms, numbers.store_timeout_ms);
        let lost = Duration::from_millis(numbers.lost_ms);
        let passed = |since: BootTime, ms: u64| now.boot.since(since) >= Duration::from_millis(ms);
        self.busy.retain(|_, b| b.over_at.is_none_or(|at| now.boot < at));
        self.note_all_stopped(now);
        if self.append.as_ref().is_some_and(|f| passed(f.since, store)) && !self.is_closed() {
            let sentence = "the run directory could not be written for too long".to_owned();
            self.end(now, Outcome::Failed, 1, sentence, out);
            if self.busy.is_empty() {
                self.close_unwritten(now, out);
            }
        }
        if self.phase == Phase::Gathering
            && self.append.is_none()
            && (!self.ledger.paused() || self.before_first_world())
            && self.want.as_ref().is_some_and(|w| passed(w.since, join))
            && !self.opens_now(now, out)
        {
            self.join_timed_out(now, out);
        }
        if let Some(want) = &mut self.want {
            want.late = now.boot.since(want.since) >= FIRST_WAIT;
        }
        self.stop_waiting(now, out);
        self.say_late(now, out);
        if let Some(ending) = &self.ending
            && ending.asked
            && ending.quiet.is_some_and(|q| now.boot.since(q) >= PARTING)
        {
            self.close_unwritten(now, out);
        }
        // Only a world needs authority: while nodes are still coming there may be no majority yet.
        let world = matches!(self.phase, Phase::Starting | Phase::Running);
        if self.authority || self.forever() || !world {
            self.authority_missed = None;
        } else {
            self.authority_missed.get_or_insert(now.boot);
        }
        if self.authority_missed.is_some_and(|at| now.boot.since(at) >= lost + REMOVAL) {
            self.stand_down("no majority of the nodes answers".to_owned(), out);
        }
        self.look_into_doubts(now, out);
        self.removal_overdue(now, out);
        self.probe_again(now, out);
        self.ask_for_agents(now, out);
        self.parting(now, out);
        self.hang_on_time(now, out);
        if self.resend.is_some_and(|at| now.boot >= at) {
            self.resend = None;
            self.repeat(now, out);
        }
    }

    /// What can be done next. Called after every event, so that no path has to remember it.
    pub(super) fn go_on(&mut self, now: Now, out: &mut Outbox<Effect>) {
        self.judge(now, out);
        self.seek_on(now, out);
        self.act(now, out);
        match self.phase {
            Phase::Gathering => {
                self.open(now, out);
                self.settle_late(now);
            }
            Phase::Starting => self.start_if_quiet(now, out),
            Phase::Running => {}
            Phase::Ending => self.end_if_quiet(now, out),
            Phase::Electing | Phase::Closed { .. } | Phase::StoodDown => return,
        }
        if self.append.is_none() {
            self.change_voters(now, out);
        }
        if self.append.is_none() && matches!(self.phase, Phase::Gathering | Phase::Running) {
            self.settle_next(now, out);
        }
        if self.append.is_none() && self.phase == Phase::Running {
            self.snapshot_if_due(now, out);
        }
        if self.append.is_none() && self.phase == Phase::Running {
            self.write_limits(now, out);
        }
    }

    /// A reader of a long journal begins at the newest snapshot.
    fn snapshot_if_due(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let from = self.ledger.last_snapshot().map_or(0, |seq| seq.next().0);
        let every = self.config.snapshot_every;
        if self.ledger.next().0.saturating_sub(from) >= every {
            let why = vec![format!("{every} records since the last one")];
            self.propose(now, Body::Snapshot(Box::new(self.ledger.snapshot())), why, out);
        }
    }

    /// Voters that are lost.
    fn lost_voters(&self) -> Vec<NodeName> {
        let evicted = |n: &NodeName| self.ledger.is_evicted(n) && *n != self.config.node;
        if self.peers.iter().all(|(n, p)| !p.lost && !evicted(n)) {
            return Vec::new();
        }
        let lost = |n: &&NodeName| evicted(n) || self.peers.get(*n).is_some_and(|p| p.lost);
        self.ledger.voters().iter().filter(lost).cloned().collect()
    }

    /// No rank of this launch can be alive: nothing has to be protected from another coordinator.
    fn nothing_ran(&self) -> bool {
        self.busy.is_empty() && self.phase == Phase::Gathering && self.before_first_world()
    }

    pub(super) fn before_first_world(&self) -> bool {
        self.want.as_ref().is_some_and(|w| w.cause == Cause::Start)
    }

    /// Lost voters are removed and new nodes added beside the records that open worlds. With fewer than half
    /// of the voters left the coordinator is on the wrong side and stands down, unless nothing ran yet: then
    /// it waits for them as long as a world may wait for its nodes.
    fn change_voters(&mut self, now: Now, out: &mut Outbox<Effect>) {
        if !matches!(self.phase, Phase::Gathering | Phase::Starting | Phase::Running) {
            return;
        }
        let removed = self.lost_voters();
        let voters = self.ledger.voters();
        // After every event: thousands of names are walked through side by side, and sorted once a record.
        if self.voters.0 != Some(self.ledger.next()) {
            // The same text as in the other list, where there is one: then names are equal at one look.
            let shared =
                |name: &NodeName| self.peers.get_key_value(name).map_or(name, |(same, _)| same).clone();
            self.voters = (Some(self.ledger.next()), voters.iter().map(shared).collect());
        }
        let mut vote = self.voters.1.iter().peekable();
        let mut added: Vec<NodeName> = Vec::new();
        for (node, peer) in &self.peers {
            while vote.next_if(|other| *other < node).is_some() {}
            if vote.peek() != Some(&node) && peer.usable() && !self.ledger.is_evicted(node) {
                added.push(node.clone());
            }
        }
        if removed.is_empty() && added.is_empty() {
            return;
        }
        if !half_stays(voters, |n| !removed.contains(n)) {
            if !self.nothing_ran() {
                self.stand_down("fewer than half of the nodes answer".to_owned(), out);
            }
            return;
        }
        // Those that are cut off together are missed one after another: not half of the voters is what answers now.
        if !half_stays(voters, |n| self.answers(n)) {
            return;
        }
        let kept = voters.iter().filter(|n| !removed.contains(n));
        let voters = kept.chain(&added).cloned().collect();
        let mut why = Vec::new();
        let gone = |n: &NodeName| if self.ledger.is_evicted(n) { "was taken out" } else { "is lost" };
        why.extend(removed.iter().map(|n| format!("{n} {}", gone(n))));
        why.extend(added.iter().map(|n| format!("{n} joined")));
        self.propose(now, Body::Membership(Membership { voters, removed, added }), why, out);
    }

    /// One that cannot write the removal of a lost voter ends its authority: those who do not hear it must be
    /// able to count on that.
    fn removal_overdue(&mut self, now: Now, out: &mut Outbox<Effect>) {
        let watched = matches!(self.phase, Phase::Gathering | Phase::Starting | Phase::Running);
        let lost = self.lost_voters();
        if !watched || self.forever() || self.nothing_ran() || lost.is_empty() {
            self.removal = None;
            return;
        }
        let since = *self.removal.get_or_insert(now.boot);
        if now.boot.since(since) >= REMOVAL {
            let names: Vec<&str> = lost.iter().map(|n| n.as_str()).collect();
            let span = super::super::time::human(REMOVAL);
            let why = format!("the loss of {} could not be written for {span}", names.join(", "));
            self.stand_down(why, out);
        }
    }

    /// The first world waits a little for the nodes of the ordered list, so that ranks follow Slurm's order.
    pub(super) fn still_early(&self, now: Now, since: BootTime) -> bool {
        let expected = || {
            let voters = &self.config.voters;
            self.peers.len() < voters.len() || voters.iter().any(|n| !self.peers.contains_key(n))
        };
        self.ledger.world().is_none() && expected() && now.boot.since(since) < FIRST_WAIT
    }

    /// Nothing speaks against its being there.
    fn answers(&self, node: &NodeName) -> bool {
        !self.in_doubt(node) && self.peers.get(node).is_some_and(super::state::Peer::heard)
    }

    /// A world of these nodes may be opened: not without half of those who vote.
    pub(super) fn may_open(&self, members: &[super::super::record::Member], spares: &[NodeName]) -> bool {
        let planned: BTreeSet<&NodeName> = members.iter().map(|m| &m.node).chain(spares).collect();
        let there = |n: &NodeName| planned.contains(n) || self.answers(n);
        half_stays(self.ledger.voters(), there)
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed { .. } | Phase::StoodDown)
    }

    pub(super) fn stand_down(&mut self, why: String, out: &mut Outbox<Effect>) {
        self.phase = Phase::StoodDown;
        self.append = None;
        out.note(Note::StoodDown { why: why.clone() });
        out.put(Effect::StandDown { why });
    }
}

/// What agents are told of a record: their ledgers keep no list of victims.
fn for_agents(record: &Record) -> Record {
    let mut told = record.clone();
    if let Body::Incident(incident) = &mut told.body {
        incident.victims.clear();
        incident.others.clear();
    }
    told
}

/// At least half of the voters stay.
fn half_stays(voters: &[NodeName], stays: impl Fn(&NodeName) -> bool) -> bool {
    voters.iter().filter(|n| stays(n)).count() * 2 >= voters.len()
}
