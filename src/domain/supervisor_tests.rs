use proptest::prelude::*;

use super::*;

const STOP: Duration = Duration::from_secs(45);

fn supervisor(nodes: &[&str]) -> Supervisor {
    let nodes = nodes.iter().map(|node| NodeName::new(*node)).collect();
    Supervisor::new(SupervisorConfig { nodes, stop: STOP })
}

fn at(ms: u64) -> Now {
    Now { boot: BootTime::from_millis(ms), wall_ms: ms }
}

fn ended(srun: u32, rc: i32) -> Event {
    Event::SrunEnded { srun: SrunId(srun), rc }
}

fn killed(srun: u32) -> Event {
    Event::SrunKilled { srun: SrunId(srun), signal: 9 }
}

fn start(node: &str) -> Event {
    Event::Recv(ToSupervisor::StartAgent { node: NodeName::new(node) })
}

fn finish(code: u8) -> Event {
    Event::Recv(ToSupervisor::Finish { code, requeue: false })
}

fn term() -> Event {
    Event::OsSignal { signal: 15, terminal: false, user: true }
}

fn int() -> Event {
    Event::OsSignal { signal: 2, terminal: true, user: false }
}

/// An effect as the tables below write it.
fn word(effect: &Effect) -> String {
    match effect {
        Effect::Srun { srun, nodes, immediate } => {
            let nodes: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
            format!("srun{} {}{}", srun.0, nodes.join("+"), if *immediate { "!" } else { "" })
        }
        Effect::Scancel { srun, signal } => format!("scancel{} {signal}", srun.0),
        Effect::KillSrun { srun } => format!("kill{}", srun.0),
        Effect::Send(FromSupervisor::Attach) => "attach".into(),
        Effect::Send(FromSupervisor::Signal { signal, again, .. }) => {
            format!("signal {signal}{}", if *again { " again" } else { "" })
        }
        Effect::Send(FromSupervisor::AgentEnded { node, rc }) => format!("ended {node} {rc}"),
        Effect::Send(FromSupervisor::Job(word)) => format!("job {word:?}"),
        Effect::AskJob => "ask".into(),
        Effect::Connect => "connect".into(),
        Effect::ReadResult => "read".into(),
        Effect::Say(Said::NoSrun { .. }) => "say nosrun".into(),
        Effect::Say(Said::OneByOne { .. }) => "say onebyone".into(),
        Effect::Say(Said::Killing { .. }) => "say killing".into(),
        Effect::Say(Said::NoResult { .. }) => "say noresult".into(),
        Effect::Exit(code) => format!("exit {code}"),
    }
}

/// Feeds events at their times; between two of them every deadline is met by a tick. Each row's effects must be as
/// they are written, those of the ticks before it among them.
fn check(nodes: &[&str], rows: &[(u64, Event, &str)]) {
    let mut machine = supervisor(nodes);
    for (ms, event, expected) in rows {
        let mut said = Vec::new();
        while let Some(due) = machine.deadline().filter(|due| *due < at(*ms).boot) {
            let now = Now { boot: due, wall_ms: 0 };
            let mut out = Outbox::default();
            machine.handle(now, Event::Tick, &mut out);
            assert_ne!(machine.deadline(), Some(due), "a tick changes nothing");
            said.extend(out.take_effects());
        }
        let mut out = Outbox::default();
        machine.handle(at(*ms), event.clone(), &mut out);
        said.extend(out.take_effects());
        let said: Vec<String> = said.iter().map(word).collect();
        assert_eq!(said.join(", "), *expected, "at {ms} ms, {event:?}");
    }
}

const TWO: &[&str] = &["n1", "n2"];

#[test]
fn a_run_that_finishes() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (9_000, finish(0), ""),
            (9_100, Event::LinkDown, "connect"),
            (9_200, ended(0, 0), "exit 0"),
        ],
    );
}

#[test]
fn the_code_is_the_runs_and_never_sruns() {
    let upto = |rest: &[(u64, Event, &'static str)]| {
        let mut rows = vec![(0, Event::Begin, "srun0 n1+n2, connect"), (300, Event::LinkUp, "attach")];
        rows.extend_from_slice(rest);
        check(TWO, &rows);
    };
    upto(&[(1_000, finish(1), ""), (1_100, ended(0, 0), ""), (1_101, Event::LinkDown, "connect, exit 1")]);
    // srun says that all is well, and nobody said Finish.
    let over = [(1_000, ended(0, 0), "ended n1 0, ended n2 0"), (1_001, Event::LinkDown, "connect, read")];
    let result = |result, effects| {
        let mut rows = over.to_vec();
        rows.push((1_100, Event::Result(result), effects));
        upto(&rows);
    };
    result(Some(0), "exit 0");
    result(Some(93), "exit 93");
    result(None, "scancel0 9, say noresult, exit 1");
    // Agents that could not begin, and said why.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (1_000, ended(0, 2), "read"),
            (1_100, Event::Result(None), "scancel0 9, exit 2"),
        ],
    );
    upto(&[
        (1_000, Event::Recv(ToSupervisor::Finish { code: 1, requeue: true }), ""),
        (1_001, ended(0, 137), ""),
        // The end of the coordinator is not seen: nobody waits for it for ever.
        (9_001, Event::Tick, "exit 75"),
    ]);
}

#[test]
fn slurm_is_asked_for_agents_that_cannot() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (500, Event::LinkUp, "attach"),
            (1_000, Event::Recv(ToSupervisor::AskJob), "ask"),
        ],
    );
}

#[test]
fn an_agent_is_started_again_where_one_is_missing_and_once_at_a_time() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (5_000, start("n2"), "srun1 n2!"),
            (6_000, start("n2"), ""),
            (6_100, start("n9"), ""),
            // Slurm refuses: 1 s, then 2 s, then 4 s, only as long as the coordinator asks.
            (6_500, ended(1, 1), "ended n2 1"),
            (6_600, start("n2"), ""),
            (7_600, Event::Tick, "srun2 n2!"),
            (7_700, ended(2, 1), "ended n2 1"),
            (7_800, start("n2"), ""),
            (9_800, Event::Tick, "srun3 n2!"),
            (9_900, ended(3, 1), "ended n2 1"),
            (60_000, Event::Tick, ""),
            (60_001, start("n2"), "srun4 n2!"),
            // It stayed: the next pause is short again.
            (130_000, ended(4, 0), "ended n2 0"),
            (130_010, start("n2"), ""),
            (131_001, Event::Tick, "srun5 n2!"),
            // The first step ends under it.
            (140_000, ended(0, 137), "ended n1 137"),
            (141_000, finish(0), ""),
            (141_100, start("n1"), ""),
            (141_150, Event::LinkDown, "connect"),
            (141_200, ended(5, 0), "exit 0"),
        ],
    );
}

#[test]
fn the_pause_has_a_limit() {
    let mut machine = supervisor(TWO);
    let mut out = Outbox::default();
    machine.handle(at(0), Event::Begin, &mut out);
    machine.handle(at(0), Event::LinkUp, &mut out);
    let mut now = BootTime::from_millis(1_000);
    let mut pauses = Vec::new();
    for srun in 1..9 {
        let asked = now;
        machine.handle(Now { boot: now, wall_ms: 0 }, start("n2"), &mut out);
        now = machine.deadline().unwrap_or(now);
        pauses.push(now.since(asked).as_secs());
        machine.handle(Now { boot: now, wall_ms: 0 }, Event::Tick, &mut out);
        machine.handle(Now { boot: now, wall_ms: 0 }, ended(srun, 1), &mut out);
    }
    assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 30, 30]);
}

#[test]
fn signals_go_to_the_coordinator_and_bursts_are_one() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (1_000, Event::OsSignal { signal: 12, terminal: false, user: true }, "signal 12"),
            (1_100, Event::OsSignal { signal: 12, terminal: false, user: true }, ""),
            (1_200, Event::OsSignal { signal: 10, terminal: false, user: true }, "signal 10"),
            (1_300, Event::OsSignal { signal: 18, terminal: false, user: true }, ""),
            (5_000, Event::OsSignal { signal: 12, terminal: false, user: true }, "signal 12"),
            (6_000, term(), "signal 15"),
            (6_100, term(), ""),
            (6_200, start("n2"), ""),
            (9_500, term(), "signal 15 again"),
            (9_600, finish(143), ""),
            (9_650, Event::LinkDown, "connect"),
            (9_700, ended(0, 0), "exit 143"),
        ],
    );
}

#[test]
fn ctrl_c_twice_does_not_wait() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (1_000, int(), "signal 2"),
            (1_200, int(), "signal 2 again"),
            (11_201, Event::Tick, "say killing, scancel0 9"),
            (11_300, ended(0, 137), "ended n1 137, ended n2 137"),
            (11_400, Event::LinkDown, "connect, read"),
            (11_500, Event::Result(None), "scancel0 9, exit 130"),
        ],
    );
}

#[test]
fn agents_that_do_not_end_are_killed_and_so_is_srun() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (1_000, term(), "signal 15"),
            (45_999, Event::Tick, ""),
            (46_000, Event::Tick, "say killing, scancel0 9"),
            (56_000, Event::Tick, "kill0"),
            (58_001, Event::Tick, "read"),
            (58_100, Event::Result(Some(143)), "exit 143"),
        ],
    );
    // After the end of the run it is no news that somebody hangs, and it takes less time.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (1_000, finish(0), ""),
            (9_000, Event::Tick, "scancel0 9"),
            (9_200, ended(0, 137), "exit 0"),
        ],
    );
}

#[test]
fn without_a_coordinator_slurm_tells_the_agents() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (1_000, term(), ""),
            (4_000, Event::Tick, "scancel0 15"),
            (4_500, ended(0, 143), "read"),
            (4_600, Event::Result(None), "scancel0 9, exit 143"),
        ],
    );
    // It comes in time, and goes again before it has done anything.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (1_000, term(), ""),
            (2_000, Event::LinkUp, "attach, signal 15"),
            (2_100, Event::LinkDown, "connect"),
            (5_100, Event::Tick, "scancel0 15"),
            (6_000, Event::LinkUp, "attach, signal 15"),
            (7_000, finish(143), ""),
            (7_050, Event::LinkDown, "connect"),
            (7_100, ended(0, 0), "exit 143"),
        ],
    );
    // Asked twice.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (1_000, int(), ""),
            (1_100, int(), "scancel0 15"),
            // Nothing has begun: Slurm has no nodes for it.
            (1_200, Event::NoStep { srun: SrunId(0) }, "kill0"),
            (1_300, ended(0, 137), "read"),
            (1_400, Event::Result(None), "scancel0 9, exit 130"),
        ],
    );
}

#[test]
fn a_step_that_cannot_be_started_everywhere_is_started_node_by_node() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (20_000, ended(0, 140), "read"),
            (20_010, Event::Result(None), "say onebyone, scancel0 9, srun1 n1!, srun2 n2!"),
            (21_000, Event::LinkUp, "attach"),
            (40_000, ended(2, 140), "ended n2 140"),
            (41_000, start("n2"), "srun3 n2!"),
            (50_000, finish(0), ""),
            (50_100, ended(1, 0), ""),
            (50_150, Event::LinkDown, "connect"),
            (50_200, ended(3, 0), "exit 0"),
        ],
    );
    // The run was over before we had looked for its coordinator.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (900, ended(0, 7), "read"),
            (910, Event::Result(Some(0)), "exit 0"),
        ],
    );
    // The coordinator is found while we look.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (900, ended(0, 7), "read"),
            (905, Event::LinkUp, "attach"),
            (910, Event::Result(None), ""),
        ],
    );
    // Agents that ran and failed are not started again; one node has no other.
    for (nodes, rc) in [(TWO, 2), (TWO, 1), (&["n1"][..], 140)] {
        let first = format!("srun0 {}, connect", nodes.join("+"));
        check(nodes, &[(0, Event::Begin, &first), (900, ended(0, rc), "read")]);
    }
}

#[test]
fn srun_was_killed_and_the_agents_go_on() {
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (1_000, killed(0), ""),
            (99_000, finish(0), ""),
            (99_100, Event::LinkDown, "connect, exit 0"),
        ],
    );
    // Nobody waits for the end of a step that has no srun; it is ended like every other.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (1_000, killed(0), ""),
            (2_000, start("n2"), "srun1 n2!"),
            (3_000, term(), "signal 15"),
            (4_000, Event::LinkDown, "connect"),
            (7_000, Event::Tick, "read, scancel0 15, scancel1 15"),
            (7_100, Event::Result(None), ""),
            (7_900, ended(1, 143), ""),
            (34_000, Event::Tick, "read"),
            (34_100, Event::Result(None), "scancel0 9, scancel1 9, exit 143"),
        ],
    );
    // It comes after the end of its srun.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, killed(0), ""),
            (1_200, Event::LinkUp, "attach"),
            (3_000, finish(0), ""),
            (3_100, Event::LinkDown, "connect, exit 0"),
        ],
    );
    // The run is over before its coordinator is found, and the journal says so.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, killed(0), ""),
            (1_300, Event::Tick, "read"),
            (1_310, Event::Result(None), ""),
            (2_300, Event::Tick, "read"),
            (2_310, Event::Result(Some(3)), "exit 3"),
        ],
    );
    // A coordinator that stays and says nothing does not keep us.
    check(
        TWO,
        &[
            (0, Event::Begin, "srun0 n1+n2, connect"),
            (300, Event::LinkUp, "attach"),
            (1_000, killed(0), ""),
            (3_000, term(), "signal 15"),
            (48_000, Event::Tick, "say killing, scancel0 9"),
            (60_000, Event::Tick, "read"),
        ],
    );
}

#[test]
fn without_srun_nothing_begins() {
    let gone = || Event::NoSrun { srun: SrunId(0), why: "srun: not found".into() };
    check(
        TWO,
        &[(0, Event::Begin, "srun0 n1+n2, connect"), (10, gone(), "say nosrun, exit 2"), (20, gone(), "")],
    );
}

#[test]
fn sentences() {
    let said = [
        Said::NoSrun { why: "srun: No such file or directory".into() },
        Said::OneByOne { rc: 140 },
        Said::Killing { after: Duration::from_secs(45) },
        Said::NoResult { rc: 0 },
    ];
    let said: Vec<String> = said.iter().map(Said::to_string).collect();
    assert_eq!(
        said,
        [
            "error: the agents cannot be started: srun: No such file or directory",
            "srun could not start an agent on every node (it returned 140); starting each by itself",
            "the agents have not ended after 45 s: killing their step",
            "error: every agent has ended and none of them left a result; what srun said last stands above (it returned 0)",
        ]
    );
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0_u32..6, prop_oneof![Just(0), Just(1), Just(140)]).prop_map(|(srun, rc)| ended(srun, rc)),
        (0_u32..6).prop_map(killed),
        (0_u32..6).prop_map(|srun| Event::NoStep { srun: SrunId(srun) }),
        prop_oneof![Just("n1"), Just("n2"), Just("n3"), Just("x")].prop_map(start),
        (any::<u8>(), any::<bool>(), any::<bool>()).prop_map(|(signal, terminal, user)| Event::OsSignal {
            signal: signal % 20,
            terminal,
            user
        }),
        any::<u8>().prop_map(finish),
        Just(Event::LinkUp),
        Just(Event::LinkDown),
        Just(Event::Result(None)),
        Just(Event::Tick),
        Just(Event::Begin),
    ]
}

proptest! {
    #[test]
    fn no_node_has_two_starts_and_every_stop_ends(events in prop::collection::vec((0_u64..20_000, event()), 0..60)) {
        let mut machine = supervisor(&["n1", "n2", "n3"]);
        let mut live: BTreeMap<SrunId, Vec<NodeName>> = BTreeMap::new();
        let mut ms = 0;
        let mut exited = 0;
        let all = std::iter::once((0, Event::Begin)).chain(events);
        for (pause, event) in all.chain([(1, term()), (1, Event::LinkDown)]) {
            ms += pause;
            if let Event::SrunEnded { srun, .. } | Event::SrunKilled { srun, .. } = &event {
                live.remove(srun);
            }
            let mut out = Outbox::default();
            machine.handle(at(ms), event, &mut out);
            for effect in out.take_effects() {
                match effect {
                    Effect::Srun { srun, nodes, immediate } => {
                        prop_assert_eq!(exited, 0);
                        let single = |other: &&Vec<NodeName>| other.len() == 1 && **other == nodes;
                        prop_assert!(live.values().filter(single).count() == 0);
                        prop_assert_eq!(immediate, nodes.len() == 1);
                        live.insert(srun, nodes);
                    }
                    Effect::Exit(_) => exited += 1,
                    _ => {}
                }
            }
        }
        // Whatever happened before: after the stop it ends by itself, be it that nobody answers any more.
        for _ in 0..100 {
            let Some(due) = machine.deadline() else { break };
            let now = Now { boot: due.max(at(ms).boot), wall_ms: 0 };
            for event in [Event::Tick, Event::Result(None)] {
                let mut out = Outbox::default();
                machine.handle(now, event, &mut out);
                exited += out.take_effects().iter().filter(|e| matches!(e, Effect::Exit(_))).count();
            }
        }
        let mut out = Outbox::default();
        machine.handle(at(ms + 3_600_000), Event::Result(None), &mut out);
        exited += out.take_effects().iter().filter(|e| matches!(e, Effect::Exit(_))).count();
        prop_assert_eq!(exited, 1);
    }
}
