//! Real torch: training jobs that lose ranks and end as if they had not, and torchrun, with which relight is compared.
//!
//! Needs a Python with torch and scikit-learn, named by RELIGHT_TORCH_PYTHON: `scripts/test --torch` makes one. Those
//! of the rendezvous store also ask with torch 2.1, by RELIGHT_TORCH21_PYTHON. Without such a Python the tests say so and are
//! counted as skipped.
#![allow(
    unreachable_pub,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stderr,
    clippy::unwrap_used
)]

mod environment;
mod events;
mod lightning;
mod parser;
#[allow(dead_code)]
#[path = "../forms/slurm.rs"]
mod slurm;
#[path = "../support/mod.rs"]
mod support;

mod record;
mod store;
mod training;
mod untouched;

use std::ffi::OsString;
use std::time::Duration;

const PYTHON: &str = "RELIGHT_TORCH_PYTHON";
/// A Python with torch 2.1, and why there is none where that is known.
const OLD: &str = "RELIGHT_TORCH21_PYTHON";
const OLD_MISSING: &str = "RELIGHT_TORCH21_MISSING";
/// Importing torch in two processes takes long on a machine that has other things to do.
const RUN: Duration = Duration::from_secs(240);

/// The Python with torch; without one the reason, said so that `scripts/test` counts the test as skipped.
fn python() -> Option<OsString> {
    let python = std::env::var_os(PYTHON).filter(|python| !python.is_empty());
    if python.is_none() {
        eprintln!("skipped: {PYTHON} is not set (`scripts/test --torch` makes such a Python)");
    }
    python
}

/// The Python with torch 2.1, likewise.
fn old_python() -> Option<OsString> {
    let python = std::env::var_os(OLD).filter(|python| !python.is_empty());
    if python.is_none() {
        let made = "`scripts/test --torch` makes such a Python";
        let why = std::env::var(OLD_MISSING).unwrap_or_else(|_| made.to_owned());
        eprintln!("skipped: {OLD} is not set ({why})");
    }
    python
}
