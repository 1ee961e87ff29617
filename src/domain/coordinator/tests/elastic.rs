//! `--nnodes MIN:MAX`: the last call, and how worlds shrink and grow.

use super::*;

/// A world of all of them that runs since a while.
fn running(min: u32, max: u32) -> Bed {
    let mut bed = Bed::elastic(min, max);
    bed.join_all(max);
    bed.event(Event::AuthorityHeld);
    bed.all_start();
    bed.pass(60_000);
    bed.notes.clear();
    bed
}

/// These nodes are lost, their grants end so much later, and the others stop.
fn lose(bed: &mut Bed, nodes: &[u64], grant_ms: u64) {
    for i in nodes {
        bed.event(Event::Silent { node: name(*i), silent: Duration::from_secs(6) });
        bed.grants_closed(*i, grant_ms);
    }
    bed.all_stop(nodes);
}

/// Slots and nodes of the newest world.
fn seats(bed: &Bed) -> Vec<(u32, String)> {
    let world = world(bed.attempts().last().unwrap());
    world.members.iter().map(|m| (m.slot.0, m.node.to_string())).collect()
}

fn seat(slot: u32, i: u64) -> (u32, String) {
    (slot, name(i).to_string())
}

#[test]
fn a_full_world_opens_at_once() {
    let mut bed = Bed::elastic(2, 4);
    bed.join_all(4);
    assert_eq!(seats(&bed), [seat(0, 1), seat(1, 2), seat(2, 3), seat(3, 4)]);
    assert_eq!(bed.console(), [] as [&str; 0]);
}

#[test]
fn from_min_nodes_on_the_last_call_runs() {
    let mut bed = Bed::elastic(2, 4);
    bed.join(1, 1);
    bed.pass(100_000);
    assert!(bed.attempts().is_empty(), "fewer than MIN");
    bed.join(2, 2);
    bed.pass(29_999);
    assert!(bed.attempts().is_empty(), "more may come: {:?}", bed.console());
    bed.pass(1);
    assert_eq!(seats(&bed), [seat(0, 1), seat(1, 2)]);
    assert_eq!(
        bed.console(),
        [
            "relight: T waiting for 2 nodes that can run ranks, 1 there; giving up in 9 min 50 s",
            "relight: T 2 of up to 4 nodes are there: waiting 27 s for more",
            "relight: T 2 of 4 nodes: n03 and n04 have not come; the world starts with 16 ranks",
        ]
    );
}

#[test]
fn the_last_call_ends_when_nobody_is_left_who_could_come() {
    let mut bed = Bed::elastic(2, 4);
    bed.join_all(3);
    bed.pass(5_000);
    assert!(bed.attempts().is_empty());
    // The fourth comes and is lost: there is no other.
    bed.join(4, 4);
    assert_eq!(seats(&bed).len(), 4, "all of them: {:?}", bed.console());

    let mut bed = Bed::elastic(2, 4);
    bed.join(1, 1);
    bed.join(4, 4);
    bed.event(Event::Silent { node: name(4), silent: Duration::from_secs(6) });
    bed.join(2, 2);
    bed.pass(1_000);
    assert!(bed.attempts().is_empty(), "n03 may be on its way");
    bed.join(3, 3);
    assert_eq!(seats(&bed), [seat(0, 1), seat(1, 2), seat(2, 3)], "n04 came and is lost");
}

#[test]
fn a_silence_from_the_start_is_no_reason_to_begin_early() {
    let mut bed = Bed::elastic(2, 3);
    bed.join_all(2);
    // Nothing was ever heard of it: an image may still be unpacked there.
    bed.event(Event::Silent { node: name(3), silent: Duration::from_secs(6) });
    bed.pass(20_000);
    assert!(bed.attempts().is_empty());
    bed.join(3, 3);
    assert_eq!(seats(&bed).len(), 3);
}

#[test]
fn who_falls_below_min_before_the_start_begins_a_new_call() {
    let mut bed = Bed::elastic(2, 4);
    bed.join_all(2);
    bed.pass(20_000);
    bed.event(Event::LinkDown { node: name(2), incarnation: Incarnation(2) });
    bed.pass(5_000);
    bed.join(2, 20);
    bed.pass(20_000);
    assert!(bed.attempts().is_empty(), "{:?}", bed.console());
    bed.pass(10_000);
    assert_eq!(seats(&bed).len(), 2);
}

#[test]
fn a_join_timeout_shorter_than_the_last_call_opens_what_there_is() {
    let mut spec = RunSpec { min_nodes: 2, ..spec(4, 0) };
    spec.numbers.join_timeout_ms = 20_000;
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec,
        voters: (1..=4).map(name).collect(),
        ..CoordinatorConfig::default()
    });
    bed.join_all(2);
    bed.pass(20_000);
    assert_eq!((seats(&bed).len(), bed.machine.phase()), (2, Phase::Starting));
}

#[test]
fn scenario_51_a_lost_node_without_a_spare_makes_the_world_smaller() {
    let mut bed = running(2, 4);
    lose(&mut bed, &[3], 1_500);
    bed.pass(4_999);
    assert_eq!(bed.attempts().len(), 1, "another one may be on its way");
    assert_eq!(
        bed.machine.waits_for().as_deref(),
        Some("more nodes than the 3 that are there; at most 4 can be used")
    );
    bed.pass(1);
    assert_eq!(seats(&bed), [seat(0, 1), seat(1, 2), seat(3, 4)], "slots are stable");
    bed.all_start();
    assert_eq!(
        bed.console(),
        [
            "relight: T n03 is gone: no sign for 6 s",
            "relight: T waiting 5 s for n03 or another node, then going on with 3 of 4 nodes",
            "relight: T 3 of 4 nodes: n03 missing; the world shrinks to 24 ranks",
            "relight: T attempt 1 running; lost 5 s     details: relight why r",
        ]
    );
    let record = bed.attempts().last().copied().cloned().unwrap();
    assert_eq!(cause(&record).decision, Decision::Shrink { nodes: vec![name(3)] });
    assert_eq!(record.why, ["n03 was lost", "no spare is left, and the world may be smaller"]);
    assert_eq!(bed.starts(Attempt(1)), [name(1), name(2), name(4)]);
    assert_eq!(bed.machine.ledger().voters(), [name(1), name(2), name(4)]);
}

#[test]
fn a_smaller_world_waits_no_shorter_than_the_ranks_that_may_still_live() {
    let mut bed = running(2, 4);
    lose(&mut bed, &[3], 15_000);
    bed.pass(14_000);
    assert_eq!(bed.attempts().len(), 1, "it could not begin anyway");
    bed.join(5, 5);
    assert_eq!(seats(&bed)[2], seat(2, 5), "a replacement came");
    let decision = &cause(bed.attempts()[1]).decision;
    assert_eq!(decision, &Decision::Replace { nodes: vec![name(3)] });
}

#[test]
fn a_member_that_is_away_for_a_moment_is_waited_for() {
    let mut bed = running(1, 3);
    bed.event(Event::LinkDown { node: name(3), incarnation: Incarnation(3) });
    bed.exited(2, vec![report(0, KILL, "")]);
    bed.all_stop(&[3]);
    bed.pass(8_000);
    assert_eq!(bed.attempts().len(), 1, "{:?}", bed.console());
    bed.join_with(3, 30, vec![Incarnation(3)]);
    assert_eq!(seats(&bed), [seat(0, 1), seat(1, 2), seat(2, 3)]);
}

#[test]
fn a_node_that_comes_back_in_time_keeps_its_slot() {
    let mut bed = running(2, 4);
    lose(&mut bed, &[2], 1_000);
    bed.pass(3_000);
    bed.join(2, 20);
    assert_eq!(seats(&bed), [seat(0, 1), seat(1, 2), seat(2, 3), seat(3, 4)]);
}

#[test]
fn a_world_grows_at_the_next_restart_and_never_for_its_own_sake() {
    let mut bed = running(2, 4);
    lose(&mut bed, &[2, 4], 1_000);
    bed.pass(5_000);
    bed.all_start();
    assert_eq!(seats(&bed), [seat(0, 1), seat(2, 3)]);
    bed.notes.clear();
    bed.join(4, 40);
    bed.join(5, 5);
    bed.join(6, 6);
    bed.pass(3_600_000);
    assert_eq!((bed.attempts().len(), bed.machine.phase()), (2, Phase::Running));
    bed.exited(3, vec![report(0, KILL, "")]);
    bed.all_stop(&[]);
    bed.all_start();
    assert_eq!(seats(&bed), [seat(0, 1), seat(1, 4), seat(2, 3), seat(3, 5)], "no free slot goes to two");
    assert_eq!(
        bed.console(),
        [
            "relight: T n04 is back: it waits as a spare",
            "relight: T n05 came late: it waits as a spare and is taken in at the next restart",
            "relight: T n06 came late: it waits as a spare and is taken in at the next restart",
            "relight: T rank 8 (n03) died: SIGKILL; 15 ranks stopped because of it",
            "relight: T restart 1 of 20",
            "relight: T 4 of 4 nodes: n04 and n05 join; the world grows to 32 ranks",
            "relight: T attempt 2 running; lost 0 s; 1 spare left     details: relight why r",
        ]
    );
}

#[test]
fn below_min_the_run_waits_and_goes_on_when_there_are_enough() {
    let mut bed = running(3, 4);
    lose(&mut bed, &[2, 3], 1_000);
    bed.pass(60_000);
    assert_eq!(bed.attempts().len(), 1);
    assert_eq!(bed.machine.waits_for().as_deref(), Some("at least 3 nodes that can run ranks, 2 there"));
    bed.join(3, 30);
    bed.pass(4_999);
    assert_eq!(bed.attempts().len(), 1, "the other one may come along");
    bed.pass(1);
    bed.all_start();
    assert_eq!(seats(&bed), [seat(0, 1), seat(2, 3), seat(3, 4)]);
    assert_eq!(
        bed.console()[2..],
        [
            "relight: T waiting up to 10 min for n02 and n03 or other nodes",
            "relight: T n03 is back",
            "relight: T waiting 5 s for n02 or another node, then going on with 3 of 4 nodes",
            "relight: T 3 of 4 nodes: n02 missing; the world shrinks to 24 ranks",
            "relight: T attempt 1 running; lost 65 s     details: relight why r",
        ]
    );
}

#[test]
fn scenario_51_below_min_for_good_ends_with_one_clear_sentence() {
    let mut bed = running(3, 4);
    lose(&mut bed, &[2, 3], 1_000);
    bed.pass(600_000);
    assert_eq!(bed.machine.phase(), Phase::Closed { code: 1 });
    let last = "relight: T ended: waited 10 min for at least 3 nodes that can run ranks (--nnodes 3:4), 2 are there. Exit 1.";
    assert!(bed.console().iter().any(|l| l == last), "{:#?}", bed.console());
}

#[test]
fn one_spare_for_two_lost_nodes_takes_one_slot_and_the_other_stays_empty() {
    let mut bed = Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec: RunSpec { min_nodes: 2, ..spec(4, 1) },
        voters: (1..=5).map(name).collect(),
        ..CoordinatorConfig::default()
    });
    bed.join_all(5);
    bed.event(Event::AuthorityHeld);
    bed.all_start();
    bed.pass(60_000);
    bed.notes.clear();
    lose(&mut bed, &[2, 3], 1_000);
    bed.pass(5_000);
    bed.all_start();
    assert_eq!(seats(&bed), [seat(0, 1), seat(1, 5), seat(3, 4)]);
    assert_eq!(
        bed.console()[3..],
        [
            "relight: T n02 lost; n05 (spare 1 of 1) takes slot 1, ranks 8-15",
            "relight: T 3 of 4 nodes: n03 missing; the world shrinks to 24 ranks",
            "relight: T attempt 1 running; lost 5 s; no spare left     details: relight why r",
        ]
    );
}

#[test]
fn a_node_that_failed_first_twice_makes_room_for_a_spare_and_stays_without_one() {
    let mut bed = running(2, 4);
    lose(&mut bed, &[4], 1_000);
    bed.pass(5_000);
    bed.all_start();
    for spare in [None, None, Some(5)] {
        bed.pass(60_000);
        if let Some(i) = spare {
            bed.join(i, i);
        }
        bed.exited(2, vec![report(0, KILL, "")]);
        bed.all_stop(&[]);
        bed.all_start();
        let second = if spare.is_some() { 5 } else { 2 };
        assert_eq!(seats(&bed), [seat(0, 1), seat(1, second), seat(2, 3)], "{:?}", bed.console());
    }
}
