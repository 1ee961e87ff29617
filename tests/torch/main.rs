//! Real torch: training jobs that lose ranks and end as if they had not, and torchrun, with which relight is compared.
//!
//! Needs a Python with torch and scikit-learn, named by RELIGHT_TORCH_PYTHON: `scripts/test --torch` makes one. Without
//! it the tests say so and are counted as skipped.
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
