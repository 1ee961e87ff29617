//! Ring 1, lowest: every unsafe, nix and rustix call.

pub mod pipes;
