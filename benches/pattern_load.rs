//! Text like that of a training job through the table of what failures look like, for `scripts/bench attribution`.
//!
//! ```text
//! pattern_load scan|lines MEGABYTES EVERY     one line in EVERY holds a word of the table
//! ```
//! `lines` only counts lines: the floor. What is measured goes to standard output as `name value` lines.
#![allow(clippy::print_stdout, clippy::disallowed_methods, clippy::disallowed_types)]

use std::fmt::Write as _;
use std::time::Instant;

use relight::domain::attribution::engine::engine;
use relight::domain::attribution::rules::rules;

type Failure = Box<dyn std::error::Error>;

/// One block is made, and passed again and again: the processor's caches hold none of it.
const BLOCK: usize = 32 << 20;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, megabytes, every] = &words[..] else { return Err("usage: see the source".into()) };
    let (megabytes, every): (usize, usize) = (megabytes.parse()?, every.parse()?);
    let text = block(every);
    let rounds = (megabytes << 20).div_ceil(text.len()).max(1);
    let engine = engine().ok_or("no table")?;
    let mut found = 0_u64;
    let begun = Instant::now();
    for _ in 0..rounds {
        match what.as_str() {
            "scan" => engine.scan(&text, |_| found += 1),
            "lines" => {
                found += std::hint::black_box(&text).iter().filter(|byte| **byte == b'\n').count() as u64
            }
            _ => return Err("scan or lines".into()),
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!("mb_per_s {:.1}", (text.len() * rounds) as f64 / 1e6 / took);
    println!("found {found}");
    println!("bytes {}", text.len() * rounds);
    // What is beyond the block itself is the engine's, and the program's.
    println!("memory_mb {:.1}", peak_kib() as f64 / 1024.0 - text.len() as f64 / (1 << 20) as f64);
    Ok(())
}

fn block(every: usize) -> Vec<u8> {
    let examples: Vec<&str> =
        rules().iter().map(|rule| rule.example).filter(|text| !text.is_empty()).collect();
    let mut text = String::with_capacity(BLOCK + 4096);
    let mut n = 0_usize;
    while text.len() < BLOCK {
        n += 1;
        // Writing to a String cannot fail.
        let _ = match n {
            _ if every > 0 && n.is_multiple_of(every) => {
                writeln!(text, "{}", examples[n / every % examples.len()])
            }
            n if n % 7 == 0 => writeln!(
                text,
                "2026-03-01 10:00:{:02},{:03} INFO data.loader prefetch queue 8/8, worker 3 read shard_{n:05}.tar in {}.{} ms",
                n % 60,
                n % 1000,
                n % 90,
                n % 10
            ),
            n if n % 11 == 0 => writeln!(
                text,
                "[rank{}]:[I ProcessGroupNCCL.cpp:1683] [PG ID 0 Rank {}] ProcessGroupNCCL created comm",
                n % 8,
                n % 8
            ),
            n => writeln!(
                text,
                "[2026-03-01 10:00:{:02}] step {n}/100000 | loss {}.{:04} | grad norm {}.{} | lr 3.0e-4 | {} tokens/s | mem 61.2 GiB",
                n % 60,
                n % 9,
                n % 10_000,
                n % 7,
                n % 10,
                412_000 + n % 900
            ),
        };
    }
    text.into_bytes()
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
