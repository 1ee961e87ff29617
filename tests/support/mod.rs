//! Helpers of tests that start processes: a hermetic scene, the launcher, waits, and the search for leftovers.
#![allow(dead_code, unreachable_pub)]

pub mod freezer;
pub mod jax;
pub mod leftovers;
pub mod procfs;
pub mod relight;
pub mod wait;
