//! Seeds of worlds that are too large for lists of every node: what agents are told is written and read as on the wire.
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a test, outside `domain`")]

use purity::domain::mutant::Mutants;
use purity::domain::wire::ToAgent;
use purity::sim::{Counters, Scenario, event_log, run_over};

fn wire(frame: ToAgent) -> ToAgent {
    let bytes = postcard::to_stdvec(&frame).expect("a frame can be written");
    let back = postcard::from_bytes(&bytes).expect("and read");
    assert_eq!(frame, back, "what arrives is what was sent");
    back
}

fn seeds(from: u64, to: u64) {
    let mut total = Counters::default();
    for seed in from..to {
        let scenario = Scenario::large(seed);
        assert!(scenario.nodes.len() >= 80, "{scenario}");
        let outcome = run_over(&scenario, Mutants::NONE, false, wire);
        if let Some(violation) = &outcome.violation {
            let log = std::env::temp_dir().join(format!("sim-large-{seed}.log"));
            let text = event_log(&scenario, &run_over(&scenario, Mutants::NONE, true, wire));
            let kept =
                std::fs::write(&log, text).map_or_else(|e| e.to_string(), |()| log.display().to_string());
            // Frames of large worlds are long.
            let violation: String = violation.to_string().chars().take(2_000).collect();
            panic!("large seed {seed}: {violation}\nevent log: {kept} (run it with: sim --replay FILE)");
        }
        total.add(&outcome.counters);
    }
    println!("{total}");
    assert!(total.restarts >= 2 * (to - from) && total.losses >= to - from, "{total}");
}

#[test]
fn part_1() {
    seeds(0, 2);
}

#[test]
fn part_2() {
    seeds(5, 7);
}
