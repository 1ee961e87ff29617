//! Sessions between agents and the coordinator: mutual proof of the run's secret, then framed messages with a
//! MAC on each. Works over any stream: TCP between machines, an in-process pipe within one.

pub mod broadcast;
pub mod handshake;
pub mod secret;
pub mod session;
pub mod tcp;
