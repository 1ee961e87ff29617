//! What people read of failures and losses, and what is decided.

use super::*;

fn lose(bed: &mut Bed, i: u64) {
    bed.quiet(i, 3_000);
    bed.pass(1_000);
    let asked: Vec<u64> = bed.asked(i).iter().map(|n| bed.life(n).0).collect();
    for from in asked {
        bed.reach(from, i, false);
    }
}

#[test]
fn s1_a_rank_dies() {
    let mut bed = Bed::running(4, 0);
    bed.exited(3, vec![report(3, KILL, "")]);
    bed.pass(400);
    bed.all_stop(&[]);
    bed.pass(600);
    bed.all_start();
    assert_eq!(
        bed.console(),
        [
            "relight: T rank 19 (n03) died: SIGKILL; 31 ranks stopped because of it",
            "relight: T restart 1 of 20 on the same nodes",
            "relight: T attempt 1 running; lost 1 s     details: relight why r",
        ]
    );
}

#[test]
fn s2_a_node_is_gone_and_a_spare_steps_in() {
    let mut bed = Bed::running(4, 2);
    lose(&mut bed, 3);
    bed.grants_closed(3, 1_500);
    bed.all_stop(&[3]);
    bed.pass(40_000);
    bed.all_start();
    assert_eq!(
        bed.console(),
        [
            "relight: T n03 is gone: no sign for 4 s, n02 and n04 cannot reach it either",
            "relight: T n03 lost; n05 (spare 1 of 2) takes slot 2, ranks 16-23",
            "relight: T attempt 1 running; lost 40 s; 1 spare left     details: relight why r",
        ]
    );
    bed.notes.clear();
    bed.join(3, 30);
    bed.pass(1_000);
    assert_eq!(bed.console(), ["relight: T n03 is back: it waits as a spare"]);
    assert_eq!(bed.machine.ledger().voters().last(), Some(&name(3)), "and votes");
    lose(&mut bed, 6);
    assert_eq!(
        bed.console()[1],
        "relight: T n06 is gone: no sign for 4 s, n04 and n05 cannot reach it either; it was a spare"
    );
    assert_eq!(bed.attempt(), Attempt(1), "nobody restarts for a spare");
}

#[test]
fn without_a_spare_the_node_or_another_one_is_waited_for() {
    let mut bed = Bed::running(4, 0);
    lose(&mut bed, 3);
    bed.grants_closed(3, 1_500);
    bed.all_stop(&[3]);
    bed.pass(20_000);
    assert_eq!(bed.console()[1..], ["relight: T waiting up to 10 min for n03 or another node"]);
    bed.join(3, 30);
    bed.all_start();
    assert_eq!(
        bed.console()[2..],
        ["relight: T n03 is back", "relight: T attempt 1 running; lost 20 s     details: relight why r"]
    );
}

#[test]
fn scenario_13_two_nodes_lost_together_are_both_named_and_one_attempt_follows() {
    let mut bed = Bed::running(4, 2);
    // Both lose power at once; their last beats were 0.9 s apart.
    bed.quiet(2, 3_000);
    bed.pass(900);
    bed.quiet(3, 3_000);
    bed.effects.clear();
    bed.pass(100);
    bed.reach(4, 2, false);
    bed.reach(5, 2, false);
    bed.reach(6, 2, false);
    bed.pass(900);
    for from in [4, 5, 6] {
        bed.reach(from, 3, false);
        bed.reach(from, 2, false);
    }
    bed.pass(2_000);
    let about: Vec<_> = bed.lost().into_iter().map(|(node, _)| node).collect();
    assert_eq!(about.len(), 2, "{:?}", bed.notes);
    for i in [2, 3] {
        bed.grants_closed(i, 100);
    }
    bed.all_stop(&[2, 3]);
    bed.pass(1_000);
    bed.all_start();
    bed.pass(1_000);
    assert_eq!(bed.attempts().len(), 2, "the first one and one more");
    let (world, broke) = (world(bed.attempts()[1]), cause(bed.attempts()[1]));
    assert_eq!((broke.incident, broke.charged), (0, false));
    let (mut lost, mut gone) = (broke.lost.clone(), about);
    lost.sort();
    gone.sort();
    assert_eq!((&lost, &gone), (&vec![name(2), name(3)], &vec![name(2), name(3)]));
    let slots: Vec<_> = world.members.iter().map(|m| m.node.clone()).collect();
    assert_eq!(slots, [name(1), name(5), name(6), name(4)], "nobody else moves");
    let incidents = bed.journal.iter().filter(|r| matches!(r.body, Body::Incident(_)));
    assert_eq!(incidents.count(), 1);
    assert!(bed.console().iter().any(|l| l.ends_with("no spare left     details: relight why r")));
}

#[test]
fn scenario_12_all_ranks_of_a_node_are_one_incident_and_the_node_is_named_once() {
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec: RunSpec { max_restarts: Some(0), ..spec(2, 0) },
        voters: vec![name(1), name(2)],
        ..CoordinatorConfig::default()
    });
    bed.join_all(2);
    bed.event(Event::AuthorityHeld);
    bed.all_start();
    bed.notes.clear();
    bed.exited(2, vec![report(0, KILL, "")]);
    bed.exited(2, (0..8).map(|i| report(i, KILL, "")).collect());
    let attempt = bed.attempt();
    let exits = (0..8).map(|i| report(i, KILL, "")).collect();
    bed.says(2, 2, CoordinatorMsg::Stopped { attempt, exits, survivors: vec![], offer: None });
    bed.stopped(1, 1, attempt);
    let incidents: Vec<_> = bed.effects.iter().filter(|e| matches!(e, Effect::Report(_))).collect();
    assert_eq!(incidents.len(), 1);
    let lines = bed.console();
    assert_eq!(lines[0], "relight: T rank 8 (n02) died: SIGKILL; 15 ranks stopped because of it");
    let (ours, failed): (Vec<_>, Vec<_>) = lines[2..].iter().partition(|line| line.starts_with("relight: "));
    assert_eq!(
        ours,
        [
            "relight: T ended: rank 8 (n02) died: SIGKILL. Exit 1.",
            "relight: all 8 ranks of n02 died alike (SIGKILL): look at the node",
            "relight: details: relight why r   logs: ",
        ]
    );
    for line in [
        "  exitcode  : -9 (pid: 1000)  (SIGKILL)",
        "  rank      : 12 (local_rank: 4)",
        "  also ranks 13-15 (n02): SIGKILL",
    ] {
        assert!(failed.iter().any(|l| *l == line), "{line}: {failed:#?}");
    }
}

fn survivors(bed: &mut Bed, of: u64, attempt: Attempt, survivors: Vec<Survivor>) {
    let offer = Some(Offer { address: format!("10.0.0.{of}"), port: 20_001, hosted: true });
    bed.says(of, of, CoordinatorMsg::Stopped { attempt, exits: Vec::new(), survivors, offer });
}

#[test]
fn a_node_that_turns_out_dirty_is_replaced_before_the_next_world_begins() {
    let mut bed = Bed::running(2, 1);
    bed.exited(2, vec![report(0, KILL, "")]);
    bed.stopped(1, 1, Attempt(0));
    let stuck = Survivor { pid: 77, state: 'D' };
    survivors(&mut bed, 2, Attempt(0), vec![stuck]);
    assert_eq!(bed.starts(Attempt(1)), [], "no world with a node that cannot start ranks");
    assert_eq!(bed.starts(Attempt(2)), [name(1), name(3)]);
    bed.all_start();
    survivors(&mut bed, 2, Attempt(0), Vec::new());
    assert_eq!(
        bed.console(),
        [
            "relight: T rank 8 (n02) died: SIGKILL; 15 ranks stopped because of it",
            "relight: T restart 1 of 20 on the same nodes",
            "relight: T n02: process 77 (state D) survived SIGKILL; no ranks there until it is gone",
            "relight: T n02 has a process that survived SIGKILL; n03 (spare 1 of 1) takes slot 1, ranks 8-15",
            "relight: T attempt 2 running; lost 0 s; no spare left     details: relight why r",
            "relight: T n02 is back: it waits as a spare",
        ]
    );
    let why = bed.attempts().last().unwrap().why.join("; ");
    assert_eq!(why, "n02 has a process that survived SIGKILL");
    assert!(!cause(bed.attempts().last().unwrap()).charged, "one failure costs one restart");
}

#[test]
fn a_dirty_node_without_a_spare_is_waited_for() {
    let mut bed = Bed::running(2, 0);
    bed.exited(1, vec![report(0, KILL, "")]);
    bed.stopped(1, 1, Attempt(0));
    survivors(&mut bed, 2, Attempt(0), vec![Survivor { pid: 77, state: 'D' }]);
    bed.pass(5_000);
    assert_eq!((bed.starts(Attempt(1)), bed.starts(Attempt(2))), (vec![], vec![]));
    survivors(&mut bed, 2, Attempt(0), Vec::new());
    assert_eq!(bed.starts(Attempt(2)), [name(1), name(2)]);
}

#[test]
fn the_last_ranks_that_end_with_their_grant_end_the_wait_too() {
    let mut bed = Bed::running(2, 0);
    bed.event(Event::Silent { node: name(2), silent: Duration::from_millis(6_000) });
    bed.grants_closed(2, 1_000);
    bed.stopped(1, 1, Attempt(0));
    bed.pass(2_000);
    let stopped = bed.machine.breaking.as_ref().and_then(|broke| broke.stopped);
    assert_eq!(stopped, Some(BootTime::from_millis(bed.ms - 1_000)));
}

fn no_program(errno: i32) -> ExitKind {
    ExitKind::NeverStarted { errno, what: "exec ./train (no such file)".into() }
}

fn decisions(bed: &Bed) -> Vec<Decision> {
    let decided = bed.notes.iter().filter_map(|note| match note {
        Note::Decided { decision, .. } => Some(decision.clone()),
        _ => None,
    });
    decided.collect()
}

#[test]
fn a_program_that_no_node_can_start_ends_the_run_at_once() {
    let mut bed = Bed::running(1, 0);
    bed.exited(1, vec![report(0, no_program(2), "")]);
    assert_eq!(decisions(&bed), [Decision::Stop { code: 1 }], "one node tells for all");
    // A limit that passes is another matter.
    let mut bed = Bed::running(1, 0);
    bed.exited(1, vec![report(0, no_program(11), "")]);
    assert_eq!(decisions(&bed), [Decision::Restart]);
}

#[test]
fn a_program_that_is_missing_on_one_node_is_tried_once_more() {
    let mut bed = Bed::running(2, 0);
    for wanted in [Decision::Restart, Decision::Stop { code: 1 }] {
        bed.notes.clear();
        bed.exited(2, vec![report(0, no_program(2), "")]);
        assert_eq!(decisions(&bed), [wanted]);
        bed.all_stop(&[]);
        bed.pass(100);
    }
    let said = bed.console().join("\n");
    assert!(said.contains("another try would change nothing"), "{said}");
}

#[test]
fn scenario_53_a_node_that_fails_first_twice_running_is_replaced() {
    let mut bed = Bed::running(4, 1);
    for _ in 0..2 {
        bed.exited(3, vec![report(1, ExitKind::Code(1), "CUDA error 700")]);
        bed.all_stop(&[]);
        bed.all_start();
        bed.pass(60_000);
    }
    assert_eq!(
        bed.console(),
        [
            "relight: T rank 17 (n03) failed: CUDA error 700; 31 ranks stopped because of it",
            "relight: T restart 1 of 20 on the same nodes",
            "relight: T attempt 1 running; lost 0 s; 1 spare left     details: relight why r",
            "relight: T rank 17 (n03) failed: CUDA error 700; 31 ranks stopped because of it",
            "relight: T restart 2 of 20 without n03",
            "relight: T n03 is taken out of the run: ranks failed first on n03 in two of the last three attempts",
            "relight: T n03 was taken out; n05 (spare 1 of 1) takes slot 2, ranks 16-23",
            "relight: T attempt 2 running; lost 0 s; no spare left     details: relight why r",
        ]
    );
}

#[test]
fn the_loss_of_a_node_dominates_the_words_of_those_who_lost_it() {
    let mut bed = Bed::running(4, 1);
    let gloo = "RuntimeError: Connection closed by peer [10.0.0.3]:4021";
    bed.exited(2, vec![report(0, ExitKind::Code(1), gloo)]);
    bed.event(Event::LinkDown { node: name(3), incarnation: Incarnation(3) });
    bed.pass(3_000);
    bed.quiet(3, 3_000);
    bed.grants_closed(3, 1_500);
    bed.all_stop(&[3]);
    bed.pass(2_000);
    bed.all_start();
    let settled = bed.journal.iter().find_map(|r| match &r.body {
        Body::Incident(i) => Some(i.clone()),
        _ => None,
    });
    let settled = settled.unwrap();
    assert_eq!((settled.first_failure, settled.lost), (None, vec![name(3)]));
    assert_eq!(settled.victims.len(), 1);
}

#[test]
fn a_grant_that_ran_out_is_told_as_such() {
    let mut bed = Bed::running(2, 0);
    let attempt = bed.attempt();
    bed.stopped(2, 2, attempt);
    assert_eq!(
        bed.console(),
        [
            "relight: T the grant of n02 ran out while its agent did not answer: its guardian stopped its ranks",
            "relight: T starting again on the same nodes",
        ]
    );
}

#[test]
fn in_one_process_an_end_does_not_age() {
    let mut bed = Bed::running(2, 0);
    // The root died here 300 ms ago and the control thread was busy; the peer's end is 100 ms old.
    let at = BootTime::from_millis(bed.ms - 300);
    let own = ExitReport { at, ago_ms: 0, ..report(0, ExitKind::Code(3), "") };
    let peer = ExitReport { at: BootTime(7), ago_ms: 100, ..report(0, ExitKind::Code(1), "") };
    let attempt = bed.attempt();
    bed.machine.merge(
        Now { boot: BootTime::from_millis(bed.ms), wall_ms: bed.ms },
        &name(2),
        attempt,
        vec![peer],
    );
    bed.exited(1, vec![own]);
    assert!(bed.console()[0].contains("rank 0 (n01)"), "{:?}", bed.console());
}
