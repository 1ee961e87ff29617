//! The only room with unsafe code and with the crates nix and rustix.

pub mod files;
