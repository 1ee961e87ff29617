//! The state of a coordinator, and the small tools that every part of it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::super::attribution;
use super::super::first_failure::Seen;
use super::super::ids::{Attempt, Incarnation, NodeName, Op, Rank, Seq, StoreId, Term};
use super::super::ledger::Ledger;
use super::super::mutant::Mutants;
use super::super::outbox::{Machine, Outbox};
use super::super::policy::{Sought, Verdict, progress};
use super::super::record::{
    AttemptBody, Body, Cause, FirstFailure, Ground, Member, Outcome, RECORD_VERSION, Record, Writer,
};
use super::super::spec::{GrantMode, JobRef, NodeSpec, Offer, RunSpec};
use super::super::time::{BootTime, Now, earlier};
use super::super::torch_store::seen::Reach;
use super::super::wire::{AgentMsg, StopOrder, Survivor, ToAgent, ToCoordinator, World};
use super::acting::Acting;
use super::doubt::Doubt;
use super::gate::Gate;
use super::hang::Hang;
use super::proof::Probe;
use super::reach::Reached;
use super::supervised::Missing;
use super::{Effect, Event};

/// How often an unanswered order is repeated.
pub(super) const RESEND: Duration = Duration::from_secs(1);
/// How long the first world waits for the nodes of the ordered list before it takes others.
pub(super) const FIRST_WAIT: Duration = Duration::from_secs(10);
/// How long agents have to leave after the end, and an end asked for by the user to be written.
pub(super) const PARTING: Duration = Duration::from_secs(5);
/// How long a coordinator tries to remove lost voters: one that cannot write it ends.
pub(super) const REMOVAL: Duration = Duration::from_secs(15);

/// A snapshot follows after so many records.
pub const SNAPSHOT_EVERY: u64 = 256;

/// What a coordinator is made from.
#[derive(Clone, Debug)]
pub struct CoordinatorConfig {
    /// Its node.
    pub node: NodeName,
    /// The life of the agent that it lives in.
    pub incarnation: Incarnation,
    /// Earlier lives of that agent that its guardian vouches to be dead.
    pub clean_of: Vec<Incarnation>,
    /// What is run; binds every node.
    pub spec: RunSpec,
    /// The Slurm job, if any.
    pub job: Option<JobRef>,
    /// What every process of this launch knows it by.
    pub launch: String,
    /// The ordered node list: who votes in its first term.
    pub voters: Vec<NodeName>,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// On what ground it leads.
    pub ground: Ground,
    /// The id of the run directory; an agent that reads another one is refused.
    pub store: Option<StoreId>,
    /// What its hint says: a node that reads it knows it.
    pub proof: Option<u64>,
    /// Names of nodes are what machines call themselves, and two may have the same: nobody's lock tells them apart.
    pub distinct: bool,
    /// A snapshot follows after so many records.
    pub snapshot_every: u64,
    /// For nonces.
    pub seed: u64,
    /// For the simulator.
    pub mutants: Mutants,
}

/// An admitted node.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) incarnation: Incarnation,
    pub(super) spec: NodeSpec,
    pub(super) offer: Option<Offer>,
    pub(super) linked: bool,
    /// Since when it is not linked.
    pub(super) unlinked: Option<BootTime>,
    pub(super) lost: bool,
    pub(super) left: bool,
    pub(super) survivors: Vec<Survivor>,
    pub(super) sent: u64,
    pub(super) seen: Option<u64>,
}

impl Peer {
    /// It can be talked to.
    pub(super) fn heard(&self) -> bool {
        self.linked && !self.lost && !self.left
    }

    /// It can be in the next world.
    pub(super) fn usable(&self) -> bool {
        self.heard() && self.survivors.is_empty()
    }
}

/// How a node stands, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has a place in the newest world.
    Active,
    /// It waits for one.
    Spare,
    /// Nothing is heard of it.
    Lost,
    /// A process of an earlier attempt survived SIGKILL there.
    Dirty,
    /// It was taken out of the run.
    Evicted,
}

impl Standing {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Spare => "spare",
            Self::Lost => "lost",
            Self::Dirty => "dirty",
            Self::Evicted => "evicted",
        }
    }
}

/// A node that may have live ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    pub(super) incarnation: Incarnation,
    pub(super) attempt: Attempt,
    /// When its grant is surely over, once grants are closed.
    pub(super) over_at: Option<BootTime>,
}

/// Where the run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The `lead` record is being written.
    Electing,
    /// A world is wanted.
    Gathering,
    /// Its record is written; ranks start as soon as everybody is quiet.
    Starting,
    /// Every rank runs.
    Running,
    /// Ranks are stopped, then `end` is written.
    Ending,
    /// The run is over.
    Closed {
        /// Its exit code.
        code: u8,
    },
    /// Somebody else leads, or nobody can.
    StoodDown,
}

/// A world that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Want {
    pub(super) since: BootTime,
    pub(super) said_waiting: bool,
    /// The first nodes were waited for.
    pub(super) late: bool,
    /// Since when there are enough nodes for a world, if not for a full one.
    pub(super) call: Option<BootTime>,
    /// Until when more are waited for.
    pub(super) call_until: Option<BootTime>,
    pub(super) said_call: bool,
    pub(super) cause: Cause,
    pub(super) replace: BTreeSet<NodeName>,
    /// It is not opened before that.
    pub(super) not_before: Option<BootTime>,
    pub(super) why: Vec<String>,
}

/// A world that broke.
#[derive(Clone, Debug)]
pub(super) struct Breaking {
    pub(super) incident: u64,
    pub(super) attempt: Attempt,
    pub(super) members: Vec<Member>,
    pub(super) since: BootTime,
    pub(super) ran_ms: u64,
    pub(super) first: Option<FirstFailure>,
    pub(super) lost: Vec<NodeName>,
    /// The node for whose sake this world never began.
    pub(super) dirty: Option<NodeName>,
    /// None before it is decided.
    pub(super) verdict: Option<Verdict>,
    /// Members whose ranks may be the reason why a rank lost its peer.
    pub(super) suspects: BTreeSet<NodeName>,
    /// It is not known what became of their ranks, and nothing is decided.
    pub(super) open: bool,
    /// Since when.
    pub(super) open_since: BootTime,
    /// A member was missing and was waited for.
    pub(super) missed: bool,
    /// A suspect whose agent is another one now: its ranks are gone with it.
    pub(super) another: Option<NodeName>,
    /// An end came that may be the first failure.
    pub(super) telling: bool,
    /// It broke before its first step, and the program may fail so everywhere: all are heard before it is decided.
    pub(super) at_start: bool,
    pub(super) ends: BTreeMap<Rank, Seen>,
    pub(super) stopped: Option<BootTime>,
    pub(super) running: Option<BootTime>,
    /// Who had come to its store.
    pub(super) reach: Option<Reach>,
    /// Whose fault it was, as far as it can be told.
    pub(super) found: attribution::Verdict,
    /// How far its ranks came.
    pub(super) reached: progress::Reached,
    /// What was found out before it is decided.
    pub(super) sought: Sought,
    /// It was looked at again once every member had said how its ranks ended.
    pub(super) heard: bool,
}

impl Breaking {
    /// The world that broke.
    pub(super) fn world(&self) -> super::breaking::WorldOf<'_> {
        (self.attempt, &self.members)
    }
}

/// A world that was started.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) attempt: Attempt,
    /// As its ranks see it.
    pub(super) world: Arc<World>,
    /// With where each of its members may come from: for the node that hosts their store, and none of the others, to which
    /// it would be a long list.
    pub(super) hosted: Arc<World>,
    /// The lives of its members.
    pub(super) lives: BTreeMap<NodeName, Incarnation>,
}

impl Shown {
    pub(super) fn world_for(&self, node: &NodeName) -> Arc<World> {
        let host = self.world.members.first().is_some_and(|first| first.node == *node);
        if host { self.hosted.clone() } else { self.world.clone() }
    }
}

/// How the run will end.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    pub(super) outcome: Outcome,
    pub(super) code: u8,
    pub(super) sentence: String,
    pub(super) incident: Option<u64>,
    /// Another allocation of the job could go on.
    pub(super) requeue: bool,
    pub(super) order: StopOrder,
    /// A person waits: the end is not held up by a store that does not answer.
    pub(super) asked: bool,
    pub(super) since: BootTime,
    pub(super) quiet: Option<BootTime>,
}

/// The append in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlight {
    pub(super) op: Op,
    pub(super) record: Box<Record>,
    pub(super) since: BootTime,
    pub(super) trouble_said: Option<BootTime>,
}

/// The coordinator machine. See the module.
#[derive(Debug)]
pub struct Coordinator {
    pub(super) config: CoordinatorConfig,
    pub(super) ledger: Ledger,
    /// The world before the newest one.
    pub(super) before: Option<AttemptBody>,
    pub(super) term: Option<Term>,
    pub(super) phase: Phase,
    pub(super) peers: BTreeMap<NodeName, Peer>,
    pub(super) dead: BTreeSet<Incarnation>,
    pub(super) busy: BTreeMap<NodeName, Busy>,
    /// Nodes of which nothing was heard for a while.
    pub(super) doubts: BTreeMap<NodeName, Doubt>,
    /// After a pause of our own nothing confirms a doubt before that.
    pub(super) believe_from: BootTime,
    /// When it looks at the clock, to notice that it slept.
    pub(super) wake: Option<BootTime>,
    /// The supervisor can be talked to.
    pub(super) supervised: bool,
    /// Nodes without an agent, while there is a supervisor.
    pub(super) missing: BTreeMap<NodeName, Missing>,
    /// Nodes whose task ended since their agent joined.
    pub(super) ended_tasks: BTreeMap<NodeName, BootTime>,
    /// Who was not admitted, and which life of it.
    pub(super) refused: BTreeMap<NodeName, Incarnation>,
    pub(super) probe: Probe,
    /// Nodes that do not know what the hint says.
    pub(super) unproven: BTreeSet<NodeName>,
    /// Joins that came before this coordinator led.
    pub(super) early: BTreeMap<NodeName, ToCoordinator>,
    pub(super) append: Option<InFlight>,
    /// The voters in order of their names, as of the next record.
    pub(super) voters: (Option<Seq>, BTreeSet<NodeName>),
    /// Records that nobody was told of yet.
    /// The world of the newest attempt that was started, as its ranks see it.
    pub(super) seen: Option<Shown>,
    /// The first rank of each node, and how many it has, of the world that reports came from last.
    pub(super) firsts: (Option<Attempt>, BTreeMap<NodeName, (Rank, u32)>),
    pub(super) untold: Vec<Arc<Record>>,
    /// What the newest join was told, as long as nothing is written: the number of its record, and the record.
    pub(super) newest: Option<(Seq, Arc<Record>)>,
    pub(super) want: Option<Want>,
    pub(super) ending: Option<Ending>,
    pub(super) start_sent: Option<BootTime>,
    pub(super) started: BTreeSet<NodeName>,
    pub(super) finished: BTreeSet<NodeName>,
    /// Ends of ranks of the newest attempt.
    pub(super) ends: BTreeMap<Rank, Seen>,
    /// The newest attempt that broke.
    pub(super) broken: Option<Attempt>,
    pub(super) breaking: Option<Breaking>,
    pub(super) settling: Vec<Breaking>,
    /// Who came to the store of the newest attempt.
    pub(super) reached: Option<Reached>,
    /// Since the first failure, until a world runs again.
    pub(super) down_since: Option<BootTime>,
    pub(super) next_incident: u64,
    /// A majority of the voters grants authority.
    pub(super) authority: bool,
    /// Since when it is missed although a world needs it.
    pub(super) authority_missed: Option<BootTime>,
    /// Since when a lost node is still a voter.
    pub(super) removal: Option<BootTime>,
    pub(super) resend: Option<BootTime>,
    pub(super) closed_at: Option<BootTime>,
    pub(super) over_said: bool,
    /// What checks of the nodes found.
    pub(super) gate: Gate,
    pub(super) next_op: u64,
    pub(super) random: u64,
    /// What ranks say of themselves, and a look into a hang.
    pub(super) hang: Hang,
    /// What was decided and is not written yet.
    pub(super) acting: Acting,
}

impl Coordinator {
    /// A coordinator over a journal that was read to its tail; its first event is [`Event::Begin`].
    #[must_use]
    pub fn new(config: CoordinatorConfig, ledger: Ledger) -> Self {
        let random = config.seed;
        let next_incident = ledger.next_incident();
        Self {
            config,
            ledger,
            before: None,
            term: None,
            phase: Phase::Electing,
            peers: BTreeMap::new(),
            dead: BTreeSet::new(),
            busy: BTreeMap::new(),
            doubts: BTreeMap::new(),
            believe_from: BootTime(0),
            wake: None,
            supervised: false,
            missing: BTreeMap::new(),
            ended_tasks: BTreeMap::new(),
            refused: BTreeMap::new(),
            probe: Probe::default(),
            unproven: BTreeSet::new(),
            early: BTreeMap::new(),
            append: None,
            voters: (None, BTreeSet::new()),
            seen: None,
            firsts: (None, BTreeMap::new()),
            untold: Vec::new(),
            newest: None,
            want: None,
            ending: None,
            start_sent: None,
            started: BTreeSet::new(),
            finished: BTreeSet::new(),
            ends: BTreeMap::new(),
            broken: None,
            breaking: None,
            settling: Vec::new(),
            reached: None,
            down_since: None,
            next_incident,
            authority: false,
            authority_missed: None,
            removal: None,
            resend: None,
            closed_at: None,
            over_said: false,
            gate: Gate::default(),
            next_op: 0,
            random,
            hang: Hang::default(),
            acting: Acting::default(),
        }
    }

    /// What the journal says.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Where the run stands.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The nodes that are admitted and not lost, in order of their names.
    #[must_use]
    pub fn present(&self) -> Vec<NodeName> {
        self.peers.iter().filter(|(_, p)| p.usable()).map(|(node, _)| node.clone()).collect()
    }

    /// Every node that ever came, and how it stands, in order of their names. One that is away for a moment is left out.
    #[must_use]
    pub fn standing(&self) -> Vec<(NodeName, Standing)> {
        let came = self.peers.iter().filter(|(_, p)| p.incarnation != Incarnation::default());
        let members = self.ledger.world().map_or(&[][..], |w| &w.members);
        let placed: BTreeSet<&NodeName> = members.iter().map(|m| &m.node).collect();
        let standing = |node: &NodeName, peer: &Peer| {
            Some(match peer {
                _ if self.ledger.is_evicted(node) => Standing::Evicted,
                p if p.lost => Standing::Lost,
                p if !p.heard() => return None,
                p if !p.survivors.is_empty() => Standing::Dirty,
                _ if placed.contains(node) => Standing::Active,
                _ => Standing::Spare,
            })
        };
        came.filter_map(|(node, peer)| Some((node.clone(), standing(node, peer)?))).collect()
    }

    /// This life of the agent of a node is the admitted one.
    #[must_use]
    pub fn admits(&self, node: &NodeName, incarnation: Incarnation) -> bool {
        self.peers.get(node).is_some_and(|p| p.incarnation == incarnation)
    }

    /// In a world of one node without a spare nobody else could take over: grants last for ever.
    pub(super) fn forever(&self) -> bool {
        let spec = &self.config.spec;
        spec.max_nodes == 1 && spec.spares == 0 && spec.numbers.grant == GrantMode::Auto
    }

    pub(super) fn op(&mut self) -> Op {
        self.next_op += 1;
        Op(self.next_op)
    }

    /// splitmix64: nonces must differ, nothing more.
    fn nonce(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Proposes a record at the tail. The caller has looked that none is in flight.
    pub(super) fn propose(&mut self, now: Now, body: Body, why: Vec<String>, out: &mut Outbox<Effect>) {
        let next_term = self.ledger.term().map_or(Term(0), Term::next);
        let (term, attempt) = match &body {
            Body::Lead(_) => (next_term, self.ledger.attempt().unwrap_or_default()),
            Body::Attempt(_) => (self.term.unwrap_or_default(), self.ledger.next_attempt()),
            _ => (self.term.unwrap_or_default(), self.ledger.attempt().unwrap_or_default()),
        };
        let record = Box::new(Record {
            v: RECORD_VERSION,
            seq: self.ledger.next(),
            kind: body.kind(),
            term,
            attempt,
            writer: Writer { node: self.config.node.clone(), incarnation: self.config.incarnation },
            nonce: self.nonce(),
            wall_ms: now.wall_ms,
            why,
            body,
        });
        let op = self.op();
        self.append = Some(InFlight { op, record: record.clone(), since: now.boot, trouble_said: None });
        out.put(Effect::Append { op, record });
    }

    pub(super) fn send(&mut self, to: &NodeName, msg: AgentMsg, out: &mut Outbox<Effect>) {
        let Some(term) = self.term else { return };
        let Some(peer) = self.peers.get_mut(to) else { return };
        if !peer.linked {
            return;
        }
        let n = peer.sent;
        peer.sent += 1;
        out.put(Effect::Send {
            to: to.clone(),
            incarnation: peer.incarnation,
            frame: ToAgent { term, n, msg },
        });
    }

    /// The time of the next repetition, unless one is nearer.
    pub(super) fn repeat_from(&mut self, now: Now) {
        let at = now.boot.after(RESEND);
        self.resend = Some(self.resend.map_or(at, |earlier| earlier.min(at)));
    }

    fn timers(&self) -> Option<BootTime> {
        let numbers = &self.config.spec.numbers;
        let ms = Duration::from_millis;
        let mut at = earlier(self.resend, self.probe.again);
        if self.phase == Phase::Starting && self.start_sent.is_none() {
            at = self.busy.values().filter_map(|b| b.over_at).fold(at, |a, b| earlier(a, Some(b)));
        }
        at = earlier(at, self.acting_at());
        let waits = self.want.as_ref().filter(|_| !self.ledger.paused() || self.before_first_world());
        if let (Phase::Gathering, Some(want)) = (self.phase, waits) {
            // What is being written may be what a world waits for.
            if self.append.is_none() {
                at = earlier(at, Some(want.since.after(ms(numbers.join_timeout_ms))));
            }
            if self.append.is_none() && self.breaking.as_ref().is_none_or(|b| !b.open) {
                at = earlier(at, want.call_until);
            }
            if self.ledger.world().is_none() {
                let first = want.since.after(FIRST_WAIT);
                at = earlier(at, (!want.late).then_some(first));
            }
        }
        if self.phase == Phase::Gathering
            && self.append.is_none()
            && !self.acting.seeks()
            && let Some(Breaking { since, stopped: Some(_), .. }) = self.breaking
        {
            at = earlier(at, Some(since.after(ms(numbers.settle_ms))));
        }
        if let (Phase::Gathering, Some(broke)) = (self.phase, self.breaking.as_ref().filter(|b| b.open)) {
            at = earlier(at, Some(self.open_until(broke)));
        }
        if let Some(ending) = self.ending.as_ref().filter(|_| !self.busy.is_empty()) {
            at = earlier(at, Some(ending.since.after(self.longest_stop(ending))));
        }
        if let Some(flight) = self.append.as_ref().filter(|_| self.ending.is_none() || self.busy.is_empty()) {
            at = earlier(at, Some(flight.since.after(ms(numbers.store_timeout_ms))));
        }
        if let Some(Ending { asked: true, quiet: Some(quiet), .. }) = self.ending {
            at = earlier(at, Some(quiet.after(PARTING)));
        }
        if let Some(over) = self.authority_missed {
            at = earlier(at, Some(over.after(ms(numbers.lost_ms) + REMOVAL)));
        }
        at = earlier(earlier(at, self.late_at()), self.hang_at());
        at = earlier(at, self.gate_at());
        at = earlier(at, self.removal.map(|since| since.after(REMOVAL)));
        at = earlier(earlier(at, self.doubts_at()), earlier(self.ask_at(), self.wake));
        earlier(at, self.closed_at.filter(|_| !self.over_said).map(|c| c.after(PARTING)))
    }
}

impl Machine for Coordinator {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Now, event: Event, out: &mut Outbox<Effect>) {
        if self.phase == Phase::StoodDown {
            return;
        }
        self.notice_pause(now);
        let ran = self.phase == Phase::Running;
        self.take(now, event, out);
        self.on_time(now, out);
        self.go_on(now, out);
        self.tell_written(ran, out);
        self.awake(now);
    }

    fn deadline(&self) -> Option<BootTime> {
        if self.phase == Phase::StoodDown { None } else { self.timers() }
    }
}

/// A launch of a run that was never led, for tests and tools.
impl Default for CoordinatorConfig {
    fn default() -> Self {
        Self {
            node: NodeName::default(),
            incarnation: Incarnation::default(),
            clean_of: Vec::new(),
            spec: RunSpec::default(),
            job: None,
            launch: String::new(),
            voters: Vec::new(),
            addresses: Vec::new(),
            ground: Ground::First,
            store: None,
            proof: None,
            distinct: false,
            snapshot_every: SNAPSHOT_EVERY,
            seed: 0,
            mutants: Mutants::NONE,
        }
    }
}
