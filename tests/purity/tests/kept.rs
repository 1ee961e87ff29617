//! Scenarios that once broke a rule: `kept/*.log`, as the simulator wrote them, cut down to what is read.
//! How a seed is drawn may change; a kept scenario stays what it was.
#![allow(clippy::disallowed_methods, reason = "a test, outside `domain`")]

use std::path::Path;

use purity::domain::mutant::Mutants;
use purity::sim::{Scenario, run};

#[test]
fn kept_scenarios_hold() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("kept");
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let scenario: Scenario = std::fs::read_to_string(&path).unwrap().parse().unwrap();
        let violation = run(&scenario, Mutants::NONE, false).violation;
        assert_eq!(violation, None, "{}", path.display());
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn a_scenario_is_read_as_written() {
    for seed in 0..200 {
        let scenario = Scenario::of(seed);
        assert_eq!(scenario.to_string().parse(), Ok(scenario));
    }
}
