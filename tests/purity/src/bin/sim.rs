//! Runs seeds of the simulator: `sim --seeds 0..2000 [--mutant NAME] [--replay FILE] [--print-trace SEED]`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a tool for people, outside `domain`"
)]

use std::process::ExitCode;

use purity::domain::mutant::{Mutant, Mutants};
use purity::sim::{Counters, Scenario, event_log, run};

struct Args {
    seeds: std::ops::Range<u64>,
    mutants: Mutants,
    replay: Option<String>,
    print: Option<u64>,
}

fn args() -> Result<Args, String> {
    let mut found = Args { seeds: 0..200, mutants: Mutants::NONE, replay: None, print: None };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--seeds" => {
                let (a, b) = value.split_once("..").ok_or("seeds are written A..B")?;
                let number = |text: &str| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
                found.seeds = number(a)?..number(b)?;
            }
            "--mutant" => {
                let mutant = Mutant::ALL.into_iter().find(|m| m.name() == value);
                found.mutants = Mutants::only(mutant.ok_or_else(|| format!("no mutant {value}"))?);
            }
            "--replay" => found.replay = Some(value),
            "--print-trace" => found.print = Some(value.parse().map_err(|e| format!("{value}: {e}"))?),
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(found)
}

fn show(scenario: &Scenario, mutants: Mutants) -> bool {
    let outcome = run(scenario, mutants, true);
    print!("{scenario}");
    for line in &outcome.trace {
        println!("{line}");
    }
    println!("{} events, {} ms\n{}", outcome.events, outcome.ms, outcome.counters);
    match &outcome.violation {
        Some(violation) => println!("BROKEN {violation}"),
        None => println!("every rule holds"),
    }
    outcome.violation.is_none()
}

fn seeds(range: std::ops::Range<u64>, mutants: Mutants) -> bool {
    let (mut total, mut events, mut failed, mut ms, count) =
        (Counters::default(), 0, 0, 0, range.end - range.start);
    for seed in range {
        let scenario = Scenario::of(seed);
        let outcome = run(&scenario, mutants, false);
        total.add(&outcome.counters);
        events += outcome.events;
        ms += outcome.ms;
        let Some(violation) = &outcome.violation else { continue };
        failed += 1;
        let file = std::env::temp_dir().join(format!("sim-{seed}.log"));
        let log = event_log(&scenario, &run(&scenario, mutants, true));
        let kept = std::fs::write(&file, log).map_or_else(|e| e.to_string(), |()| file.display().to_string());
        println!("seed {seed}: {violation}\n    log: {kept}");
    }
    println!("{count} seeds, {failed} failed; {events} events, {} virtual s\n{total}", ms / 1000);
    failed == 0
}

fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(why) => {
            eprintln!("sim: {why}");
            return ExitCode::from(2);
        }
    };
    let good = if let Some(file) = args.replay {
        match std::fs::read_to_string(&file)
            .map_err(|e| e.to_string())
            .and_then(|t| t.parse::<Scenario>().map_err(|e| e.to_string()))
        {
            Ok(scenario) => show(&scenario, args.mutants),
            Err(why) => {
                eprintln!("sim: {file}: {why}");
                return ExitCode::from(2);
            }
        }
    } else if let Some(seed) = args.print {
        show(&Scenario::of(seed), args.mutants)
    } else {
        seeds(args.seeds, args.mutants)
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
