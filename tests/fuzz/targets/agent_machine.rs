//! What a coordinator tells an agent, in any order, and what happens to its two ranks meanwhile.

use relight::domain::agent::{Agent, AgentConfig, Effect, Event};
use relight::domain::exit::ExitKind;
use relight::domain::ids::{Attempt, Incarnation, LocalRank, NodeName, RunId, Slot, Term};
use relight::domain::note::Note;
use relight::domain::outbox::{Machine, Outbox};
use relight::domain::record::Member;
use relight::domain::spec::{NodeSpec, Offer, RunSpec};
use relight::domain::time::{BootTime, Now};
use relight::domain::wire::{AgentMsg, StopOrder, StopWhy, Survivor, ToAgent, World};
use serde::{Deserialize, Serialize};

use super::coordinator_machine::{Bed, Step as Told, fails};
use crate::engine::{Target, behaviour};
use crate::steps;

pub const TARGET: Target = Target {
    name: "agent_machine",
    seeds,
    run,
    longest: 24 << 10,
    heap: |length| 512 * length + (64 << 20),
    words: &[],
};

/// One thing that happens.
#[derive(Debug, Serialize, Deserialize)]
enum Step {
    Link(bool),
    Told {
        term: u64,
        n: u64,
        msg: AgentMsg,
    },
    Granted {
        ms: u32,
    },
    Exited {
        attempt: u64,
        local: u32,
        kind: ExitKind,
    },
    /// The next sweep leaves this many.
    Survive(u8),
    /// The next ranks cannot be started.
    Refuse(bool),
    Pass {
        ms: u32,
    },
    Signal {
        signal: u8,
        terminal: bool,
    },
    Killed,
    Silent,
    Ended(u8),
}

fn seeds() -> Vec<Vec<u8>> {
    let mut bed = Bed::new();
    fails(1).into_iter().for_each(|step: Told| bed.step(step));
    let told = |n, msg| Step::Told { term: 0, n, msg };
    let spec = Box::new(RunSpec { run_id: RunId::new("r"), ..RunSpec::default() });
    let welcome = |tail| AgentMsg::Welcome {
        answers: 0,
        store: None,
        spec: spec.clone(),
        tail,
        leader: Incarnation(9),
        dead: vec![Incarnation(8)],
        forever: false,
    };
    let member = |slot: u32| Member {
        slot: Slot(slot),
        node: NodeName::new(format!("n{:02}", slot + 1)),
        incarnation: Incarnation(u64::from(slot) + 1),
        nproc: 2,
        log_dir: String::new(),
        role: String::new(),
    };
    let world = std::sync::Arc::new(World {
        members: (0..3).map(member).collect(),
        master: Offer { address: "10.0.0.1".into(), port: 20_000, hosted: true },
        addresses: Vec::new(),
        resume: None,
    });
    let start = || AgentMsg::Start { attempt: Attempt(0), life: Incarnation(1), world: world.clone() };
    let order = StopOrder { signal: 15, grace_ms: 2_000 };
    let stop = AgentMsg::Stop { attempt: Attempt(0), order, why: StopWhy::Restart };
    let exit = |local, kind| Step::Exited { attempt: 0, local, kind };
    let first = vec![
        Step::Link(true),
        told(0, welcome(bed.journal.iter().take(2).cloned().map(std::sync::Arc::new).collect())),
        Step::Granted { ms: 5_000 },
        told(1, start()),
        exit(1, ExitKind::Code(1)),
        told(2, stop),
        exit(0, ExitKind::Signal { no: 15, core: false }),
        Step::Pass { ms: 3_000 },
        told(3, AgentMsg::PassOn { signal: 10 }),
        told(4, AgentMsg::Finish { code: 1 }),
        Step::Pass { ms: 60_000 },
    ];
    let second = vec![
        Step::Link(true),
        told(0, welcome(vec![])),
        Step::Granted { ms: 60_000 },
        Step::Survive(1),
        told(1, start()),
        Step::Signal { signal: 15, terminal: false },
        Step::Link(false),
        Step::Silent,
        Step::Pass { ms: 70_000 },
        Step::Signal { signal: 15, terminal: true },
        Step::Killed,
        Step::Pass { ms: 40_000 },
    ];
    vec![steps::write(&first), steps::write(&second)]
}

struct Bed2 {
    machine: Agent,
    ms: u64,
    survive: u8,
    refuse: bool,
    said: Vec<u64>,
    code: Option<u8>,
}

impl Bed2 {
    fn event(&mut self, event: Event) {
        let now = Now { boot: BootTime::from_millis(self.ms), wall_ms: self.ms };
        let mut out = Outbox::default();
        self.machine.handle(now, event, &mut out);
        self.said.extend(out.take_notes().iter().map(|note: &Note| behaviour(std::mem::discriminant(note))));
        for effect in out.take_effects() {
            self.said.push(behaviour(std::mem::discriminant(&effect)));
            assert!(self.code.is_none(), "it is gone: {effect:?}");
            let next = match effect {
                Effect::Spawn { seats, .. } => {
                    for seat in seats {
                        let what = String::new();
                        self.event(if self.refuse {
                            Event::SpawnFailed { op: seat.op, errno: 11, what }
                        } else {
                            Event::Spawned { op: seat.op, pid: 100 + seat.local_rank.0 }
                        });
                    }
                    continue;
                }
                Effect::Sweep { op, .. } => {
                    let survivors =
                        (0..u32::from(self.survive)).map(|pid| Survivor { pid, state: 'D' }).collect();
                    self.survive = 0;
                    Event::Swept { op, survivors }
                }
                Effect::OpenOffer { op } => {
                    Event::OfferReady { op, offer: Offer { address: "10.0.0.2".into(), port: 20_001, hosted: true } }
                }
                Effect::Exit(code) => {
                    self.code = Some(code);
                    continue;
                }
                _ => continue,
            };
            if self.code.is_none() {
                self.event(next);
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        let end = self.ms.saturating_add(ms);
        for _ in 0..2_000 {
            let next = self.machine.deadline().map_or(u64::MAX, |at| at.0.div_ceil(1_000_000));
            if next > end || self.code.is_some() {
                break;
            }
            self.ms = next.max(self.ms);
            self.event(Event::Tick);
            let again = self.machine.deadline().is_none_or(|at| at > BootTime::from_millis(self.ms));
            assert!(again, "it is due again at once");
        }
        self.ms = end;
    }
}

fn run(input: &[u8]) -> u64 {
    let node = NodeName::new("n02");
    let spec = NodeSpec { nproc: 2, order: 2, ..NodeSpec::default() };
    let config = AgentConfig { node, incarnation: Incarnation(2), spec, ..AgentConfig::default() };
    let machine = Agent::new(config);
    let mut bed = Bed2 { machine, ms: 100_000, survive: 0, refuse: false, said: Vec::new(), code: None };
    bed.event(Event::Begin);
    for step in steps::read::<Step>(input) {
        if bed.code.is_some() {
            break;
        }
        match step {
            Step::Link(true) => bed.event(Event::LinkUp),
            Step::Link(false) => bed.event(Event::LinkDown),
            Step::Told { term, n, msg } => bed.event(Event::Recv(ToAgent { term: Term(term), n, msg })),
            Step::Granted { ms } => bed.event(Event::Granted(BootTime::from_millis(bed.ms + u64::from(ms)))),
            Step::Exited { attempt, local, kind } => bed.event(Event::RankExited {
                attempt: Attempt(attempt),
                local_rank: LocalRank(local),
                kind,
                at: BootTime::from_millis(bed.ms),
                summary: String::new(),
                words: String::new(),
                recorded: None,
        evidence: Default::default(),
            }),
            Step::Survive(count) => bed.survive = count,
            Step::Refuse(yes) => bed.refuse = yes,
            Step::Pass { ms } => bed.pass(u64::from(ms % 700_000)),
            Step::Signal { signal, terminal } => {
                bed.event(Event::OsSignal { signal, terminal, pid: None, uid: None, user: terminal });
            }
            Step::Killed => bed.event(Event::RanksKilled),
            Step::Silent => bed.event(Event::LeaderSilent { since: BootTime::from_millis(bed.ms) }),
            Step::Ended(code) => bed.event(Event::RunEnded { code }),
        }
    }
    bed.said.dedup();
    behaviour((bed.said, bed.code))
}
