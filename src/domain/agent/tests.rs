//! Rules of an agent that no sequence with a coordinator reaches.

use super::super::ids::RunId;
use super::super::ids::Seq;
use super::super::outbox::{Machine as _, Outbox};
use super::super::record::{AttemptBody, Body, Cause, Kind, Member, RECORD_VERSION, Record, Writer};
use super::super::spec::{NodeSpec, RunSpec};
use super::super::time::Now;
use super::super::wire::{AgentMsg, CoordinatorMsg};
use super::*;

const NODE: &str = "n1";

fn at(ms: u64) -> Now {
    Now { boot: BootTime::from_millis(ms), wall_ms: ms }
}

/// Tells it an event; what it wants done.
fn tell(agent: &mut Agent, now: Now, event: Event) -> Vec<Effect> {
    let mut out = Outbox::default();
    agent.handle(now, event, &mut out);
    out.take_effects()
}

fn member(node: &str) -> Member {
    Member {
        slot: Slot(0),
        node: NodeName::new(node),
        incarnation: Incarnation(0),
        nproc: 1,
        role: String::new(),
        log_dir: String::new(),
    }
}

/// An agent with one rank that runs under this specification, under a grant without an end.
fn running(spec: RunSpec) -> Agent {
    let brings = NodeSpec { nproc: 1, ..NodeSpec::default() };
    let config = AgentConfig { node: NodeName::new(NODE), spec: brings, ..AgentConfig::default() };
    let mut agent = Agent::new(config);
    let mut effects = tell(&mut agent, at(1), Event::Begin);
    effects.extend(tell(&mut agent, at(2), Event::LinkUp));
    let joins = effects.iter().filter_map(|effect| match effect {
        Effect::Send(frame) if matches!(frame.msg, CoordinatorMsg::Join { .. }) => Some(frame.n),
        _ => None,
    });
    let answers = joins.max().unwrap();
    let leader = Incarnation(0);
    let welcome = AgentMsg::Welcome {
        answers,
        store: None,
        spec: Box::new(spec),
        tail: vec![],
        leader,
        dead: vec![],
        forever: true,
    };
    tell(&mut agent, at(3), Event::Recv(ToAgent { term: Term(1), n: 0, msg: welcome }));
    tell(&mut agent, at(4), Event::Granted(BootTime::NEVER));
    let world = std::sync::Arc::new(World { members: vec![member(NODE)], ..World::default() });
    let start = AgentMsg::Start { attempt: Attempt(0), life: Incarnation(0), world };
    let effects = tell(&mut agent, at(5), Event::Recv(ToAgent { term: Term(1), n: 1, msg: start }));
    let op = effects.iter().find_map(|effect| match effect {
        Effect::Spawn { seats, .. } => seats.first().map(|seat| seat.op),
        _ => None,
    });
    tell(&mut agent, at(6), Event::Spawned { op: op.unwrap(), pid: 77 });
    agent
}

/// Machines without Slurm may meet another run at the same place: its attempt 0 is not theirs.
#[test]
fn a_coordinator_of_another_run_is_not_followed() {
    use super::super::ids::StoreId;
    let welcome = |store: &str| AgentMsg::Welcome {
        answers: 9,
        store: Some(StoreId::new(store)),
        spec: Box::new(RunSpec { run_id: RunId::new("r"), ..RunSpec::default() }),
        tail: vec![],
        leader: Incarnation(0),
        dead: vec![],
        forever: true,
    };
    let mut agent = running(RunSpec { run_id: RunId::new("r"), max_nodes: 1, ..RunSpec::default() });
    let mut hears = |n, store| {
        let frame = ToAgent { term: Term(1), n, msg: welcome(store) };
        tell(&mut agent, at(20 + n), Event::Recv(frame))
    };
    let sweeps = |effects: Vec<Effect>| effects.iter().any(|effect| matches!(effect, Effect::Sweep { .. }));
    assert!(!sweeps(hears(10, "one")), "the first one is its own");
    assert!(!sweeps(hears(11, "one")), "which leads again");
    assert!(sweeps(hears(12, "two")), "its ranks end with the run that they belong to");
}

/// `--shutdown-timeout` is honoured where nobody leads, too: it bounds the time from TERM to the sweep.
#[test]
fn a_stop_without_a_coordinator_has_the_grace_that_was_asked_for() {
    for (explicit, grace) in [(None, 30_000), (Some(90_000), 90_000), (Some(500), 500)] {
        let spec = RunSpec {
            run_id: RunId::new("r"),
            shutdown_timeout_ms: explicit,
            max_nodes: 1,
            ..RunSpec::default()
        };
        let mut agent = running(spec);
        tell(&mut agent, at(10), Event::LinkDown);
        let signal = Event::OsSignal { signal: 15, terminal: false, pid: None, uid: None, user: true };
        let effects = tell(&mut agent, at(20), signal);
        let asked =
            |effect: &Effect| matches!(effect, Effect::Signal { signal: 15, scope: Scope::Leader, .. });
        assert!(effects.iter().any(asked), "{effects:?}");
        let swept = |effects: &[Effect]| effects.iter().any(|effect| matches!(effect, Effect::Sweep { .. }));
        assert!(!swept(&tell(&mut agent, at(20 + grace - 1), Event::Tick)), "{explicit:?}: too early");
        assert!(swept(&tell(&mut agent, at(20 + grace), Event::Tick)), "{explicit:?}: too late");
    }
}

/// A store outlives the ranks of its attempt wherever they are; a node that has no place in the next world closes it when
/// the last of them has gone, and not with the attempt after that, which may be hours away.
#[test]
fn a_spare_lets_go_of_the_store_of_the_world_that_it_was_in() {
    let record = |seq: u64, attempt: u64, node: &str| {
        let body = AttemptBody {
            members: vec![member(node)],
            spares: vec![],
            voters: vec![],
            master: Offer { address: String::new(), port: 0, hosted: true },
            resume: None,
            cause: Cause::Start,
        };
        let record = Record {
            v: RECORD_VERSION,
            seq: Seq(seq),
            kind: Kind::Attempt,
            term: Term(1),
            attempt: Attempt(attempt),
            writer: Writer::default(),
            nonce: 0,
            wall_ms: 0,
            why: vec!["a test".to_owned()],
            body: Body::Attempt(body),
        };
        ToAgent { term: Term(1), n: 10 + seq, msg: AgentMsg::Committed(std::sync::Arc::new(record)) }
    };
    let over = |effects: &[Effect]| {
        let over = |effect: &Effect| matches!(effect, Effect::StoreOver { attempt: Attempt(0) });
        effects.iter().any(over)
    };
    let mut agent = running(RunSpec { run_id: RunId::new("r"), max_nodes: 1, ..RunSpec::default() });
    let mut hears = |frame| over(&tell(&mut agent, at(20), Event::Recv(frame)));
    assert!(!hears(record(0, 0, NODE)), "its own world");
    assert!(!hears(record(1, 1, NODE)), "the next one, in which it has a place: its start closes the store");
    assert!(hears(record(2, 2, "n2")), "one without it");
}

/// Programs look at devices that ranks use: they wait until nobody uses them, and what is asked twice is answered twice.
#[test]
fn programs_are_asked_when_no_rank_is_left() {
    use super::super::health::{CheckResult, Finding};
    use super::super::ids::Attempt;
    let mut agent = running(RunSpec { run_id: RunId::new("r"), max_nodes: 1, ..RunSpec::default() });
    let check = |n| {
        let msg = AgentMsg::Check { attempt: Attempt(1) };
        Event::Recv(ToAgent { term: Term(1), n, msg })
    };
    let begins =
        |effects: &[Effect]| effects.iter().any(|e| matches!(e, Effect::Check { attempt: Attempt(1) }));
    let answers = |effects: &[Effect]| {
        let health = |e: &&Effect| matches!(e, Effect::Send(frame) if matches!(&frame.msg, CoordinatorMsg::Health { .. }));
        effects.iter().filter(health).count()
    };
    assert!(!begins(&tell(&mut agent, at(20), check(20))), "ranks run");
    tell(&mut agent, at(21), Event::RanksKilled);
    let op = agent.next_op;
    let swept = Event::Swept { op: super::super::ids::Op(op), survivors: vec![] };
    assert!(begins(&tell(&mut agent, at(22), swept)));
    assert!(!begins(&tell(&mut agent, at(23), check(21))), "it is at it");
    let results = vec![CheckResult { check: "nhc".into(), finding: Finding::Fail, ..CheckResult::default() }];
    let over = |attempt| Event::Checked { attempt: Some(attempt), results: results.clone() };
    assert_eq!(answers(&tell(&mut agent, at(24), over(Attempt(7)))), 0, "nobody asked that");
    assert_eq!(answers(&tell(&mut agent, at(25), over(Attempt(1)))), 1);
    let again = tell(&mut agent, at(26), check(22));
    assert_eq!((answers(&again), begins(&again)), (1, false));
    // What nobody asked for is told where it is news.
    let unasked = || Event::Checked { attempt: None, results: results.clone() };
    assert_eq!(answers(&tell(&mut agent, at(27), unasked())), 1);
    assert_eq!(answers(&tell(&mut agent, at(28), unasked())), 0);
    let fine = vec![CheckResult { check: "nhc".into(), finding: Finding::Pass, ..CheckResult::default() }];
    let mended = || Event::Checked { attempt: None, results: fine.clone() };
    assert_eq!(answers(&tell(&mut agent, at(29), mended())), 1, "it is over");
    assert_eq!(answers(&tell(&mut agent, at(30), mended())), 0);
}

/// The last words of a rank are read before the agent hears of its end: the order to stop may come in between, because of a
/// victim elsewhere.
#[test]
fn a_rank_that_ended_before_it_was_asked_to_is_evidence() {
    use super::super::wire::{StopOrder, StopWhy};
    for (ended_at, killed_by_guardian, want) in
        [(49, false, false), (50, false, true), (80, false, true), (49, true, true)]
    {
        let mut agent = running(RunSpec { run_id: RunId::new("r"), max_nodes: 1, ..RunSpec::default() });
        let order = StopOrder { signal: 15, grace_ms: 2_000 };
        let stop = AgentMsg::Stop { attempt: Attempt(0), order, why: StopWhy::Restart };
        tell(&mut agent, at(50), Event::Recv(ToAgent { term: Term(1), n: 9, msg: stop }));
        if killed_by_guardian {
            tell(&mut agent, at(60), Event::RanksKilled);
        }
        let exited = Event::RankExited {
            attempt: Attempt(0),
            local_rank: LocalRank(0),
            kind: ExitKind::Signal { no: 9, core: false },
            at: BootTime::from_millis(ended_at),
            summary: String::new(),
            words: String::new(),
            recorded: None,
            evidence: Default::default(),
        };
        let mut effects = tell(&mut agent, at(90), exited);
        let op = effects.iter().find_map(|effect| match effect {
            Effect::Sweep { op, .. } => Some(*op),
            _ => None,
        });
        if let Some(op) = op.or(Some(Op(0)).filter(|_| killed_by_guardian)) {
            // With the guardian's word the sweep began before: any number is tried until one is the sweep's.
            for op in if killed_by_guardian { (0..20).map(Op).collect() } else { vec![op] } {
                effects.extend(tell(&mut agent, at(95), Event::Swept { op, survivors: Vec::new() }));
            }
        }
        let told = effects.iter().find_map(|effect| match effect {
            Effect::Send(frame) => match &frame.msg {
                CoordinatorMsg::Stopped { exits, .. } => exits.first().map(|exit| exit.ours),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(told, Some(want), "ended at {ended_at}, by its guardian: {killed_by_guardian}");
    }
}

/// A program that asks for the end of the run and goes, and one that fails in a step that it has just begun, are gone before
/// the next look.
#[test]
fn what_a_rank_wrote_last_is_told_before_its_end() {
    use super::super::board::{Feeder, Phase, Request, Sample};
    let mut agent = running(RunSpec { run_id: RunId::new("r"), max_nodes: 1, ..RunSpec::default() });
    let page = |step| Sample {
        pid: 1,
        feeder: Feeder::Client,
        step: Some(step),
        phase: Phase::Step,
        beat: step,
        sections: Vec::new(),
        extend_ms: 0,
        collective_timeout_ms: None,
        stack_signal: None,
        request: Some(Request::Stop { reason: "NaN".into() }),
    };
    let last = |attempt, failed| Event::LastPage {
        attempt: Attempt(attempt),
        local_rank: LocalRank(0),
        sample: Some(page(57)),
        failed,
    };
    let told = |effects: &[Effect]| {
        let word = |effect: &Effect| match effect {
            Effect::Send(frame) => match &frame.msg {
                CoordinatorMsg::Asked { .. } => Some("asked".to_owned()),
                CoordinatorMsg::Progress { ranks, .. } => Some(format!("{:?}", ranks[0].step)),
                _ => None,
            },
            _ => None,
        };
        effects.iter().filter_map(word).collect::<Vec<_>>()
    };
    assert_eq!(told(&tell(&mut agent, at(20), last(7, true))), [""; 0], "of another world");
    assert_eq!(told(&tell(&mut agent, at(21), last(0, true))), ["asked", "Some(57)"]);
    assert_eq!(told(&tell(&mut agent, at(22), last(0, true))), [""; 0], "once");
}
