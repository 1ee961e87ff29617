//! Framed messages over local sockets: between the agent and its worker processes.

pub mod frame;
pub mod guardian;
