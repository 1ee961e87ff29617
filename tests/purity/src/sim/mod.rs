//! The simulator: every machine of a run, mostly of 3 to 8 nodes, in one thread, on one queue of events, with a network,
//! a store, ranks and clocks that misbehave as a seed says. Rules are checked after every event.
//!
//! Time is virtual and each node has its own clock. The drivers here mirror the launcher's: effects are
//! performed in order, an effect with an `Op` comes back as an event, timers are `deadline()`.

mod agent;
mod check;
mod counters;
mod faults;
mod hang;
mod lead;
mod net;
mod node;
mod policy;
mod rng;
mod store;
mod world;

pub use check::Violation;
pub use counters::Counters;
pub use faults::{BadLine, Fault, Scenario, What};

use crate::domain::mutant::Mutants;
use crate::domain::wire::ToAgent;
use world::World;

/// How a scenario went.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first rule that was broken.
    pub violation: Option<Violation>,
    /// What happened how often.
    pub counters: Counters,
    /// Events that were handled.
    pub events: u64,
    /// Virtual time, ms.
    pub ms: u64,
    /// One line for each event, if it was wanted.
    pub trace: Vec<String>,
}

/// What a frame to an agent is when it arrives.
pub type Wire = fn(ToAgent) -> ToAgent;

/// Runs a scenario to its end, or to the first rule that is broken.
#[must_use]
pub fn run(scenario: &Scenario, mutants: Mutants, traced: bool) -> Outcome {
    run_over(scenario, mutants, traced, |frame| frame)
}

/// The same where frames to agents are written and read on their way.
#[must_use]
pub fn run_over(scenario: &Scenario, mutants: Mutants, traced: bool, wire: Wire) -> Outcome {
    let mut world = World::new(scenario.clone(), mutants, traced);
    world.wire = wire;
    world.run();
    Outcome {
        violation: world.check.violation.take(),
        counters: world.counters,
        events: world.events,
        ms: world.now / 1_000_000,
        trace: world.trace,
    }
}

/// The text of a failing scenario: read by [`Scenario::from_str`](std::str::FromStr), with the trace as remarks.
#[must_use]
pub fn event_log(scenario: &Scenario, outcome: &Outcome) -> String {
    let mut text = scenario.to_string();
    if let Some(violation) = &outcome.violation {
        text.push_str(&format!("# broken: {violation}\n"));
    }
    for line in &outcome.trace {
        text.push_str(&format!("# {line}\n"));
    }
    text
}
