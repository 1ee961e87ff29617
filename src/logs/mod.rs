//! What ranks print: files, console, tails.
//!
//! The agent's [`pump`] thread reads the ranks' pipes and never waits for anything but them; the process
//! behind [`worker`] writes files and the console and may block as long as it likes. Between them lie a
//! bounded queue and acknowledgements. [`spec`] holds the rules (which stream goes where).

mod console;
mod files;
mod lines;
mod outbox;
pub mod pump;
mod ring;
pub mod spec;
#[cfg(test)]
mod tests;
mod wire;
pub mod worker;

pub use wire::{Source, Stream};
