//! relight: a job-resiliency launcher for multi-node training. See `docs/architecture.md` for the rings.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod agent;
pub mod cli;
pub mod coordinator;
pub mod domain;
pub mod guardian;
pub mod health;
pub mod inspect;
pub mod ipc;
pub mod logs;
pub mod net;
pub mod node;
pub mod slurm;
pub mod stacks;
pub mod store;
pub mod supervisor;
pub mod sys;
pub mod torch_store;
