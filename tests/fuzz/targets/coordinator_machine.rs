//! What agents and a supervisor tell a coordinator, in any order, and what the world does to it: three nodes and a spare.

use std::time::Duration;

use relight::domain::console::{Banner, Console};
use relight::domain::coordinator::{Appended, Coordinator, CoordinatorConfig, Effect, Event};
use relight::domain::exit::ExitKind;
use relight::domain::ids::{Attempt, Incarnation, LocalRank, NodeName, RunId, Seq, Term};
use relight::domain::ledger::Ledger;
use relight::domain::outbox::{Machine, Outbox};
use relight::domain::policy::JobWord;
use relight::domain::record::{Body, Record};
use relight::domain::spec::{NodeSpec, Numbers, Offer, RunSpec};
use relight::domain::time::{BootTime, Now};
use relight::domain::wire::{CoordinatorMsg, ExitReport, FromSupervisor, ToCoordinator};
use relight::store::codec;
use serde::{Deserialize, Serialize};

use crate::engine::{Target, behaviour};
use crate::steps;

pub const TARGET: Target = Target {
    name: "coordinator_machine",
    seeds: || vec![steps::write(&fails(2)), steps::write(&fails(1)), steps::write(&loses())],
    run,
    longest: 24 << 10,
    // Every step may be told to every node and written down.
    heap: |length| 512 * length + (8 << 20),
    words: &[],
};

/// One thing that happens. Nodes are numbers, 1 leads; those above 4 are strangers.
#[derive(Debug, Serialize, Deserialize)]
pub enum Step {
    Says {
        from: u8,
        term: Option<u64>,
        life: u64,
        msg: CoordinatorMsg,
    },
    Pass {
        ms: u32,
    },
    Held,
    Over,
    Quiet {
        node: u8,
    },
    Late {
        node: u8,
    },
    Silent {
        node: u8,
    },
    Back {
        node: u8,
    },
    Closed {
        node: u8,
        over_in_ms: u32,
    },
    Down {
        node: u8,
        life: u64,
    },
    Supervisor(FromSupervisor),
    SupervisorLink(bool),
    /// From here on appends are lost to this record, or not answered.
    Store {
        answers: bool,
        trouble: bool,
    },
    Probed {
        name: String,
        won: bool,
    },
}

fn name(node: u8) -> NodeName {
    NodeName::new(format!("n{node:02}"))
}

fn says(from: u8, msg: CoordinatorMsg) -> Step {
    let term = (!matches!(msg, CoordinatorMsg::Join { .. })).then_some(0);
    Step::Says { from, term, life: u64::from(from), msg }
}

fn join(node: u8) -> Step {
    let address = format!("10.0.0.{node}");
    let spec = NodeSpec {
        nproc: 2,
        address: address.clone(),
        port: 29_400,
        order: u32::from(node),
        ..NodeSpec::default()
    };
    says(
        node,
        CoordinatorMsg::Join {
            spec: Box::new(spec),
            offer: Some(Offer { address, port: 20_000, hosted: true }),
            store: None,
            proof: None,
            clean_of: vec![],
            running: None,
            next: Seq(0),
            survivors: vec![],
        },
    )
}

fn running() -> Vec<Step> {
    let mut all: Vec<Step> = (1..=4).map(join).collect();
    all.push(Step::Held);
    all.extend((1..=3).map(|node| says(node, CoordinatorMsg::Started(Attempt(0)))));
    all.push(Step::Pass { ms: 60_000 });
    all
}

fn end(local: u32, exit: ExitKind, ours: bool) -> ExitReport {
    ExitReport {
        local_rank: LocalRank(local),
        pid: 7,
        exit,
        ours,
        at: BootTime(0),
        ago_ms: 5,
        summary: "ValueError: x in t.py:1".into(),
        words: "Traceback".into(),
        recorded: None,
        evidence: Default::default(),
    }
}

fn stopped(attempt: u64) -> Vec<Step> {
    let offer = Some(Offer { address: "10.0.0.9".into(), port: 20_001, hosted: true });
    let stop = |node: u8| {
        let exits =
            vec![end(0, ExitKind::Signal { no: 15, core: false }, true), end(1, ExitKind::Code(1), false)];
        says(
            node,
            CoordinatorMsg::Stopped {
                attempt: Attempt(attempt),
                exits,
                survivors: vec![],
                offer: offer.clone(),
            },
        )
    };
    (1..=3).map(stop).collect()
}

/// A rank fails so often that the run ends.
pub fn fails(times: u64) -> Vec<Step> {
    let mut all = running();
    for attempt in 0..times {
        let exits = vec![end(1, ExitKind::Code(1), false)];
        all.push(says(2, CoordinatorMsg::Exited { attempt: Attempt(attempt), exits }));
        all.extend(stopped(attempt));
        all.extend((1..=3).map(|node| says(node, CoordinatorMsg::Started(Attempt(attempt + 1)))));
        all.push(Step::Pass { ms: 20_000 });
    }
    all.extend(
        (1..=3).map(|node| says(node, CoordinatorMsg::Finished { attempt: Attempt(times), exits: vec![] })),
    );
    all.extend((1..=4).map(|node| says(node, CoordinatorMsg::Leaving)));
    all.push(Step::Pass { ms: 10_000 });
    all
}

/// A node is lost and comes back.
fn loses() -> Vec<Step> {
    let mut all = running();
    all.push(Step::Quiet { node: 3 });
    all.push(says(1, CoordinatorMsg::Reach { node: name(3), ok: false }));
    all.push(Step::Silent { node: 3 });
    all.push(Step::Closed { node: 3, over_in_ms: 4_000 });
    all.extend(stopped(0));
    all.push(Step::Pass { ms: 5_000 });
    all.push(Step::Back { node: 3 });
    all.push(join(3));
    all.push(Step::Supervisor(FromSupervisor::AgentEnded { node: name(3), rc: 1 }));
    all.push(Step::Supervisor(FromSupervisor::Job(JobWord::Ends)));
    all.push(Step::SupervisorLink(true));
    all.push(says(
        1,
        CoordinatorMsg::Signal { signal: 15, terminal: false, pid: None, uid: None, again: false },
    ));
    all.push(Step::Store { answers: true, trouble: true });
    all.push(Step::Pass { ms: 60_000 });
    all
}

/// A coordinator and what it did.
pub struct Bed {
    machine: Coordinator,
    ms: u64,
    n: u64,
    answers: bool,
    console: Console,
    effects: usize,
    /// What was written.
    pub journal: Vec<Record>,
}

impl Bed {
    pub fn new() -> Self {
        let numbers = Numbers { lost_ms: 6_000, ..Numbers::default() };
        let spec = RunSpec {
            run_id: RunId::new("r"),
            min_nodes: 3,
            max_nodes: 3,
            spares: 1,
            max_restarts: Some(1),
            numbers,
            ..RunSpec::default()
        };
        let config = CoordinatorConfig {
            node: name(1),
            incarnation: Incarnation(1),
            spec,
            voters: (1..=4).map(name).collect(),
            snapshot_every: 3,
            ..CoordinatorConfig::default()
        };
        let machine = Coordinator::new(config, Ledger::default());
        let console = Console::new(Banner { nodes: 3, nproc: 2, ..Banner::default() });
        let (ms, n, answers, effects, journal) = (100_000, 0, true, 0, Vec::new());
        let mut bed = Self { machine, ms, n, answers, console, effects, journal };
        bed.event(Event::Begin);
        bed
    }

    fn event(&mut self, event: Event) {
        let now = Now { boot: BootTime::from_millis(self.ms), wall_ms: self.ms };
        let mut out = Outbox::default();
        self.machine.handle(now, event, &mut out);
        for note in out.take_notes() {
            for line in self.console.lines(&note, "T") {
                assert!(!line.contains('\0') || format!("{note:?}").contains("\\0"), "{line:?} {note:?}");
            }
        }
        for effect in out.take_effects() {
            self.effects += 1;
            match effect {
                Effect::Append { op, record } if self.answers => {
                    self.journal.push(*record);
                    self.event(Event::Appended { op, outcome: Appended::Written });
                }
                Effect::Report(incident) => self.console.settled(&incident),
                _ => {}
            }
        }
    }

    /// Time passes; the machine is woken as often as it wants to be.
    fn pass(&mut self, ms: u64) {
        let end = self.ms.saturating_add(ms);
        for _ in 0..2_000 {
            let next = self.machine.deadline().map_or(u64::MAX, |at| at.0.div_ceil(1_000_000));
            if next > end {
                break;
            }
            self.ms = next.max(self.ms);
            self.event(Event::Tick);
            let again = self.machine.deadline().is_none_or(|at| at > BootTime::from_millis(self.ms));
            assert!(again, "it is due again at once");
        }
        self.ms = end;
    }

    pub fn step(&mut self, step: Step) {
        let silent = Duration::from_secs(5);
        match step {
            Step::Says { from, term, life, msg } => {
                self.n += 1;
                let (term, n) = (term.map(Term), self.n);
                self.event(Event::Recv {
                    from: name(from),
                    frame: ToCoordinator { term, incarnation: Incarnation(life), n, msg },
                });
            }
            Step::Pass { ms } => self.pass(u64::from(ms % 700_000)),
            Step::Held => self.event(Event::AuthorityHeld),
            Step::Over => self.event(Event::AuthorityOver),
            Step::Quiet { node } => self.event(Event::Quiet { node: name(node), silent }),
            Step::Late { node } => self.event(Event::Late { node: name(node), silent }),
            Step::Silent { node } => self.event(Event::Silent { node: name(node), silent }),
            Step::Back { node } => self.event(Event::Back { node: name(node) }),
            Step::Closed { node, over_in_ms } => {
                let over_at = BootTime::from_millis(self.ms + u64::from(over_in_ms));
                self.event(Event::GrantsClosed { node: name(node), over_at });
            }
            Step::Down { node, life } => {
                self.event(Event::LinkDown { node: name(node), incarnation: Incarnation(life) })
            }
            Step::Supervisor(message) => self.event(Event::Supervisor(message)),
            Step::SupervisorLink(up) => self.event(Event::SupervisorLink { up }),
            Step::Store { answers, trouble } => {
                self.answers = answers;
                if trouble {
                    self.event(Event::StoreTrouble { text: "EIO".into() });
                }
            }
            Step::Probed { name, won } => self.event(Event::Probed { name, won }),
        }
    }
}

fn run(input: &[u8]) -> u64 {
    let mut bed = Bed::new();
    for step in steps::read(input) {
        bed.step(step);
    }
    // What was written is what is known, in memory and on disk.
    let bytes: Vec<Vec<u8>> =
        bed.journal.iter().map(|record| codec::encode(record).expect("a record")).collect();
    let read: Vec<Record> =
        (0..).zip(&bytes).map(|(seq, bytes)| codec::decode(Seq(seq), bytes).expect("a record")).collect();
    assert_eq!(read, bed.journal);
    assert_eq!(Ledger::replay(&read).as_ref(), Ok(bed.machine.ledger()));
    let kinds: Vec<_> = bed.journal.iter().map(|record| record.kind).collect();
    let losses =
        bed.journal.iter().filter(|r| matches!(&r.body, Body::Incident(i) if !i.lost.is_empty())).count();
    behaviour((format!("{:?}{kinds:?}", bed.machine.phase()), losses, bed.effects / 4))
}
