//! Ring 0: every rule of relight, pure. No clock, no IO, no async, no environment, no hash-map iteration.
//!
//! A machine is `handle(now, event, &mut Outbox)` plus `deadline()` ([`outbox::Machine`]). Time and
//! randomness are arguments, effects are data, timers are fields. Everything outside this module is hands.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod agent;
pub mod append;
pub mod attribution;
pub mod authority;
pub mod board;
pub mod console;
pub mod coordinator;
pub mod devices;
pub mod env;
pub mod errno;
pub mod error_file;
pub mod exit;
pub mod exit_code;
pub mod failed_box;
pub mod finding;
pub mod first_failure;
pub mod guardian;
pub mod health;
pub mod hostlist;
pub mod ids;
pub mod last_words;
pub mod lease;
pub mod ledger;
pub mod liveness;
pub mod mutant;
pub mod note;
pub mod numa;
pub mod outbox;
pub mod packed;
pub mod policy;
pub mod port_conflict;
pub mod record;
pub mod rendezvous;
pub mod settings;
pub mod slurm_env;
pub mod spec;
pub mod suggest;
pub mod supervisor;
pub mod takeover;
pub mod time;
pub mod told;
pub mod torch_store;
pub mod wire;
