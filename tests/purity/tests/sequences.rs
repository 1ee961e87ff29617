//! Sequences of events that break launchers, one scenario each, named after their number in the catalogue of
//! such sequences (`p0_1_…`) or of injected faults (`scenario_37_…`). The rules are checked after every event;
//! what is asserted here is what people would see.

#![allow(clippy::unwrap_used, reason = "a test, outside `domain`")]

use purity::domain::mutant::Mutants;
use purity::sim::{Outcome, Scenario, run};

/// Nodes that start at once with clocks apart, a network that loses nothing, and these faults.
fn play(nodes: u64, spares: u32, faults: &[&str]) -> Outcome {
    play_elastic(nodes, spares, 0, faults)
}

/// The same where worlds of so many nodes fewer may run.
fn play_elastic(nodes: u64, spares: u32, fewer: u32, faults: &[&str]) -> Outcome {
    let mut text = format!("seed 1 spares {spares} fewer {fewer} nproc 2 max-restarts 30 drop 0 double 0\n");
    for i in 0..nodes {
        text.push_str(&format!(
            "node late {} ppm {} offset {}\n",
            i * 20,
            i as i64 * 30 - 90,
            5_000 + i * 777_777
        ));
    }
    for fault in faults {
        text.push_str(fault);
        text.push('\n');
    }
    let scenario: Scenario = text.parse().unwrap();
    let outcome = run(&scenario, Mutants::NONE, true);
    assert_eq!(outcome.violation, None, "{}", outcome.trace.join("\n"));
    outcome
}

/// When, in virtual seconds, a line with all of these words was written.
fn times(outcome: &Outcome, words: &[&str]) -> Vec<f64> {
    let lines = outcome.trace.iter().filter(|line| words.iter().all(|word| line.contains(word)));
    lines.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect()
}

/// How often this note was made.
fn said(outcome: &Outcome, words: &[&str]) -> usize {
    times(outcome, &[&[" says "], words].concat()).len()
}

#[test]
fn p0_1_a_split_down_the_middle_leaves_one_world() {
    let outcome = play(
        6,
        0,
        &[
            "at 10000 node 3 cut both 20000",
            "at 10000 node 4 cut both 20000",
            "at 10000 node 5 cut both 20000",
        ],
    );
    assert_eq!(said(&outcome, &["NodeLost"]), 3);
    assert_eq!(outcome.counters.attempts, 2, "one world before, one after");
    let killed = times(&outcome, &["guardian -> KillRanks"]);
    assert!(killed.iter().filter(|at| (15.0..16.0).contains(*at)).count() >= 3, "{killed:?}");
}

#[test]
fn p0_1_b_the_larger_side_waits_for_the_grants_of_the_smaller_one() {
    let outcome = play(5, 2, &["at 10000 node 2 cut both 30000"]);
    let lost = times(&outcome, &["says NodeLost"])[0];
    let started = times(&outcome, &["spawns rank", "of attempt 1"])[0];
    let last = *times(&outcome, &["n2 rank", "of attempt 0 ends"]).last().unwrap();
    assert!((13.0..16.2).contains(&lost), "known after 4 s of silence, or 6: {lost}");
    assert!((last..16.7).contains(&started), "and started when its grant was over, at {last}: {started}");
}

#[test]
fn p0_1_c_a_stopped_agent_loses_its_ranks_to_its_guardian() {
    let outcome = play(5, 1, &["at 10000 node 2 freeze 40000"]);
    assert_eq!(outcome.counters.lost_unreachable, 0, "its host answers");
    let killed = times(&outcome, &["n2 guardian -> KillRanks"])[0];
    assert!(killed < 16.0, "{killed}");
    assert_eq!(outcome.counters.replaced, 1);
}

#[test]
fn p0_1_d_one_way_losses_end_in_the_same_way() {
    for way in ["to", "from"] {
        let outcome = play(5, 1, &[&format!("at 10000 node 2 cut {way} 20000")]);
        assert_eq!((outcome.counters.losses, outcome.counters.replaced), (1, 1), "{way}");
    }
}

#[test]
fn p0_2_answers_of_the_store_are_read_back() {
    for kind in ["lost-reply", "fails", "late", "slow"] {
        let outcome = play(3, 0, &[&format!("at 10000 node 0 store {kind} 5000"), "at 10100 node 1 exit 1"]);
        assert!(outcome.counters.restarts > 0 && outcome.counters.stood_down == 0, "{kind}");
    }
}

#[test]
fn p0_8_a_store_that_is_gone_costs_a_whole_world_nothing() {
    let outcome = play(4, 1, &["at 10000 node 0 store fails 30000"]);
    let counters = outcome.counters;
    assert_eq!((counters.restarts, counters.grants_over, counters.stood_down), (0, 0, 0));
}

#[test]
fn p0_8_a_loss_that_cannot_be_written_ends_the_coordinator() {
    let outcome = play(4, 1, &["at 10000 node 0 store fails 40000", "at 11000 node 3 down 0"]);
    assert_eq!(outcome.counters.stood_down, 1);
    let at = times(&outcome, &["says StoodDown"])[0];
    assert!((29.0..31.0).contains(&at), "lost at 15 s, ended 15 s later: {at}");
}

#[test]
fn p1_1_the_death_of_an_agent_costs_no_lease() {
    let outcome = play(4, 1, &["at 10000 node 2 crash"]);
    assert_eq!((outcome.counters.losses, outcome.counters.replaced), (0, 0));
    let started = times(&outcome, &["spawns rank", "of attempt 1"])[0];
    assert!(started < 13.0, "its guardian's word: {started}");
}

#[test]
fn p1_9_a_coordinator_that_slept_loses_nobody() {
    let outcome = play(4, 0, &["at 10000 node 0 freeze 3000"]);
    assert_eq!(outcome.counters.losses, 0);
    assert_eq!(outcome.counters.restarts, 0, "and a pause of 3 s is shorter than what is left of a grant");
}

#[test]
fn p1_11_a_node_that_comes_late_is_waited_for() {
    let text = "seed 1 spares 0 nproc 1 max-restarts 3 drop 0 double 0\nnode late 0 ppm 0 offset 5000\n\
        node late 24000 ppm 0 offset 6000\nnode late 25000 ppm 0 offset 7000\nnode late 23000 ppm 0 offset 8000\n";
    let outcome = run(&text.parse().unwrap(), Mutants::NONE, true);
    assert_eq!(outcome.violation, None);
    assert_eq!(
        (outcome.counters.attempts, outcome.counters.stood_down),
        (1, 0),
        "three of four are a majority"
    );
}

#[test]
fn p1_13_half_of_the_nodes_cut_off_and_back_go_on_together() {
    let outcome = play(4, 0, &["at 10000 node 2 cut both 12000", "at 10000 node 3 cut both 12000"]);
    assert_eq!((outcome.counters.losses, outcome.counters.replaced), (2, 0));
    assert_eq!((outcome.counters.attempts, outcome.counters.stood_down), (2, 0));
}

#[test]
fn scenario_13_two_nodes_that_die_together_are_one_recovery() {
    for apart in [0, 100, 200] {
        let faults = ["at 10000 node 2 down 0".to_owned(), format!("at {} node 3 down 0", 10_000 + apart)];
        let outcome = play(6, 2, &faults.each_ref().map(String::as_str));
        assert_eq!((outcome.counters.losses, outcome.counters.replaced), (2, 2), "{apart} ms apart");
        let started = times(&outcome, &["spawns rank", "of attempt"]);
        assert_eq!(started.len(), 16, "8 ranks, twice: {apart} ms apart");
        assert!(*started.last().unwrap() < 17.0, "{started:?}");
    }
}

#[test]
fn scenario_37_an_agent_that_is_stopped_for_3_s_is_nothing() {
    let outcome = play(5, 1, &["at 10000 node 2 freeze 3000"]);
    assert_eq!((outcome.counters.losses, outcome.counters.restarts), (0, 0));
    assert!(outcome.counters.late_beats > 0, "an event tells of it");
}

#[test]
fn scenario_38_an_agent_that_is_stopped_for_60_s_is_lost_and_comes_back_as_a_spare() {
    let outcome = play(5, 1, &["at 5000 node 2 freeze 60000"]);
    assert_eq!((outcome.counters.losses, outcome.counters.replaced), (1, 1));
    assert_eq!(said(&outcome, &["NodeBack", "n2", "spare: true"]), 1);
    assert_eq!(outcome.counters.attempts, 2, "its return stops nobody");
}

#[test]
fn scenario_39_a_node_that_is_off_the_network_for_a_while_comes_back_as_a_spare() {
    let outcome = play(5, 1, &["at 10000 node 2 cut both 30000"]);
    assert_eq!((outcome.counters.losses, outcome.counters.replaced), (1, 1));
    assert_eq!(said(&outcome, &["NodeBack", "n2", "spare: true"]), 1);
    let killed = times(&outcome, &["n2 guardian -> KillRanks"])[0];
    assert!(killed < 16.0, "it ends its ranks itself: {killed}");
}

#[test]
fn scenario_42_a_link_that_flaps_is_tolerated_and_counted() {
    let faults: Vec<String> =
        (0..5).map(|i| format!("at {} node 2 cut both 1000", 10_000 + i * 3_000)).collect();
    let outcome = play(5, 1, &faults.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((outcome.counters.losses, outcome.counters.restarts), (0, 0));
}

#[test]
fn the_first_node_is_gone_and_the_run_ends_everywhere_within_40_s_with_one_sentence() {
    for what in ["down 0", "gone 0"] {
        let outcome = play(5, 1, &[&format!("at 10000 node 0 {what}")]);
        let ended = times(&outcome, &["agent", "ends: exit code 1"]);
        let of_first: Vec<f64> = ended.iter().copied().filter(|at| *at < 60.0).collect();
        assert_eq!(of_first.len(), 4, "{what}: {ended:?}");
        assert!(of_first.iter().all(|at| (40.0..50.0).contains(at)), "{what}: {of_first:?}");
        let last_rank = times(&outcome, &["rank", "of attempt 0 ends"]);
        assert!(last_rank.iter().all(|at| *at < 16.0), "{what}: {last_rank:?}");
        assert_eq!(said(&outcome, &["n1 says GaveUp", "first: true", "speaks: true"]), 1, "{what}");
        assert_eq!(said(&outcome, &["GaveUp", "speaks: true"]), 1, "{what}");
        assert_eq!(said(&outcome, &["LeaderGone", "speaks: true"]), 1, "{what}");
    }
}

#[test]
fn a_node_whose_step_was_killed_is_noticed_by_its_closed_connection() {
    let outcome = play(5, 1, &["at 10000 node 2 gone 0"]);
    assert_eq!((outcome.counters.lost_closed, outcome.counters.replaced), (1, 1));
    let lost = times(&outcome, &["says NodeLost"])[0];
    assert!(lost < 13.2, "{lost}");
}

#[test]
fn a_supervisor_starts_the_agent_of_a_lost_node_again() {
    let mut scenario: Scenario = "seed 1 spares 0 nproc 2 max-restarts 30 drop 0 double 0 supervised 1\n\
        node late 0 ppm 0 offset 5000\nnode late 0 ppm 0 offset 6000\nnode late 0 ppm 0 offset 7000\n\
        at 10000 node 2 gone 0\n"
        .parse()
        .unwrap();
    let outcome = run(&scenario, Mutants::NONE, true);
    assert_eq!(outcome.violation, None);
    assert_eq!(
        (outcome.counters.lost_ended + outcome.counters.lost_closed, outcome.counters.agents_started),
        (1, 1)
    );
    scenario.supervised = false;
    let outcome = run(&scenario, Mutants::NONE, true);
    assert_eq!(outcome.counters.agents_started, 0);
    assert_eq!(outcome.counters.failed, 1, "the join timeout ends a run that nobody helps");
}

#[test]
fn scenario_51_without_a_spare_the_world_shrinks_and_grows_at_the_next_restart() {
    let outcome = play_elastic(
        4,
        0,
        2,
        &["at 10000 node 3 down 20000", "at 40000 node 2 exit 1", "at 50000 node 1 down 0"],
    );
    let resized = times(&outcome, &[" says Resized"]);
    assert_eq!(resized.len(), 3, "4, 3, 4, 3 nodes: {resized:?}");
    assert!((13.0..20.0).contains(&resized[0]) && (40.0..43.0).contains(&resized[1]), "{resized:?}");
    assert_eq!((outcome.counters.shrunk, outcome.counters.grown), (2, 1));
}
