//! Proof that the rules stand alone: `domain` is compiled here by path, in a package without any other
//! ring and with serde, thiserror and regex as its only dependencies. The simulator lives here too.

#[path = "../../../src/domain/mod.rs"]
pub mod domain;
pub mod sim;
