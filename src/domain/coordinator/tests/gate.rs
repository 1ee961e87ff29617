//! The gate before a world.

use std::collections::BTreeSet;

use super::super::super::health::{CheckResult, Finding, HealthSpec};
use super::*;

/// `n01` to the last, with a program that says whether a node is fit.
fn bed(nodes: u32, spares: u32) -> Bed {
    let health = HealthSpec { commands: vec!["nhc".into()], timeout_ms: 20_000 };
    Bed::with(CoordinatorConfig {
        node: name(1),
        incarnation: Incarnation(1),
        spec: RunSpec { health, ..spec(nodes, spares) },
        voters: (1..=u64::from(nodes + spares)).map(name).collect(),
        ..CoordinatorConfig::default()
    })
}

fn result(finding: Finding) -> CheckResult {
    CheckResult { check: "nhc".into(), finding, sentence: "GPU 3 is gone".into(), ..CheckResult::default() }
}

/// Who was asked for this attempt since the last look.
fn asked(bed: &mut Bed, wanted: u64) -> Vec<NodeName> {
    let about = |m: &AgentMsg| matches!(m, AgentMsg::Check { attempt } if attempt.0 == wanted);
    let nodes = bed.sent().filter(|(_, m)| about(m)).map(|(to, _)| to.clone()).collect();
    bed.effects.clear();
    nodes
}

fn answer(bed: &mut Bed, i: u64, attempt: u64, finding: Finding) {
    let life = bed.life(&name(i)).1;
    let msg = CoordinatorMsg::Health { attempt: Some(Attempt(attempt)), results: vec![result(finding)] };
    bed.says(i, life, msg);
}

fn members(bed: &Bed) -> Vec<NodeName> {
    world(bed.attempts().last().unwrap()).members.iter().map(|m| m.node.clone()).collect()
}

fn evicted(bed: &Bed) -> Vec<NodeName> {
    let evicts = bed.journal.iter().filter_map(|record| match &record.body {
        Body::Evict(evict) => Some(evict.node.clone()),
        _ => None,
    });
    evicts.collect()
}

#[test]
fn a_world_waits_for_every_answer_and_not_for_ever() {
    let mut bed = bed(2, 1);
    bed.join_all(3);
    assert_eq!(asked(&mut bed, 0), [name(1), name(2), name(3)]);
    answer(&mut bed, 1, 0, Finding::Pass);
    answer(&mut bed, 3, 0, Finding::Unknown);
    assert!(bed.attempts().is_empty());
    // Asked again, in case it was lost.
    bed.pass(1_500);
    assert_eq!(asked(&mut bed, 0), [name(2)]);
    // An answer for another attempt is none for this one.
    answer(&mut bed, 2, 7, Finding::Pass);
    assert!(bed.attempts().is_empty());
    bed.pass(20_000 + 15_000);
    assert_eq!(members(&bed), [name(1), name(2)], "unknown is not bad");
    assert_eq!(evicted(&bed), [] as [NodeName; 0]);
}

#[test]
fn every_world_asks_anew_once_its_old_ranks_are_gone() {
    let mut bed = bed(2, 0);
    bed.join_all(2);
    bed.event(Event::AuthorityHeld);
    answer(&mut bed, 1, 0, Finding::Pass);
    answer(&mut bed, 2, 0, Finding::Pass);
    bed.all_start();
    bed.effects.clear();
    bed.exited(2, vec![report(0, KILL, "")]);
    assert_eq!(asked(&mut bed, 1), [name(1), name(2)]);
    bed.all_stop(&[]);
    assert_eq!(bed.attempts().len(), 1);
    answer(&mut bed, 1, 1, Finding::Pass);
    answer(&mut bed, 2, 1, Finding::Pass);
    assert_eq!(bed.attempts().len(), 2);
    assert_eq!(bed.starts(Attempt(1)), [name(1), name(2)]);
}

/// Scenario 52.
#[test]
fn a_node_that_fails_is_taken_out_and_a_bad_spare_too() {
    let mut bed = bed(4, 3);
    bed.join_all(7);
    for i in 1..=7 {
        let finding = if i == 2 { Finding::Fail } else { Finding::Pass };
        answer(&mut bed, i, 0, finding);
    }
    assert_eq!(evicted(&bed), [name(2)]);
    assert_eq!(members(&bed), [name(1), name(3), name(4), name(5)]);
    let fails = "relight: T n02 fails the check nhc: GPU 3 is gone";
    assert!(bed.console().contains(&fails.to_owned()), "{:?}", bed.console());
    bed.event(Event::AuthorityHeld);
    bed.all_start();
    // The next node fails, and the first spare is bad as well: but not together with another.
    bed.exited(4, vec![report(0, KILL, "")]);
    bed.all_stop(&[]);
    for i in [1, 3, 4, 5, 7] {
        answer(&mut bed, i, 1, Finding::Pass);
    }
    answer(&mut bed, 6, 1, Finding::Fail);
    assert_eq!(evicted(&bed), [name(2), name(6)]);
    assert_eq!(members(&bed), [name(1), name(3), name(4), name(5)]);
    let spares = world(bed.attempts().last().unwrap()).spares.clone();
    assert_eq!(spares, [name(7)], "neither comes back");
}

/// Scenario 55.
#[test]
fn many_that_fail_together_blame_nobody() {
    let mut bed = bed(8, 2);
    bed.join_all(10);
    for i in 1..=10 {
        let finding = if i <= 3 { Finding::Fail } else { Finding::Pass };
        answer(&mut bed, i, 0, finding);
    }
    assert_eq!(evicted(&bed), [] as [NodeName; 0]);
    assert_eq!(members(&bed).len(), 8);
    assert_eq!(bed.machine.unhealthy(), [name(1), name(2), name(3)]);
    let lines = bed.console();
    let said = lines.iter().filter(|line| line.contains("3 of 10 nodes fail a check together")).count();
    assert_eq!(said, 1, "{lines:?}");
}

#[test]
fn a_node_that_nobody_can_replace_is_kept() {
    let mut bed = bed(1, 0);
    bed.join(1, 1);
    answer(&mut bed, 1, 0, Finding::Fail);
    assert_eq!(evicted(&bed), [] as [NodeName; 0]);
    assert_eq!(members(&bed), [name(1)]);
    let kept = "relight: T n01 failed a check, and there is no node to take the place: kept";
    assert!(bed.console().contains(&kept.to_owned()), "{:?}", bed.console());
}

#[test]
fn what_nobody_asked_for_counts_from_the_next_world_on() {
    let mut bed = Bed::running(4, 2);
    let worlds = bed.attempts().len();
    let unasked = |finding| CoordinatorMsg::Health { attempt: None, results: vec![result(finding)] };
    bed.says(3, 3, unasked(Finding::Fail));
    assert_eq!((bed.attempts().len(), evicted(&bed).len()), (worlds, 0), "a world that runs is left alone");
    bed.says(3, 3, unasked(Finding::Fail));
    let said = bed.console().iter().filter(|line| line.contains("n03 fails the check")).count();
    assert_eq!(said, 1);
    bed.exited(1, vec![report(0, KILL, "")]);
    bed.all_stop(&[]);
    assert_eq!(evicted(&bed), [name(3)]);
    assert!(!members(&bed).contains(&name(3)));
    // No program: only the spares that could take its place were asked.
    let asked = bed.sent().filter(|(_, m)| matches!(m, AgentMsg::Check { .. }));
    let asked: BTreeSet<NodeName> = asked.map(|(to, _)| to.clone()).collect();
    assert_eq!(asked.into_iter().collect::<Vec<_>>(), [name(5), name(6)]);
}

/// Without programs: who is suspected, and spares that are needed; nobody else, and nobody where it could change nothing.
#[test]
fn suspects_and_spares_are_looked_at_before_they_serve() {
    let failed = || result(Finding::Fail);
    let asked = |bed: &mut Bed, attempt| {
        let asked: BTreeSet<NodeName> = asked(bed, attempt).into_iter().collect();
        asked.into_iter().collect::<Vec<_>>()
    };
    let quiet = |mut bed: Bed| {
        bed.fit = false;
        bed.effects.clear();
        bed
    };
    // The first failure of a node is none to suspect it for.
    let mut bed = quiet(Bed::running(4, 2));
    bed.exited(2, vec![report(0, KILL, "")]);
    bed.all_stop(&[]);
    assert_eq!(asked(&mut bed, 1), [] as [NodeName; 0]);
    assert_eq!(bed.attempts().len(), 2);
    // The second one is, and with it the spares, one of which takes its place.
    bed.all_start();
    bed.effects.clear();
    bed.exited(2, vec![report(0, KILL, "")]);
    bed.all_stop(&[]);
    assert_eq!(asked(&mut bed, 2), [name(5), name(6)], "n02 is taken out: it failed first twice");
    bed.says(5, 5, CoordinatorMsg::Health { attempt: Some(Attempt(2)), results: vec![failed()] });
    assert_eq!(bed.attempts().len(), 2, "n06 has not answered");
    bed.says(6, 6, CoordinatorMsg::Health { attempt: Some(Attempt(2)), results: Vec::new() });
    assert_eq!(evicted(&bed), [name(2), name(5)]);
    assert_eq!(members(&bed), [name(1), name(6), name(3), name(4)], "it has the slot of n02");

    // A node that says nothing is not waited for any longer than checks of ours may take.
    let mut bed = quiet(Bed::running(4, 2));
    bed.event(Event::LinkDown { node: name(3), incarnation: Incarnation(3) });
    bed.event(Event::Silent { node: name(3), silent: Duration::from_secs(6) });
    bed.grants_closed(3, 100);
    bed.all_stop(&[3]);
    bed.pass(1_000);
    assert_eq!(asked(&mut bed, 1), [name(5), name(6)]);
    assert_eq!(bed.attempts().len(), 1);
    bed.pass(20_000);
    assert_eq!(bed.attempts().len(), 2);

    // Nobody could take the place of the only spare.
    let mut bed = quiet(Bed::running(4, 1));
    bed.event(Event::Silent { node: name(3), silent: Duration::from_secs(6) });
    bed.grants_closed(3, 100);
    bed.all_stop(&[3]);
    bed.pass(1_000);
    assert_eq!(asked(&mut bed, 1), [] as [NodeName; 0]);
    assert_eq!(bed.attempts().len(), 2);
}

#[test]
fn what_is_over_counts_no_more_and_another_life_starts_anew() {
    for mends in [true, false] {
        let mut bed = Bed::running(4, 2);
        let unasked = |finding| CoordinatorMsg::Health { attempt: None, results: vec![result(finding)] };
        bed.says(5, 5, unasked(Finding::Fail));
        if mends {
            bed.says(5, 5, CoordinatorMsg::Health { attempt: None, results: Vec::new() });
        } else {
            bed.join_with(5, 15, vec![Incarnation(5)]);
        }
        bed.exited(1, vec![report(0, KILL, "")]);
        bed.all_stop(&[]);
        assert_eq!(evicted(&bed), [] as [NodeName; 0]);
    }
}
