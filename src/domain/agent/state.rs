//! The state of an agent and what can be read off it.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::attribution::evidence::Evidence;
use super::super::board::Request;
use super::super::error_file::Recorded;
use super::super::exit::ExitKind;
use super::super::health::HealthSpec;
use super::super::ids::{Attempt, Incarnation, LocalRank, NodeName, Op, Rank, StoreId, Term};
use super::super::ledger::Ledger;
use super::super::liveness::limits::Learned;
use super::super::liveness::watch::Watch;
use super::super::mutant::Mutants;
use super::super::outbox::{Machine, Outbox};
use super::super::spec::{NodeSpec, Numbers, Offer, RunSpec};
use super::super::time::{BootTime, Now, earlier};
use super::super::wire::{CoordinatorMsg, ExitReport, StopOrder, Survivor, ToCoordinator, World};
use super::health::Health;
use super::{Effect, Event, Signals};

/// How often an unanswered report or request is repeated.
pub(super) const RESEND: Duration = Duration::from_secs(1);

/// After a stop was asked for twice: how long the coordinator has to write the end.
pub(super) const QUIT: Duration = Duration::from_secs(8);

/// A coordinator that comes back within this was not gone.
pub(super) const GONE: Duration = Duration::from_secs(2);

/// The longest pause between two `Join`s.
pub(super) const LONGEST_JOIN: Duration = Duration::from_secs(4);

/// A `Join` that is not answered yet. It says what runs here, so nothing is started before its own answer:
/// a `Start` that was sent before it was heard may still come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joining {
    /// Its number.
    pub(super) n: u64,
    /// When it is repeated.
    pub(super) again: BootTime,
    /// The pause before that.
    pub(super) pause: Duration,
}

/// What an agent is made from.
#[derive(Clone, Debug, Default)]
pub struct AgentConfig {
    /// Its node.
    pub node: NodeName,
    /// Its life.
    pub incarnation: Incarnation,
    /// The guardian's word: these earlier lives left no rank.
    pub clean_of: Vec<Incarnation>,
    /// What survived the guardian's sweep.
    pub survivors: Vec<Survivor>,
    /// What the node brings.
    pub spec: NodeSpec,
    /// The store id that this node reads.
    pub store: Option<StoreId>,
    /// How long it looks for its first coordinator, and which timers count until it is welcomed.
    pub numbers: Numbers,
    /// For the simulator.
    pub mutants: Mutants,
}

/// One rank.
#[derive(Clone, Debug)]
pub(super) struct Local {
    pub(super) op: Op,
    pub(super) rank: Rank,
    pub(super) pid: u32,
    pub(super) life: Life,
    /// When we first sent it a signal that may end it.
    pub(super) asked: Option<BootTime>,
    /// It ended after that, or because nothing may run any more.
    pub(super) ours: bool,
}

/// What a rank said of its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) summary: String,
    pub(super) words: String,
    pub(super) recorded: Option<Recorded>,
    pub(super) evidence: Box<Evidence>,
}

/// Where a rank is in its life.
#[derive(Clone, Debug)]
pub(super) enum Life {
    Spawning,
    Alive,
    Ended { exit: ExitKind, at: BootTime, said: Said },
}

/// The ranks of the newest attempt that was started here; kept for reports after their end.
#[derive(Clone, Debug)]
pub(super) struct Team {
    pub(super) attempt: Attempt,
    pub(super) ranks: BTreeMap<LocalRank, Local>,
}

/// What a sweep is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// All ranks ended with 0.
    Finish,
    /// They were stopped.
    Stop,
}

/// What the agent is doing.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// No ranks.
    Idle,
    /// Ranks are being spawned.
    Spawning,
    /// Ranks run, or some of them ended and the coordinator knows.
    Running,
    /// Ranks were asked to stop and are killed at `until`.
    Asking { until: BootTime },
    /// Ranks were killed; waiting for the sweep.
    Sweeping { op: Op, goal: Goal },
    /// The ranks ended with 0 and nothing is left.
    Finished,
    /// Something survived SIGKILL; swept again at `retry`.
    Dirty { retry: BootTime },
    /// The driver was told to go.
    Gone,
}

/// A rank that lives, or is being spawned (then its process id is 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AliveRank {
    /// Its local rank.
    pub local_rank: LocalRank,
    /// Its rank.
    pub rank: Rank,
    /// Its process id.
    pub pid: u32,
}

/// The agent machine. See the module.
#[derive(Debug)]
pub struct Agent {
    pub(super) config: AgentConfig,
    pub(super) ledger: Ledger,
    pub(super) spec: Option<RunSpec>,
    pub(super) promised: Option<Term>,
    pub(super) leader: Option<Incarnation>,
    /// The run directory of the coordinator that it follows.
    pub(super) run_of: Option<StoreId>,
    pub(super) welcomed: bool,
    /// The last `Join`, while it is not answered.
    pub(super) joining: Option<Joining>,
    pub(super) link: bool,
    pub(super) seen: Option<u64>,
    pub(super) sent: u64,
    pub(super) phase: Phase,
    /// Nothing at or below this attempt starts here any more.
    pub(super) floor: Option<Attempt>,
    pub(super) team: Option<Team>,
    /// A `Start` that waits for a grant.
    pub(super) waiting: Option<(Attempt, Box<World>)>,
    pub(super) grant: BootTime,
    pub(super) offer: Option<Offer>,
    pub(super) offer_op: Option<Op>,
    pub(super) offer_retry: Option<BootTime>,
    pub(super) survivors: Vec<Survivor>,
    /// What the hint of the coordinator says.
    pub(super) proof: Option<u64>,
    pub(super) signals: Signals,
    /// Goes with this code as soon as nothing is left.
    pub(super) leaving: Option<u8>,
    pub(super) resend: Option<BootTime>,
    /// Goes at this time with this code, whatever the coordinator says.
    pub(super) quit: Option<(BootTime, u8)>,
    /// Gives up at this time if no coordinator was found by then.
    pub(super) orphan: Option<BootTime>,
    /// Since when the coordinator that welcomed this agent is gone.
    pub(super) alone: Option<BootTime>,
    /// When its grant is over too, and that is said.
    pub(super) mourn: Option<BootTime>,
    /// Checks of this node.
    pub(super) health: Health,
    pub(super) next_op: u64,
    /// The pages of the ranks of the newest attempt.
    pub(super) watch: Watch,
    /// What the coordinator was told of their times.
    pub(super) told: Learned,
    /// What ranks asked for last.
    pub(super) requests: BTreeMap<LocalRank, Request>,
}

impl Agent {
    /// An agent that has done nothing yet; its first event is [`Event::Begin`].
    #[must_use]
    pub fn new(config: AgentConfig) -> Self {
        let survivors = config.survivors.clone();
        Self {
            config,
            ledger: Ledger::default(),
            spec: None,
            promised: None,
            leader: None,
            run_of: None,
            welcomed: false,
            joining: None,
            link: false,
            seen: None,
            sent: 0,
            phase: Phase::Idle,
            floor: None,
            team: None,
            waiting: None,
            grant: BootTime(0),
            offer: None,
            offer_op: None,
            offer_retry: None,
            survivors,
            proof: None,
            signals: Signals::default(),
            leaving: None,
            resend: None,
            quit: None,
            orphan: None,
            alone: None,
            mourn: None,
            health: Health::default(),
            next_op: 0,
            watch: Watch::default(),
            told: Learned::default(),
            requests: BTreeMap::new(),
        }
    }

    /// What the journal says, as far as this agent has read it.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The attempt whose ranks may live here, with their process ids.
    #[must_use]
    pub fn alive(&self) -> Option<(Attempt, Vec<AliveRank>)> {
        let team = self.team.as_ref()?;
        let alive = team.ranks.iter().filter(|(_, l)| matches!(l.life, Life::Alive | Life::Spawning));
        let pids: Vec<_> =
            alive.map(|(local, l)| AliveRank { local_rank: *local, rank: l.rank, pid: l.pid }).collect();
        if pids.is_empty() && !self.busy() { None } else { Some((team.attempt, pids)) }
    }

    /// Ranks, or what they left behind, may still be there.
    pub(super) fn busy(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Finished | Phase::Dirty { .. } | Phase::Gone)
    }

    /// The programs of the user that are asked about this node.
    #[must_use]
    pub fn programs(&self) -> HealthSpec {
        self.spec.as_ref().map(|spec| spec.health.clone()).unwrap_or_default()
    }

    pub(super) fn numbers(&self) -> &Numbers {
        self.spec.as_ref().map_or(&self.config.numbers, |s| &s.numbers)
    }

    pub(super) fn op(&mut self) -> Op {
        self.next_op += 1;
        Op(self.next_op)
    }

    pub(super) fn has_grant(&self, now: Now) -> bool {
        now.boot < self.grant
    }

    /// The order for a stop that nobody gave: at once.
    pub(super) fn kill_order() -> StopOrder {
        StopOrder { signal: 9, grace_ms: 0 }
    }

    pub(super) fn send(&mut self, msg: CoordinatorMsg, out: &mut Outbox<Effect>) {
        if !self.link {
            return;
        }
        let n = self.sent;
        self.sent += 1;
        let incarnation = self.config.incarnation;
        out.put(Effect::Send(ToCoordinator { term: self.promised, incarnation, n, msg }));
    }

    /// The ends so far, as they are told to the coordinator.
    pub(super) fn exits(&self, now: Now) -> Vec<ExitReport> {
        let Some(team) = &self.team else { return Vec::new() };
        team.ranks.keys().filter_map(|local_rank| self.exit(now, *local_rank)).collect()
    }

    /// The end of one rank, if it has ended.
    pub(super) fn exit(&self, now: Now, local_rank: LocalRank) -> Option<ExitReport> {
        let l = self.team.as_ref()?.ranks.get(&local_rank)?;
        match &l.life {
            Life::Ended { exit, at, said } => Some(ExitReport {
                local_rank,
                pid: l.pid,
                exit: exit.clone(),
                ours: l.ours,
                at: *at,
                ago_ms: u64::try_from(now.boot.since(*at).as_millis()).unwrap_or(u64::MAX),
                summary: said.summary.clone(),
                words: said.words.clone(),
                recorded: said.recorded,
                evidence: (*said.evidence).clone(),
            }),
            Life::Spawning | Life::Alive => None,
        }
    }
}

impl Machine for Agent {
    type Event = Event;
    type Effect = Effect;

    fn handle(&mut self, now: Now, event: Event, out: &mut Outbox<Effect>) {
        if matches!(self.phase, Phase::Gone) {
            return;
        }
        self.kill_without_grant(now, out);
        self.take(now, event, out);
        self.on_time(now, out);
    }

    fn deadline(&self) -> Option<BootTime> {
        let stage = match self.phase {
            Phase::Asking { until } => Some(until),
            Phase::Dirty { retry } => Some(retry),
            Phase::Gone => return None,
            _ => None,
        };
        let ranks_run = matches!(self.phase, Phase::Spawning | Phase::Running | Phase::Asking { .. });
        let grant = (ranks_run && self.grant != BootTime::NEVER).then_some(self.grant);
        [
            self.resend,
            self.joining.map(|join| join.again),
            self.orphan,
            self.mourn,
            self.offer_retry,
            grant,
            self.quit.map(|(at, _)| at),
        ]
        .into_iter()
        .fold(stage, earlier)
    }
}
