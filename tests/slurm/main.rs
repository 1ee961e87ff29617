//! Several nodes on a real Slurm: `scripts/slurm-sandbox` makes the cluster, the trainer with the known result is the
//! job, and nodes really die. Without root and Slurm each test says so and counts as skipped.

#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used
)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code)]
#[path = "../faults/commit_log.rs"]
mod commit_log;
#[allow(dead_code)]
#[path = "../faults/journal.rs"]
mod journal;

mod clocks;
mod cluster;
mod elastic;
mod forms;
mod hangs;
mod job;
mod losses;
mod machines;
mod returns;
mod stall;
mod start;
mod stories;
mod torchrun;
