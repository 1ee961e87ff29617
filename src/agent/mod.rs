//! Ring 2: the agent of one node, around its pure machine ([`crate::domain::agent`]).
//!
//! [`processes`] is the process thread, [`driver`] the task that turns what happens into events and carries
//! out the effects, [`start`] what a rank is started with.

pub mod driver;
mod ends;
mod events;
mod liveness;
mod measured;
pub mod processes;
mod rendezvous;
mod start;
