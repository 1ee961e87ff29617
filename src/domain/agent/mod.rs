//! The agent machine: the ranks of one node.
//!
//! ```text
//! Seeking ─Welcome─► Idle ─Start{a}─► Spawning ─all up─► Running ─all exit 0─► sweep ─► Finished{a} ─► Idle
//!    │                                   └────────┬─────────┴── Stop{a} | Finish | grant over
//!    └── no coordinator: Exit                  Stopping{Term(leader) → Kill + Sweep} ─swept─► Idle | Dirty
//! ```
//! A dead rank does not stop its neighbours; the coordinator's `Stop` does. When only the link is lost the
//! ranks run on, as long as the grant does.

mod handle;
mod health;
mod liveness;
pub(super) mod signals;
mod state;
mod stop;
#[cfg(test)]
mod tests;

pub use signals::{Heard, Signals};
pub use state::{Agent, AgentConfig, AliveRank};

use super::attribution::evidence::Evidence;
use super::board::Sample;
use super::error_file::Recorded;
use super::exit::ExitKind;
use super::health::CheckResult;
use super::ids::{Attempt, Incarnation, LocalRank, NodeName, Op, Rank, Slot, Term};
use super::liveness::evidence::RankEvidence;
use super::spec::Offer;
use super::time::BootTime;
use super::torch_store::seen::Reach;
use super::wire::{Survivor, ToAgent, ToCoordinator, World};

/// What can happen to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It exists. The first event.
    Begin,
    /// A coordinator can be talked to.
    LinkUp,
    /// It cannot any more.
    LinkDown,
    /// A frame from a coordinator.
    Recv(ToAgent),
    /// The rank of this `Op` runs.
    Spawned {
        /// From [`Seat`].
        op: Op,
        /// Its process id.
        pid: u32,
    },
    /// The rank of this `Op` does not run.
    SpawnFailed {
        /// From [`Seat`].
        op: Op,
        /// The errno of the call that failed.
        errno: i32,
        /// The call and the limit that it met.
        what: String,
    },
    /// A rank ended.
    RankExited {
        /// The attempt it belonged to.
        attempt: Attempt,
        /// Which one.
        local_rank: LocalRank,
        /// How.
        kind: ExitKind,
        /// When, as the process thread saw it.
        at: BootTime,
        /// One line of what it died of, maybe empty.
        summary: String,
        /// Traceback or last lines, at most 8 KiB.
        words: String,
        /// It left an error file that can be read.
        recorded: Option<Recorded>,
        /// What its end is worth.
        evidence: Box<Evidence>,
    },
    /// Everything below the agent that is no worker was killed and reaped.
    Swept {
        /// From [`Effect::Sweep`].
        op: Op,
        /// What did not die.
        survivors: Vec<Survivor>,
    },
    /// A port for the next rank 0 is held open.
    OfferReady {
        /// From [`Effect::OpenOffer`].
        op: Op,
        /// The port.
        offer: Offer,
    },
    /// The store that this agent hosts saw ranks come.
    StoreSeen {
        /// Whose ranks.
        attempt: Attempt,
        /// How many, and who is missing.
        reach: Reach,
    },
    /// No port could be had.
    OfferFailed {
        /// From [`Effect::OpenOffer`].
        op: Op,
    },
    /// The lease machine has a grant: ranks may run until then.
    Granted(BootTime),
    /// From [`Effect::Reach`]: how the try went.
    Reached {
        /// Who was tried.
        node: NodeName,
        /// Something came back from that host, be it a refusal.
        ok: bool,
    },
    /// The lease machine hears nothing from the leader any more, whatever its connections say.
    LeaderSilent {
        /// The last sign of it.
        since: BootTime,
    },
    /// What the hint of the coordinator says that is dialled; comes before `LinkUp`.
    Proof(u64),
    /// The file of [`Effect::Probe`] was made here, or was there.
    Probed {
        /// Its name.
        name: String,
        /// It was made here.
        won: bool,
    },
    /// Checks of this node are over.
    Checked {
        /// From [`Effect::Check`]; none: nobody asked.
        attempt: Option<Attempt>,
        /// What they found.
        results: Vec<CheckResult>,
    },
    /// The journal says that the run has ended; its exit code.
    RunEnded {
        /// The exit code.
        code: u8,
    },
    /// The guardian killed the ranks: their grant had run out while we did not look.
    RanksKilled,
    /// A signal came to the launcher on this node.
    OsSignal {
        /// Its number.
        signal: u8,
        /// The kernel sent it for a terminal.
        terminal: bool,
        /// The sender's process id, if known.
        pid: Option<u32>,
        /// The sender's user id, if known.
        uid: Option<u32>,
        /// It came from the user who runs us, or from a terminal: only such a one escalates.
        user: bool,
    },
    /// The deadline passed.
    Tick,
    /// One look at the pages of the ranks that [`Agent::watches`] names.
    Looked {
        /// Their attempt.
        attempt: Attempt,
        /// What each page says; none: nobody has claimed it.
        samples: Vec<(LocalRank, Option<Sample>)>,
    },
    /// What stands in the page of a rank that has just ended, before its end is told.
    LastPage {
        /// Its attempt.
        attempt: Attempt,
        /// Which one.
        local_rank: LocalRank,
        /// What the page says; none: nobody ever claimed it.
        sample: Option<Sample>,
        /// It did not end well: how far it came is news.
        failed: bool,
    },
    /// From [`Effect::Inspect`]: what could be collected.
    Inspected {
        /// The attempt.
        attempt: Attempt,
        /// From the effect.
        id: u64,
        /// Of each rank; their pages and silences are put in by the machine.
        ranks: Vec<RankEvidence>,
        /// Nothing more comes; else it is a first glance that shows something.
        whole: bool,
    },
}

/// One rank to spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Comes back with [`Event::Spawned`] or [`Event::SpawnFailed`].
    pub op: Op,
    /// The rank.
    pub rank: Rank,
    /// Its local rank.
    pub local_rank: LocalRank,
}

/// Who of a rank's processes gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The leader; one that is stopped or in uninterruptible sleep is killed instead, it would not answer.
    Leader,
    /// The leader, and only if it handles the signal.
    IfCaught,
}

/// What an agent wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Look for a coordinator; answered by `LinkUp`, later by `LinkDown`. What is left of an earlier link is
    /// dropped without another word.
    Connect,
    /// Say this to the coordinator.
    Send(ToCoordinator),
    /// Try whether this address answers, for at most [`REACH`](super::coordinator::REACH): a connection that is opened
    /// or refused is an answer. Answered by `Reached`; not at all where the try itself could not be made.
    Reach {
        /// The node.
        node: NodeName,
        /// Where its agent listens, `address:port`.
        address: String,
    },
    /// Make this file, exclusively, among the probes of the run directory; answered by `Probed`.
    Probe {
        /// Its name.
        name: String,
    },
    /// Ask the user's programs about this node; answered by `Checked`, in any case.
    Check {
        /// The attempt that waits for it.
        attempt: Attempt,
    },
    /// Tell the lease machine whose grants count.
    Follow {
        /// The term.
        term: Term,
        /// The coordinator's agent.
        leader: Incarnation,
        /// The leader before this one is proven dead.
        previous_dead: bool,
        /// Grants last for ever.
        forever: bool,
    },
    /// Spawn ranks. The port of the offer is released first.
    Spawn {
        /// The attempt.
        attempt: Attempt,
        /// Its world.
        world: Box<World>,
        /// This node's slot.
        slot: Slot,
        /// The ranks.
        seats: Vec<Seat>,
    },
    /// Signal a rank.
    Signal {
        /// Which one.
        local_rank: LocalRank,
        /// Whom of it.
        scope: Scope,
        /// The signal.
        signal: u8,
    },
    /// SIGKILL every rank group and every descendant that is no worker, and reap; answered by `Swept`.
    Sweep {
        /// Comes back with `Swept`.
        op: Op,
        /// In milliseconds: what lives longer is a survivor.
        patience_ms: u64,
    },
    /// There is a world after this attempt, and this node is not in it: if it hosts the attempt's store, that is to be closed
    /// when nobody is connected any more.
    StoreOver {
        /// The attempt.
        attempt: Attempt,
    },
    /// Hold a fresh port open for the next rank 0; answered by `OfferReady` or `OfferFailed`.
    OpenOffer {
        /// Comes back with the answer.
        op: Op,
    },
    /// Tell the guardian, and go.
    Exit(u8),
    /// Collect what the kernel and their interpreters say of these ranks; answered by `Inspected`, soon.
    Inspect {
        /// The attempt.
        attempt: Attempt,
        /// Comes back with the answer.
        id: u64,
        /// The ranks that live.
        ranks: Vec<AliveRank>,
    },
}
