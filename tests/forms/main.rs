//! The forms in which relight runs in a job: batch script, prompt, step. Slurm's commands are a fake that keeps what
//! matters (`fake_slurm.py`); `tests/slurm` has the real ones.

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

mod batch;
mod contained;
mod elastic;
mod frameworks;
mod health;
mod places;
mod prompt;
mod refusals;
mod slurm;
mod stopping;
mod takeover;
