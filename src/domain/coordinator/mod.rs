//! The coordinator machine: membership, attempts, decisions. One per run.
//!
//! ```text
//! Electing ─lead written─► Gathering ─plan, attempt written─► Starting ─all Started─► Running ─all Finished─► Ending ─► Closed
//!                             ▲                                  │ exit ≠ 0, lost, agent gone  │
//!                             └──── stops are out, the next attempt is being written ◄─────────┘
//! ```
//! `Ledger` holds what the journal says; everything else here is soft and rebuilt from messages. Stops need
//! no record and go out at once. Starts follow their record, and only when every node that may still run an
//! older attempt is quiet: by its agent's word, its guardian's word, or because its grant is surely over.

mod acting;
mod attempt;
mod attributing;
mod breaking;
mod doubt;
mod elastic;
mod ending;
mod gate;
mod handle;
mod hang;
mod members;
mod orders;
mod proof;
mod reach;
mod state;
mod supervised;
mod suspects;
mod told;

pub use hang::{Collected, RankState};
pub use state::{Coordinator, CoordinatorConfig, Phase, SNAPSHOT_EVERY, Standing};

use std::time::Duration;

use super::ids::{Incarnation, NodeName, Op, Term};
use super::policy::{Ask, JobWord, Probes};
use super::record::{Incident, Ordered, Record};
use super::time::BootTime;
use super::wire::{FromSupervisor, ToAgent, ToCoordinator, ToOperator, ToSupervisor};

/// How long a node tries to reach another one that is in doubt.
pub const REACH: Duration = Duration::from_secs(1);

/// How an append came back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It is the record of its number.
    Written,
    /// Another record has this number.
    Lost(Box<Record>),
}

/// What was found out for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Of storage and names.
    Probes(Probes),
    /// Of the job.
    Job(JobWord),
}

/// What can happen to a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It exists, with a ledger that was read to the tail. The first event.
    Begin,
    /// A frame from an agent whose session proved to be of this node.
    Recv {
        /// The node.
        from: NodeName,
        /// The frame.
        frame: ToCoordinator,
    },
    /// The control session of an agent is gone.
    LinkDown {
        /// The node.
        node: NodeName,
        /// The agent's life.
        incarnation: Incarnation,
    },
    /// Nothing was heard of a node for the time after which it is lost.
    Silent {
        /// The node.
        node: NodeName,
        /// For how long.
        silent: Duration,
    },
    /// Nothing was heard of a node for [`QUIET`](super::authority::QUIET): it is in doubt.
    Quiet {
        /// The node.
        node: NodeName,
        /// For how long.
        silent: Duration,
    },
    /// A beat of a node came late; it is in doubt no more.
    Late {
        /// The node.
        node: NodeName,
        /// How long nothing was heard.
        silent: Duration,
    },
    /// The supervisor can be talked to, or not any more.
    SupervisorLink {
        /// It can.
        up: bool,
    },
    /// A message of the supervisor.
    Supervisor(FromSupervisor),
    /// A silent node beats again.
    Back {
        /// The node.
        node: NodeName,
    },
    /// A majority of the voters grants authority.
    AuthorityHeld,
    /// It is over.
    AuthorityOver,
    /// No acknowledgement goes to this node any more.
    GrantsClosed {
        /// The node.
        node: NodeName,
        /// When its ranks are surely gone.
        over_at: BootTime,
    },
    /// An append came back.
    Appended {
        /// From [`Effect::Append`].
        op: Op,
        /// How.
        outcome: Appended,
    },
    /// The store worker is still at it.
    StoreTrouble {
        /// What the store says.
        text: String,
    },
    /// The file of [`Effect::Probe`] was made here, or was there.
    Probed {
        /// Its name.
        name: String,
        /// It was made here.
        won: bool,
    },
    /// A person's command.
    Order {
        /// Comes back with [`Effect::Answer`].
        id: u64,
        /// What, why and who.
        ordered: Ordered,
    },
    /// An answer to [`Effect::Seek`].
    Found(Found),
    /// The deadline passed.
    Tick,
    /// Events that came together, in order. What follows from them is done once, when all are taken in: with thousands of
    /// nodes it is a look at each of them. They are not nested.
    Burst(Vec<Event>),
}

/// What a coordinator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Say this to the agent of a node.
    Send {
        /// The node.
        to: NodeName,
        /// The life of the agent that it is for.
        incarnation: Incarnation,
        /// The frame.
        frame: ToAgent,
    },
    /// Write this record; answered by `Appended`. One at a time.
    Append {
        /// Comes back with the answer.
        op: Op,
        /// The record.
        record: Box<Record>,
    },
    /// Make this file, exclusively, among the probes of the run directory; answered by `Probed`.
    Probe {
        /// Its name.
        name: String,
    },
    /// Tell the authority machine that this term leads, and who votes.
    Lead {
        /// The term.
        term: Term,
        /// The voters.
        voters: Vec<NodeName>,
    },
    /// Tell the authority machine who votes from here on.
    Voters(Vec<NodeName>),
    /// No more acknowledgements to this node; answered by `GrantsClosed`.
    CloseGrants {
        /// The node.
        node: NodeName,
    },
    /// Acknowledgements to this life of a node's agent; before it is told that it is admitted.
    Admit {
        /// The node.
        node: NodeName,
        /// The life.
        incarnation: Incarnation,
    },
    /// Close the connections of this node: it is to dial and join anew.
    Disconnect {
        /// The node.
        node: NodeName,
    },
    /// Say this to the supervisor; dropped where there is none.
    Supervisor(ToSupervisor),
    /// Find this out; answered by `Found`, in time or not at all.
    Seek(Ask),
    /// Tell this to the person who gave the order of this number.
    Answer {
        /// From [`Event::Order`].
        id: u64,
        /// What to say.
        answer: ToOperator,
    },
    /// The files of a settled incident.
    Report(Box<Incident>),
    /// Keep what was collected of the ranks.
    Collected(Box<Collected>),
    /// Everybody was told to go and went, or had the time to.
    Over {
        /// The run's exit code.
        code: u8,
    },
    /// End without a word to anybody: grants run out.
    StandDown {
        /// Why.
        why: String,
    },
}

#[cfg(test)]
mod tests;
