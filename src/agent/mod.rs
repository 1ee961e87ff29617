//! Ring 2: the agent of one node, around its pure machine.

pub mod processes;
