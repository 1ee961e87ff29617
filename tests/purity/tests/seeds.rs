//! Two thousand seeds of the simulator, in parts that run side by side; every 20th runs twice.
#![allow(clippy::disallowed_methods, reason = "a test, outside `domain`")]

use purity::domain::mutant::Mutants;
use purity::sim::{Counters, Scenario, event_log, run};

/// Runs seeds and says everything about the first that fails.
fn seeds(from: u64, to: u64) -> Counters {
    let mut total = Counters::default();
    for seed in from..to {
        let scenario = Scenario::of(seed);
        let twice = seed % 20 == 0;
        let outcome = run(&scenario, Mutants::NONE, twice);
        if let Some(violation) = &outcome.violation {
            let log = std::env::temp_dir().join(format!("sim-{seed}.log"));
            let text = event_log(&scenario, &run(&scenario, Mutants::NONE, true));
            let kept =
                std::fs::write(&log, text).map_or_else(|e| e.to_string(), |()| log.display().to_string());
            panic!("seed {seed}: {violation}\nevent log: {kept} (run it with: sim --replay FILE)");
        }
        assert!(outcome.ms >= 60_000 && outcome.events >= 1_500, "seed {seed} ended early: {outcome:?}");
        if twice {
            assert_eq!(outcome.trace, run(&scenario, Mutants::NONE, true).trace, "seed {seed} differs");
        }
        total.add(&outcome.counters);
    }
    total
}

#[test]
fn part_1() {
    let counters = seeds(0, 200);
    println!("{counters}");
    for (name, count) in counters.list() {
        assert!(count > 0, "the first 200 seeds never saw: {name}");
    }
}

macro_rules! parts {
    ($($name:ident: $from:literal, $to:literal);* $(;)?) => {
        $(#[test] fn $name() { seeds($from, $to); })*
    };
}

parts! {
    part_2: 200, 400;
    part_3: 400, 600;
    part_4: 600, 800;
    part_5: 800, 1000;
    part_6: 1000, 1200;
    part_7: 1200, 1400;
    part_8: 1400, 1600;
    part_9: 1600, 1800;
    part_10: 1800, 2000;
    with_long_grants: 100_000, 100_200;
}
