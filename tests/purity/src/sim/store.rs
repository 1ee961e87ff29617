//! The journal's store: creates exclusively, slowly, and does not always say what it did.

use super::faults::StoreFault;
use super::world::{Ev, MS, Task, Thread, World};
use crate::domain::append::{AppendEvent, Found, TroubleKind};
use crate::domain::ids::{Op, Seq};
use crate::domain::ledger::Ledger;
use crate::domain::record::Record;

#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) records: Vec<Record>,
    /// The ledger after each record.
    pub(super) ledgers: Vec<Ledger>,
    pub(super) faults: Vec<StoreFault>,
}

impl Store {
    pub(super) fn heal(&mut self, kind: StoreFault) {
        if let Some(i) = self.faults.iter().position(|f| *f == kind) {
            self.faults.remove(i);
        }
    }

    fn has(&self, seq: Seq) -> Option<&Record> {
        self.records.get(usize::try_from(seq.0).ok()?)
    }
}

impl World {
    pub(super) fn store_create(&mut self, node: usize, op: Op, nonce: u64) {
        let Some(process) = &self.nodes[node].agent else { return };
        let Some((_, record)) = process.lead.as_ref().and_then(|l| l.flight.clone()) else { return };
        let record = Record { nonce, ..*record };
        self.check_try(&record);
        let (delay, lost) = (self.rng.range(300_000, 6 * MS), self.rng.range(20, 2_000) * MS);
        let answer = |event| Task::Append(event);
        match self.store_fault() {
            None => {
                let event =
                    if self.land(record) { AppendEvent::Created(op) } else { AppendEvent::Exists(op) };
                self.task(node, delay, Thread::Process, answer(event));
            }
            Some(StoreFault::Slow) => {
                let slow = self.rng.below(5_000) * MS;
                let event =
                    if self.land(record) { AppendEvent::Created(op) } else { AppendEvent::Exists(op) };
                self.task(node, delay + slow, Thread::Process, answer(event));
            }
            Some(StoreFault::LostReply) => {
                if self.land(record) {
                    self.counters.lost_replies += 1;
                }
                let event = AppendEvent::Unknown(op, TroubleKind::Late);
                self.task(node, lost, Thread::Process, answer(event));
            }
            Some(StoreFault::Fails) => {
                let event = AppendEvent::Unknown(op, TroubleKind::Io);
                self.task(node, lost, Thread::Process, answer(event));
            }
            Some(StoreFault::Late) => {
                let late = lost + self.rng.below(4_000) * MS;
                self.after(late, Ev::Land(Box::new(record)));
                let event = AppendEvent::Unknown(op, TroubleKind::Late);
                self.task(node, lost, Thread::Process, answer(event));
            }
        }
    }

    pub(super) fn store_read(&mut self, node: usize, op: Op, seq: Seq) {
        let found = self.store.has(seq).cloned();
        let fault = self.store_fault();
        let failed = matches!(fault, Some(StoreFault::Fails | StoreFault::Late)) && self.rng.chance(500);
        let slow = if fault.is_some() { self.rng.below(1_500) * MS } else { MS };
        let what = match &found {
            _ if failed => Found::Failed(TroubleKind::Io),
            Some(record) => Found::Record { nonce: record.nonce },
            None => Found::Absent,
        };
        if let Some(lead) = self.nodes[node].agent.as_mut().and_then(|p| p.lead.as_mut()) {
            lead.read = found.map(Box::new);
        }
        self.task(node, slow, Thread::Process, Task::Append(AppendEvent::ReadBackIs(op, what)));
    }

    /// Puts a record under its number if it is free. A late one counts as such.
    pub(super) fn land_late(&mut self, record: Record) {
        if self.land(record) {
            self.counters.late_landings += 1;
        }
    }

    pub(super) fn land(&mut self, record: Record) -> bool {
        if self.store.has(record.seq).is_some() {
            return false;
        }
        self.say(|_| format!("journal {}: {:?} {:?}", record.seq, record.kind, record.why));
        self.check_record(&record);
        self.count_end(&record);
        let mut ledger = self.store.ledgers.last().cloned().unwrap_or_default();
        if let Err(error) = ledger.apply(&record) {
            self.check.fail("journal_exactly_once", self.now, error.to_string());
        }
        self.store.ledgers.push(ledger);
        self.store.records.push(record);
        true
    }
}
