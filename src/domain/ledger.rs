//! What the journal says, and nothing else: no boot time, no links, no guesses.
//!
//! A ledger changes only in [`Ledger::apply`], so replaying the journal gives the ledger of every reader.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::ids::{Attempt, NodeName, Seq, Slot, Term};
use super::liveness::limits::Learned;
use super::packed;
use super::policy::history::History;
use super::record::{
    AttemptBody, Body, Break, Cause, End, Evict, Ground, Incident, Lead, Member, Order, RECORD_VERSION,
    Record, Writer,
};
use super::spec::RunSpec;

/// A record that does not continue the ledger.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Not the next number: read already, or one before it is missing.
    #[error("record {got} does not follow: the next one is {expected}")]
    OutOfOrder {
        /// The next number.
        expected: Seq,
        /// The record's number.
        got: Seq,
    },
    /// A snapshot that is not of its own place in the journal.
    #[error("the snapshot in record {seq} goes on at {next}")]
    Snapshot {
        /// The record's number.
        seq: Seq,
        /// What the snapshot says comes next.
        next: Seq,
    },
}

/// The state that the journal describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    next: Seq,
    term: Option<Term>,
    lead: Option<(Lead, Writer)>,
    spec: Option<RunSpec>,
    #[serde(with = "packed::names")]
    voters: Vec<NodeName>,
    attempt: Option<Attempt>,
    world: Option<AttemptBody>,
    #[serde(with = "packed::names")]
    ever: BTreeSet<NodeName>,
    evicted: BTreeMap<NodeName, Evict>,
    charged: u32,
    #[serde(default)]
    history: History,
    #[serde(default)]
    paused: bool,
    incidents: u64,
    settled: BTreeSet<u64>,
    end: Option<End>,
    foreign: Option<Seq>,
    snapshot: Option<Seq>,
    #[serde(default)]
    limits: Learned,
    /// The members of the newest world, sorted by node.
    #[serde(skip)]
    sorted: Sorted,
}

/// Numbers into a list of members, in the order of their nodes. It follows from the list: equal lists have equal ones.
#[derive(Clone, Debug, Default)]
struct Sorted(Vec<usize>);

impl Sorted {
    fn of(members: &[Member]) -> Self {
        let mut sorted: Vec<usize> = (0..members.len()).collect();
        sorted.sort_by_key(|&i| members.get(i).map(|m| &m.node));
        Self(sorted)
    }

    fn find<'a>(&self, members: &'a [Member], node: &NodeName) -> Option<&'a Member> {
        let at = self.0.binary_search_by_key(&Some(node), |&i| members.get(i).map(|m| &m.node)).ok()?;
        members.get(*self.0.get(at)?)
    }
}

impl PartialEq for Sorted {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Sorted {}

impl Ledger {
    /// Replays a journal from its first record on; stops at the first record that does not follow.
    pub fn replay<'a>(records: impl IntoIterator<Item = &'a Record>) -> Result<Self, LedgerError> {
        let mut ledger = Self::default();
        for record in records {
            ledger.apply(record)?;
        }
        Ok(ledger)
    }

    /// The ledger of a journal of which records from any number on are at hand, if the newest snapshot among
    /// them, or record 0, is one of them: what [`Ledger::replay`] makes of all of it.
    pub fn resume(records: &[Record]) -> Result<Self, LedgerError> {
        let newest =
            records.iter().rposition(|r| r.v == RECORD_VERSION && matches!(r.body, Body::Snapshot(_)));
        Self::replay(records.get(newest.unwrap_or(0)..).unwrap_or_default())
    }

    /// What a snapshot under the next number holds.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self { next: self.next.next(), snapshot: Some(self.next), ..self.clone() }
    }

    /// Takes the next record in. A snapshot also brings everything up to it that is missing.
    pub fn apply(&mut self, record: &Record) -> Result<(), LedgerError> {
        if let Body::Snapshot(all) = &record.body
            && record.v == RECORD_VERSION
            && record.seq >= self.next
        {
            if all.next != record.seq.next() {
                return Err(LedgerError::Snapshot { seq: record.seq, next: all.next });
            }
            self.clone_from(all);
            self.sorted = Sorted::of(self.world.as_ref().map_or(&[], |world| &world.members));
            return Ok(());
        }
        if record.seq != self.next {
            return Err(LedgerError::OutOfOrder { expected: self.next, got: record.seq });
        }
        self.next = record.seq.next();
        if record.v != RECORD_VERSION {
            self.foreign.get_or_insert(record.seq);
            return Ok(());
        }
        match &record.body {
            Body::Lead(lead) => self.lead(record, lead),
            Body::Attempt(world) => self.open(record, world),
            Body::Membership(change) => self.voters.clone_from(&change.voters),
            Body::Incident(incident) => self.settle(incident),
            Body::Evict(evict) => {
                if evict.back {
                    self.evicted.remove(&evict.node);
                } else {
                    self.evicted.insert(evict.node.clone(), evict.clone());
                }
                self.history.evicted(evict, record.wall_ms);
            }
            Body::Order(ordered) => match ordered.order {
                Order::Pause => self.paused = true,
                Order::Resume => self.paused = false,
                Order::Restart | Order::Evict { .. } | Order::Stop => {}
            },
            Body::End(end) => self.end = Some(end.clone()),
            Body::Limits(learned) => self.limits.merge(learned),
            // Read already, or taken in above.
            Body::Snapshot(_) => {}
            Body::Unknown => {
                self.foreign.get_or_insert(record.seq);
            }
        }
        Ok(())
    }

    fn lead(&mut self, record: &Record, lead: &Lead) {
        self.term = Some(record.term);
        self.voters.clone_from(&lead.voters);
        if let Some(spec) = &lead.spec {
            self.spec = Some(spec.clone());
        }
        if lead.ground == Ground::First {
            // A launch has a budget of its own: what an earlier one spent is history.
            self.end = None;
            self.paused = false;
            // A requeue is the same launch again.
            if !self.is_requeue(lead) {
                self.charged = 0;
                self.history.launched();
            }
        }
        self.lead = Some((lead.clone(), record.writer.clone()));
    }

    /// The job of the launch before, which Slurm started again.
    fn is_requeue(&self, lead: &Lead) -> bool {
        let before = self.lead.as_ref().and_then(|(lead, _)| lead.job.as_ref());
        matches!((before, &lead.job), (Some(a), Some(b)) if a.id == b.id && a.restart < b.restart)
    }

    fn open(&mut self, record: &Record, world: &AttemptBody) {
        self.attempt = Some(record.attempt);
        self.voters.clone_from(&world.voters);
        self.ever.extend(world.members.iter().map(|m| m.node.clone()));
        if let Cause::Incident(broke) = &world.cause {
            self.count(broke);
        }
        self.sorted = Sorted::of(&world.members);
        self.world = Some(world.clone());
    }

    fn count(&mut self, broke: &Break) {
        self.incidents = self.incidents.max(broke.incident.saturating_add(1));
        if broke.charged {
            self.charged = self.charged.saturating_add(1);
            self.history.failed(broke);
        } else {
            self.history.saw(&broke.reached, broke.ran_ms);
        }
    }

    fn settle(&mut self, incident: &Incident) {
        self.incidents = self.incidents.max(incident.incident.saturating_add(1));
        self.settled.insert(incident.incident);
    }

    /// The number of the next record.
    #[must_use]
    pub fn next(&self) -> Seq {
        self.next
    }

    /// The newest term.
    #[must_use]
    pub fn term(&self) -> Option<Term> {
        self.term
    }

    /// Who leads and wrote the record that says so.
    #[must_use]
    pub fn leader(&self) -> Option<(&Lead, &Writer)> {
        self.lead.as_ref().map(|(lead, writer)| (lead, writer))
    }

    /// What is run.
    #[must_use]
    pub fn spec(&self) -> Option<&RunSpec> {
        self.spec.as_ref()
    }

    /// Who votes, in order.
    #[must_use]
    pub fn voters(&self) -> &[NodeName] {
        &self.voters
    }

    /// The newest attempt.
    #[must_use]
    pub fn attempt(&self) -> Option<Attempt> {
        self.attempt
    }

    /// The number that the next attempt gets.
    #[must_use]
    pub fn next_attempt(&self) -> Attempt {
        self.attempt.map_or(Attempt(0), Attempt::next)
    }

    /// The world of the newest attempt.
    #[must_use]
    pub fn world(&self) -> Option<&AttemptBody> {
        self.world.as_ref()
    }

    /// The member of the newest world on this node.
    #[must_use]
    pub fn member(&self, node: &NodeName) -> Option<&Member> {
        self.sorted.find(&self.world.as_ref()?.members, node)
    }

    /// The slot of this node in the newest world.
    #[must_use]
    pub fn slot(&self, node: &NodeName) -> Option<Slot> {
        self.member(node).map(|m| m.slot)
    }

    /// Every node that was ever in a world of this run.
    #[must_use]
    pub fn ever(&self) -> &BTreeSet<NodeName> {
        &self.ever
    }

    /// The node is kept out.
    #[must_use]
    pub fn is_evicted(&self, node: &NodeName) -> bool {
        self.evicted.contains_key(node)
    }

    /// Restarts that counted against the budget in this launch.
    #[must_use]
    pub fn charged(&self) -> u32 {
        self.charged
    }

    /// What is remembered of failures.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// A person wants nothing to be started.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.paused
    }

    /// The nodes that are kept out, and why.
    pub fn evicted(&self) -> impl Iterator<Item = &Evict> {
        self.evicted.values()
    }

    /// The number of the next incident.
    #[must_use]
    pub fn next_incident(&self) -> u64 {
        self.incidents
    }

    /// The verdict of this incident is written.
    #[must_use]
    pub fn is_settled(&self, incident: u64) -> bool {
        self.settled.contains(&incident)
    }

    /// How long things usually take in this program.
    #[must_use]
    pub fn limits(&self) -> &Learned {
        &self.limits
    }

    /// How the run ended, if it did.
    #[must_use]
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The newest snapshot.
    #[must_use]
    pub fn last_snapshot(&self) -> Option<Seq> {
        self.snapshot
    }

    /// The first record of a newer program: such a journal may be followed, never led from.
    #[must_use]
    pub fn foreign(&self) -> Option<Seq> {
        self.foreign
    }
}
