//! One append to the journal, carried to its end.
//!
//! Anything but a clean success is *unknown*: the number is read back. My own nonce there: written; another's:
//! lost; nothing: the same bytes under the same number again. It never gives up by itself, and it never puts
//! other bytes under a number that it has tried.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::ids::{Op, Seq};
use super::mutant::{Mutant, Mutants};
use super::outbox::{Machine, Outbox};
use super::time::{BootTime, Now};

/// The first pause before a try is repeated; doubled each time.
pub const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// What is wrong with the store, as far as the caller can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TroubleKind {
    /// No space or no quota is left.
    Full,
    /// Mounted read-only.
    ReadOnly,
    /// Permission was taken away.
    Denied,
    /// The directory is gone or stale.
    Gone,
    /// The device or the server failed.
    Io,
    /// No answer within its deadline.
    Late,
    /// There is something under the number that cannot be read.
    Unreadable,
    /// The same place holds another store by now.
    OtherStore,
    /// Anything else.
    Other,
}

/// What a read-back found under the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A record with this nonce.
    Record {
        /// Its nonce.
        nonce: u64,
    },
    /// Nothing.
    Absent,
    /// Something that is no record.
    Unreadable,
    /// The read itself failed.
    Failed(TroubleKind),
}

/// How an append ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The record is under its number.
    Written,
    /// Another record is: the one that was read back last.
    Lost,
    /// A seeded bug: taken for failed and forgotten.
    #[cfg(feature = "mutants")]
    Forgotten,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendEvent {
    /// Put the record with this nonce under this number. Ignored while another append is in flight.
    Begin {
        /// The number.
        seq: Seq,
        /// The record's nonce; stands for its bytes.
        nonce: u64,
        /// An earlier life of this process may have tried already: read first.
        again: bool,
    },
    /// The create succeeded without any doubt.
    Created(Op),
    /// The number was taken: by whom is to be seen.
    Exists(Op),
    /// Any error, or no answer in time.
    Unknown(Op, TroubleKind),
    /// The answer to [`AppendEffect::ReadBack`].
    ReadBackIs(Op, Found),
    /// Time has passed.
    Tick,
}

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendEffect {
    /// Create the number exclusively with the bytes that go with this nonce.
    TryCreate {
        /// Comes back with the answer.
        op: Op,
        /// The number.
        seq: Seq,
        /// Which bytes: those of the record with this nonce.
        nonce: u64,
    },
    /// Read what is under the number.
    ReadBack {
        /// Comes back with the answer.
        op: Op,
        /// The number.
        seq: Seq,
    },
    /// It is over.
    Ended {
        /// The number.
        seq: Seq,
        /// How.
        outcome: Outcome,
    },
    /// It goes on, but not well. Put with every pause.
    Trouble {
        /// What is wrong.
        kind: TroubleKind,
        /// Since when.
        since: BootTime,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Try {
    Create,
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asked(Try, Op),
    Pausing(Try, BootTime),
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    seq: Seq,
    nonce: u64,
    stage: Stage,
    pause: Duration,
    /// The error that made the outcome unknown.
    trouble: Option<TroubleKind>,
    since: Option<BootTime>,
    /// Nothing under the number, and nothing that went wrong: the next create need not wait. Once.
    at_once: bool,
    /// The last read failed: an answer means that the store is back.
    read_failed: bool,
}

/// The machine. One append at a time.
#[derive(Clone, Debug)]
pub struct Append {
    mutants: Mutants,
    next_op: Op,
    flight: Option<Flight>,
}

impl Append {
    /// An idle one.
    #[must_use]
    pub fn new(mutants: Mutants) -> Self {
        Self { mutants, next_op: Op(0), flight: None }
    }

    /// Number and nonce of the append in flight.
    #[must_use]
    pub fn in_flight(&self) -> Option<(Seq, u64)> {
        self.flight.map(|f| (f.seq, f.nonce))
    }

    fn ask(&mut self, mut flight: Flight, what: Try, out: &mut Outbox<AppendEffect>) {
        let op = self.next_op;
        self.next_op = op.next();
        flight.stage = Stage::Asked(what, op);
        out.put(match what {
            Try::Create => AppendEffect::TryCreate { op, seq: flight.seq, nonce: flight.nonce },
            Try::Read => AppendEffect::ReadBack { op, seq: flight.seq },
        });
        self.flight = Some(flight);
    }

    fn end(&mut self, flight: &Flight, outcome: Outcome, out: &mut Outbox<AppendEffect>) {
        self.flight = None;
        out.put(AppendEffect::Ended { seq: flight.seq, outcome });
    }

    fn pause(
        &mut self,
        now: Now,
        mut flight: Flight,
        then: Try,
        kind: TroubleKind,
        out: &mut Outbox<AppendEffect>,
    ) {
        let since = *flight.since.get_or_insert(now.boot);
        flight.stage = Stage::Pausing(then, now.boot.after(flight.pause));
        flight.pause = (flight.pause * 2).min(LONGEST_PAUSE);
        self.flight = Some(flight);
        out.put(AppendEffect::Trouble { kind, since });
    }

    fn answered(&mut self, now: Now, flight: Flight, event: AppendEvent, out: &mut Outbox<AppendEffect>) {
        let mut flight = flight;
        match event {
            AppendEvent::Created(_) => self.end(&flight, Outcome::Written, out),
            AppendEvent::Exists(_) => self.ask(flight, Try::Read, out),
            AppendEvent::Unknown(_, kind) => {
                #[cfg(feature = "mutants")]
                if self.mutants.has(Mutant::ForgetUnknownAppend) {
                    return self.end(&flight, Outcome::Forgotten, out);
                }
                flight.trouble = Some(kind);
                flight.since.get_or_insert(now.boot);
                self.ask(flight, Try::Read, out);
            }
            AppendEvent::ReadBackIs(_, Found::Record { nonce }) => {
                let mine = nonce == flight.nonce;
                self.end(&flight, if mine { Outcome::Written } else { Outcome::Lost }, out);
            }
            AppendEvent::ReadBackIs(_, Found::Absent) => {
                if flight.at_once && flight.trouble.is_none() {
                    flight.at_once = false;
                    return self.ask(flight, Try::Create, out);
                }
                if std::mem::take(&mut flight.read_failed) {
                    flight.pause = FIRST_PAUSE;
                    return self.ask(flight, Try::Create, out);
                }
                if self.mutants.has(Mutant::NewBytesSameSeq) {
                    flight.nonce = flight.nonce.wrapping_add(1);
                }
                self.pause(now, flight, Try::Create, flight.trouble.unwrap_or(TroubleKind::Other), out);
            }
            AppendEvent::ReadBackIs(_, Found::Unreadable) => {
                self.pause(now, flight, Try::Read, TroubleKind::Unreadable, out);
            }
            AppendEvent::ReadBackIs(_, Found::Failed(kind)) => {
                flight.read_failed = true;
                self.pause(now, flight, Try::Read, kind, out);
            }
            AppendEvent::Begin { .. } | AppendEvent::Tick => {}
        }
    }
}

impl Machine for Append {
    type Event = AppendEvent;
    type Effect = AppendEffect;

    fn handle(&mut self, now: Now, event: AppendEvent, out: &mut Outbox<AppendEffect>) {
        match (event, self.flight) {
            (AppendEvent::Begin { seq, nonce, again }, None) => {
                let first = if again { Try::Read } else { Try::Create };
                let stage = Stage::Pausing(first, now.boot);
                let (pause, at_once) = (FIRST_PAUSE, true);
                let flight = Flight {
                    seq,
                    nonce,
                    stage,
                    pause,
                    trouble: None,
                    since: None,
                    at_once,
                    read_failed: false,
                };
                self.ask(flight, first, out);
            }
            (AppendEvent::Begin { .. }, Some(_)) | (_, None) => {}
            (AppendEvent::Tick, Some(flight)) => {
                if let Stage::Pausing(then, until) = flight.stage
                    && now.boot >= until
                {
                    self.ask(flight, then, out);
                }
            }
            (
                AppendEvent::Created(op) | AppendEvent::Exists(op) | AppendEvent::Unknown(op, _),
                Some(flight),
            ) => {
                if flight.stage == Stage::Asked(Try::Create, op) {
                    self.answered(now, flight, event, out);
                }
            }
            (AppendEvent::ReadBackIs(op, _), Some(flight)) => {
                if flight.stage == Stage::Asked(Try::Read, op) {
                    self.answered(now, flight, event, out);
                }
            }
        }
    }

    fn deadline(&self) -> Option<BootTime> {
        match self.flight?.stage {
            Stage::Pausing(_, until) => Some(until),
            Stage::Asked(..) => None,
        }
    }
}

#[cfg(test)]
#[path = "append_tests.rs"]
mod tests;
