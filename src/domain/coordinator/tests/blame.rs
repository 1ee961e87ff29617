//! A rank lost its peer while a node is missing: nobody is blamed before it is known what became of the node.

use super::super::super::record::Incident;
use super::*;

const GLOO: &str = "RuntimeError: Connection closed by peer [10.0.0.3]:4021";

/// All processes of a node die at once: its connections are closed, and a rank elsewhere dies of it.
fn killed(nodes: u32, spares: u32) -> Bed {
    let mut bed = Bed::running(nodes, spares);
    bed.effects.clear();
    link_down(&mut bed, 3);
    bed.pass(80);
    lost_its_peer(&mut bed, 1);
    bed
}

fn link_down(bed: &mut Bed, i: u64) {
    bed.event(Event::LinkDown { node: name(i), incarnation: Incarnation(i) });
}

fn lost_its_peer(bed: &mut Bed, i: u64) {
    let at = BootTime::from_millis(bed.ms);
    bed.exited(i, vec![ExitReport { at, ..report(0, ExitKind::Code(1), GLOO) }]);
}

fn lose(bed: &mut Bed, i: u64) {
    bed.pass(3_000);
    bed.quiet(i, 3_000);
    bed.pass(1_000);
    bed.grants_closed(i, 1_500);
}

/// The agent of a node is there again and says how its ranks ended.
fn comes_back(bed: &mut Bed, i: u64, exits: Vec<ExitReport>) {
    bed.pass(200);
    bed.join(i, i);
    let (attempt, offer) =
        (bed.attempt(), Some(Offer { address: format!("10.0.0.{i}"), port: 20_001, hosted: true }));
    bed.says(i, i, CoordinatorMsg::Stopped { attempt, exits, survivors: Vec::new(), offer });
}

fn settled(bed: &Bed) -> Vec<Incident> {
    let incidents = bed.journal.iter().filter_map(|r| match &r.body {
        Body::Incident(i) => Some(i.clone()),
        _ => None,
    });
    incidents.collect()
}

fn asked_to_stop(bed: &Bed) -> usize {
    bed.sent().filter(|(_, m)| matches!(m, AgentMsg::Stop { .. })).count()
}

#[test]
fn the_node_is_lost_and_it_is_the_cause() {
    let mut bed = killed(4, 1);
    assert_eq!(asked_to_stop(&bed), 3, "ranks are stopped at once");
    bed.all_stop(&[3]);
    assert_eq!((bed.console(), bed.attempt()), (vec![], Attempt(0)), "nothing is said or decided");
    lose(&mut bed, 3);
    bed.pass(1_500);
    bed.all_start();
    bed.pass(10_000);
    assert_eq!(
        bed.console(),
        [
            "relight: T n03 is gone: no sign for 3 s, its connection was closed",
            "relight: T n03 lost; n05 (spare 1 of 1) takes slot 2, ranks 16-23",
            "relight: T attempt 1 running; lost 5.5 s; no spare left     details: relight why r",
        ]
    );
    assert_eq!(bed.attempts().len(), 2);
    let broke = cause(bed.attempts()[1]);
    assert_eq!((broke.charged, &broke.first_failure, &broke.lost), (false, &None, &vec![name(3)]));
    assert_eq!(broke.decision, Decision::Replace { nodes: vec![name(3)] });
    let settled = settled(&bed);
    assert_eq!(settled.len(), 1);
    assert_eq!((&settled[0].first_failure, &settled[0].lost), (&None, &vec![name(3)]));
    assert_eq!(settled[0].victims.iter().map(|v| v.rank.0).collect::<Vec<_>>(), [0]);
    assert_eq!(bed.machine.ledger().charged(), 0);
}

#[test]
fn two_nodes_that_are_missing_are_one_incident() {
    let mut bed = Bed::running(4, 2);
    link_down(&mut bed, 2);
    link_down(&mut bed, 3);
    lost_its_peer(&mut bed, 1);
    bed.all_stop(&[2, 3]);
    bed.pass(3_000);
    bed.quiet(2, 3_000);
    assert_eq!((bed.lost().len(), bed.attempt()), (1, Attempt(0)), "the other one is still in doubt");
    bed.pass(500);
    bed.quiet(3, 3_000);
    assert_eq!(bed.attempt(), Attempt(1));
    let broke = cause(bed.attempts()[1]);
    assert_eq!((broke.charged, &broke.lost), (false, &vec![name(2), name(3)]));
    assert!(bed.console().iter().all(|l| !l.contains("rank 0 ") && !l.contains("spare;")));
}

#[test]
fn who_comes_back_says_who_failed_first() {
    let mut bed = killed(4, 1);
    bed.all_stop(&[3]);
    comes_back(&mut bed, 3, vec![ExitReport { ago_ms: 400, ..report(2, KILL, "") }]);
    bed.all_start();
    assert_eq!(
        bed.console()[..2],
        [
            "relight: T rank 18 (n03) died: SIGKILL; 31 ranks stopped because of it",
            "relight: T restart 1 of 20 on the same nodes",
        ]
    );
    assert!(cause(bed.attempts()[1]).charged);

    let mut bed = killed(4, 1);
    bed.all_stop(&[3]);
    comes_back(&mut bed, 3, vec![ExitReport { ours: true, ago_ms: 5, ..report(2, KILL, "") }]);
    assert!(bed.console()[0].starts_with("relight: T rank 0 (n01) failed: RuntimeError"), "nobody else did");
    assert!(cause(bed.attempts()[1]).charged);

    let mut bed = killed(4, 1);
    bed.all_stop(&[3]);
    comes_back(&mut bed, 3, vec![ExitReport { ours: true, ago_ms: 900, ..report(2, KILL, "") }]);
    assert!(bed.console()[0].starts_with("relight: T the grant of n03 ran out"), "{:?}", bed.console());
    assert!(!cause(bed.attempts()[1]).charged);
}

#[test]
fn another_life_of_the_agent_tells_that_its_ranks_are_gone() {
    let mut bed = killed(4, 1);
    bed.all_stop(&[3]);
    bed.join_with(3, 30, vec![Incarnation(3)]);
    assert_eq!(
        bed.console(),
        [
            "relight: T the agent on n03 ended and its ranks with it; it was started again",
            "relight: T starting again on the same nodes",
        ]
    );
    assert!(!cause(bed.attempts()[1]).charged);
}

#[test]
fn the_word_of_the_one_that_died_may_come_after_that_of_its_victim() {
    let mut bed = Bed::running(4, 1);
    lost_its_peer(&mut bed, 1);
    bed.pass(300);
    lost_its_peer(&mut bed, 2);
    assert_eq!((bed.console(), bed.attempt()), (vec![], Attempt(0)), "nothing is said or decided");
    bed.exited(3, vec![ExitReport { ago_ms: 310, ..report(2, KILL, "") }]);
    assert_eq!(
        bed.console(),
        [
            "relight: T rank 18 (n03) died: SIGKILL; 31 ranks stopped because of it",
            "relight: T restart 1 of 20 on the same nodes",
        ]
    );
    bed.all_stop(&[]);
    assert_eq!(bed.attempt(), Attempt(1));
    assert_eq!(cause(bed.attempts()[1]).first_failure.as_ref().map(|f| f.rank.0), Some(18));

    // Nobody else failed: that is known when all have stopped.
    let mut bed = Bed::running(4, 1);
    link_down(&mut bed, 5);
    lost_its_peer(&mut bed, 1);
    bed.all_stop(&[4]);
    assert_eq!((bed.console(), bed.attempt()), (vec![], Attempt(0)));
    bed.all_stop(&[]);
    assert!(bed.console()[0].starts_with("relight: T rank 0 (n01) failed"), "{:?}", bed.console());
    assert_eq!(bed.attempt(), Attempt(1), "a spare is nobody's peer");

    // Or after as long as a verdict may take.
    let mut bed = Bed::running(4, 1);
    lost_its_peer(&mut bed, 1);
    bed.all_stop(&[4]);
    bed.pass(2_999);
    assert_eq!(bed.console(), Vec::<String>::new());
    bed.pass(1);
    assert!(bed.console()[0].starts_with("relight: T rank 0 (n01) failed"), "{:?}", bed.console());
}

#[test]
fn where_the_failure_is_its_own_nothing_waits() {
    let mut bed = Bed::running(4, 1);
    link_down(&mut bed, 3);
    bed.exited(1, vec![report(0, KILL, "")]);
    assert_eq!(bed.console()[0], "relight: T rank 0 (n01) died: SIGKILL; 31 ranks stopped because of it");

    let mut bed = killed(4, 1);
    let earlier = ExitReport { ago_ms: 200, ..report(1, ExitKind::Code(1), "ValueError: x") };
    bed.exited(2, vec![earlier]);
    assert!(bed.console()[0].starts_with("relight: T rank 9 (n02) failed: ValueError: x;"));
}

#[test]
fn a_connection_that_breaks_right_after_is_not_charged_either() {
    let mut bed = Bed::running(4, 1);
    lost_its_peer(&mut bed, 1);
    link_down(&mut bed, 3);
    bed.all_stop(&[3]);
    assert_eq!(bed.attempt(), Attempt(0));
    lose(&mut bed, 3);
    let broke = cause(bed.attempts()[1]);
    assert_eq!((broke.charged, &broke.first_failure, &broke.lost), (false, &None, &vec![name(3)]));

    // It comes back at once: what was said stands and is not said again.
    let mut bed = Bed::running(4, 1);
    lost_its_peer(&mut bed, 1);
    link_down(&mut bed, 3);
    bed.all_stop(&[3]);
    comes_back(&mut bed, 3, Vec::new());
    assert_eq!((bed.console().len(), bed.attempt()), (2, Attempt(1)));
    assert!(cause(bed.attempts()[1]).charged);
}

#[test]
fn the_doubt_is_bounded() {
    let mut bed = killed(4, 1);
    bed.all_stop(&[3]);
    bed.pass(6_999);
    assert_eq!((bed.console(), bed.attempt()), (vec![], Attempt(0)));
    // It beats and has no connection.
    bed.pass(1);
    assert!(bed.console()[0].starts_with("relight: T rank 0 (n01) failed"), "{:?}", bed.console());
    assert_eq!(bed.attempt(), Attempt(1));
    assert!(cause(bed.attempts()[1]).charged);
    bed.notes.clear();
    bed.event(Event::Silent { node: name(3), silent: Duration::from_secs(6) });
    assert_eq!(bed.console(), ["relight: T n03 is gone: no sign for 6 s"], "it was no spare");
}

#[test]
fn without_a_spare_the_report_names_the_node() {
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec: RunSpec { max_restarts: Some(0), ..spec(3, 0) },
        voters: (1..=3).map(name).collect(),
        ..CoordinatorConfig::default()
    });
    bed.join_all(3);
    bed.event(Event::AuthorityHeld);
    bed.all_start();
    bed.notes.clear();
    link_down(&mut bed, 3);
    lost_its_peer(&mut bed, 1);
    bed.all_stop(&[3]);
    lose(&mut bed, 3);
    bed.pass(700_000);
    assert_eq!(
        bed.console(),
        [
            "relight: T n03 is gone: no sign for 3 s, its connection was closed",
            "relight: T waiting up to 10 min for n03 or another node",
            "relight: T ended: waited 10 min for 3 nodes that can run ranks, 2 are there. Exit 1.",
            "relight: first failure: n03 was lost",
            "relight: victim: rank 0 (n01): exit code 1",
            "relight: details: relight why r   logs: ",
        ]
    );
}

#[test]
fn who_ends_the_run_meanwhile_does_not_wait() {
    let mut bed = killed(4, 1);
    bed.event(Event::Supervisor(FromSupervisor::Signal { signal: 15, terminal: false, again: false }));
    bed.all_stop(&[3]);
    lose(&mut bed, 3);
    bed.pass(1_500);
    assert!(matches!(bed.machine.phase(), Phase::Closed { code: 143 }), "{:?}", bed.machine.phase());
    let settled = settled(&bed);
    assert_eq!((&settled[0].first_failure, &settled[0].lost), (&None, &vec![name(3)]));
}
