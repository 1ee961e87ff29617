//! Ring 1: every unsafe, nix and rustix call.

pub mod dirs;
pub mod lock;
pub mod memexec;
pub mod memfd;
pub mod page;
