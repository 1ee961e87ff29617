//! What the agent shares with other processes of its node: framed messages over local sockets, and heartbeat pages.

pub mod board;
mod client;
pub mod frame;
pub mod guardian;
