//! Ring 2: the coordinator's task, around its pure machine ([`crate::domain::coordinator`]).

pub mod driver;
