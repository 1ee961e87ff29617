//! A coordinator with its nodes as a table of names, driven by hand: what it says, sends and writes.

use super::super::console::{Banner, Console};
use super::super::exit::ExitKind;
use super::super::ids::{Attempt, Incarnation, LocalRank, NodeName, RunId, Seq, Slot, Term};
use super::super::ledger::Ledger;
use super::super::note::{Note, Replaced, Sign};
use super::super::outbox::{Machine, Outbox};
use super::super::record::{AttemptBody, Body, Break, Cause, Decision, Record};
use super::super::spec::{NodeSpec, Numbers, Offer, RunSpec};
use super::super::time::{BootTime, Now};
use super::super::wire::{
    AgentMsg, CoordinatorMsg, ExitReport, FromSupervisor, RefusedWhy, Survivor, ToCoordinator, ToSupervisor,
};
use super::*;

mod blame;
mod deciding;
mod doubt;
mod elastic;
mod gate;
mod hang;
mod members;
mod proof;
mod scale;
mod told;

/// Everything that happened, and the machine.
pub(super) struct Bed {
    pub(super) machine: Coordinator,
    pub(super) ms: u64,
    pub(super) notes: Vec<Note>,
    pub(super) effects: Vec<Effect>,
    /// Records as they were written.
    pub(super) journal: Vec<Record>,
    /// Answers appends at once.
    pub(super) writes: bool,
    /// Nodes say at once that they are fit.
    pub(super) fit: bool,
    n: u64,
}

pub(super) fn name(i: u64) -> NodeName {
    NodeName::new(format!("n{i:02}"))
}

pub(super) fn spec(nodes: u32, spares: u32) -> RunSpec {
    RunSpec {
        run_id: RunId::new("r"),
        min_nodes: nodes,
        max_nodes: nodes,
        spares,
        max_restarts: Some(20),
        numbers: Numbers { lost_ms: 6_000, ..Numbers::default() },
        ..RunSpec::default()
    }
}

impl Bed {
    /// Nodes `n01` to the last; `n01` leads.
    pub(super) fn new(nodes: u32, spares: u32) -> Self {
        Self::with(CoordinatorConfig {
            node: name(1),
            incarnation: Incarnation(1),
            spec: spec(nodes, spares),
            voters: (1..=u64::from(nodes + spares)).map(name).collect(),
            ..CoordinatorConfig::default()
        })
    }

    /// The same with `--nnodes MIN:MAX`, in a launch of MAX nodes.
    pub(super) fn elastic(min: u32, max: u32) -> Self {
        Self::with(CoordinatorConfig {
            node: name(1),
            incarnation: Incarnation(1),
            spec: RunSpec { min_nodes: min, ..spec(max, 0) },
            voters: (1..=u64::from(max)).map(name).collect(),
            ..CoordinatorConfig::default()
        })
    }

    pub(super) fn with(config: CoordinatorConfig) -> Self {
        let fit = config.spec.health.commands.is_empty();
        let machine = Coordinator::new(config, Ledger::default());
        let (notes, effects, journal) = (Vec::new(), Vec::new(), Vec::new());
        let mut bed = Self { machine, ms: 100_000, notes, effects, journal, writes: true, fit, n: 0 };
        bed.event(Event::Begin);
        bed
    }

    /// A world of 8 ranks a node that runs since a while.
    pub(super) fn running(nodes: u32, spares: u32) -> Self {
        let mut bed = Self::new(nodes, spares);
        bed.join_all(nodes + spares);
        bed.event(Event::AuthorityHeld);
        bed.all_start();
        bed.pass(60_000);
        bed.notes.clear();
        bed
    }

    pub(super) fn join_all(&mut self, count: u32) {
        for i in 1..=u64::from(count) {
            self.join(i, i);
        }
    }

    pub(super) fn event(&mut self, event: Event) {
        let now = Now { boot: BootTime::from_millis(self.ms), wall_ms: self.ms };
        let mut out = Outbox::default();
        self.machine.handle(now, event, &mut out);
        self.notes.extend(out.take_notes());
        let effects = out.take_effects();
        self.effects.extend(effects.iter().cloned());
        for effect in effects {
            match effect {
                Effect::Append { op, record } if self.writes => {
                    self.journal.push(*record);
                    self.event(Event::Appended { op, outcome: Appended::Written });
                }
                // Where programs are asked, tests answer.
                Effect::Send { to, incarnation, frame } if self.fit => {
                    if let AgentMsg::Check { attempt } = frame.msg {
                        let life = incarnation.0;
                        let i = self.life(&to).0;
                        let msg = CoordinatorMsg::Health { attempt: Some(attempt), results: Vec::new() };
                        self.says(i, life, msg);
                    }
                }
                _ => {}
            }
        }
    }

    /// Time passes, the machine is woken whenever it wants to be.
    pub(super) fn pass(&mut self, ms: u64) {
        let end = self.ms + ms;
        for _ in 0..100_000 {
            let next = self.machine.deadline().map_or(u64::MAX, |at| at.0.div_ceil(1_000_000));
            if next > end {
                self.ms = end;
                return;
            }
            self.ms = next.max(self.ms);
            self.event(Event::Tick);
            let again = self.machine.deadline().is_none_or(|at| at > BootTime::from_millis(self.ms));
            assert!(again, "due again at once: {:?}", self.machine);
        }
        unreachable!("it spins: {:?}", self.machine);
    }

    pub(super) fn says(&mut self, from: u64, life: u64, msg: CoordinatorMsg) {
        self.n += 1;
        let term = Some(Term(0)).filter(|_| !matches!(msg, CoordinatorMsg::Join { .. }));
        let frame = ToCoordinator { term, incarnation: Incarnation(life), n: self.n, msg };
        self.event(Event::Recv { from: name(from), frame });
    }

    pub(super) fn join(&mut self, i: u64, life: u64) {
        self.join_with(i, life, Vec::new());
    }

    pub(super) fn join_with(&mut self, i: u64, life: u64, clean_of: Vec<Incarnation>) {
        let spec = NodeSpec {
            nproc: 8,
            address: format!("10.0.0.{i}"),
            port: 29_400,
            order: u32::try_from(i).unwrap(),
            ..NodeSpec::default()
        };
        let offer = Some(Offer { address: spec.address.clone(), port: 20_000, hosted: true });
        let join = CoordinatorMsg::Join {
            spec: Box::new(spec),
            offer,
            store: None,
            proof: None,
            clean_of,
            running: None,
            next: Seq(0),
            survivors: Vec::new(),
        };
        self.says(i, life, join);
    }

    /// Every node to which a start was sent says that its ranks run.
    pub(super) fn all_start(&mut self) {
        let attempt = self.attempt();
        for node in self.starts(attempt) {
            let (i, life) = self.life(&node);
            self.says(i, life, CoordinatorMsg::Started(attempt));
        }
    }

    pub(super) fn life(&self, node: &NodeName) -> (u64, u64) {
        let i = node.as_str()[1..].parse().unwrap();
        (i, self.machine.peers[node].incarnation.0)
    }

    pub(super) fn attempt(&self) -> Attempt {
        self.machine.ledger().attempt().unwrap()
    }

    /// To whom a start of this attempt was sent.
    pub(super) fn starts(&self, wanted: Attempt) -> Vec<NodeName> {
        let mut nodes: Vec<NodeName> = self
            .sent()
            .filter(|(_, m)| matches!(m, AgentMsg::Start { attempt, .. } if *attempt == wanted))
            .map(|(to, _)| to.clone())
            .collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    pub(super) fn sent(&self) -> impl Iterator<Item = (&NodeName, &AgentMsg)> {
        self.effects.iter().filter_map(|e| match e {
            Effect::Send { to, frame, .. } => Some((to, &frame.msg)),
            _ => None,
        })
    }

    /// Everybody who was asked to stop says that nothing is left.
    pub(super) fn all_stop(&mut self, but: &[u64]) {
        let attempt = self.attempt();
        for node in self.machine.busy.keys().cloned().collect::<Vec<_>>() {
            let (i, life) = self.life(&node);
            if !but.contains(&i) {
                self.stopped(i, life, attempt);
            }
        }
    }

    pub(super) fn stopped(&mut self, i: u64, life: u64, attempt: Attempt) {
        let offer = Some(Offer { address: format!("10.0.0.{i}"), port: 20_001, hosted: true });
        let msg = CoordinatorMsg::Stopped { attempt, exits: Vec::new(), survivors: Vec::new(), offer };
        self.says(i, life, msg);
    }

    pub(super) fn exited(&mut self, i: u64, exits: Vec<ExitReport>) {
        let (attempt, life) = (self.attempt(), self.life(&name(i)).1);
        self.says(i, life, CoordinatorMsg::Exited { attempt, exits });
    }

    /// The grant of a node is over so much later.
    pub(super) fn grants_closed(&mut self, i: u64, in_ms: u64) {
        let over_at = BootTime::from_millis(self.ms + in_ms);
        self.event(Event::GrantsClosed { node: name(i), over_at });
    }

    pub(super) fn quiet(&mut self, i: u64, silent: u64) {
        self.event(Event::Quiet { node: name(i), silent: Duration::from_millis(silent) });
    }

    pub(super) fn reach(&mut self, from: u64, node: u64, ok: bool) {
        let life = self.life(&name(from)).1;
        self.says(from, life, CoordinatorMsg::Reach { node: name(node), ok });
    }

    /// Who was asked about this node since the last look.
    pub(super) fn asked(&mut self, node: u64) -> Vec<NodeName> {
        let about = |m: &AgentMsg| matches!(m, AgentMsg::TryReach { node: n, .. } if *n == name(node));
        let asked = self.sent().filter(|(_, m)| about(m)).map(|(to, _)| to.clone()).collect();
        self.effects.clear();
        asked
    }

    pub(super) fn lost(&self) -> Vec<(NodeName, Sign)> {
        let lost = self.notes.iter().filter_map(|n| match n {
            Note::NodeLost { node, sign, .. } => Some((node.clone(), sign.clone())),
            _ => None,
        });
        lost.collect()
    }

    /// Kinds of the records since the start of the test.
    pub(super) fn attempts(&self) -> Vec<&Record> {
        self.journal.iter().filter(|r| matches!(r.body, Body::Attempt(_))).collect()
    }

    /// What people read.
    pub(super) fn console(&self) -> Vec<String> {
        let mut console = Console::new(Banner {
            run: RunId::new("r"),
            call: "r".into(),
            nodes: 4,
            nproc: 8,
            ..Banner::default()
        });
        console.returned();
        for effect in &self.effects {
            if let Effect::Report(incident) = effect {
                console.settled(incident);
            }
        }
        self.notes.iter().flat_map(|note| console.lines(note, "T")).collect()
    }
}

pub(super) fn report(local: u32, exit: ExitKind, summary: &str) -> ExitReport {
    ExitReport {
        local_rank: LocalRank(local),
        pid: 1_000 + local,
        exit,
        ours: false,
        at: BootTime(0),
        ago_ms: 0,
        summary: summary.into(),
        words: String::new(),
        recorded: None,
        evidence: Default::default(),
    }
}

pub(super) const KILL: ExitKind = ExitKind::Signal { no: 9, core: false };

/// The world that a record opens.
pub(super) fn world(record: &Record) -> &AttemptBody {
    match &record.body {
        Body::Attempt(world) => Some(world),
        _ => None,
    }
    .unwrap()
}

/// What broke the world before it.
pub(super) fn cause(record: &Record) -> &Break {
    match &world(record).cause {
        Cause::Incident(broke) => Some(broke),
        Cause::Start => None,
    }
    .unwrap()
}
