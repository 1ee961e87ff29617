//! The command line from outside: what is printed, the exit code, and that no words make it panic.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::disallowed_types, clippy::type_complexity)]

mod affinity;
mod check;
mod docs;
mod home;
mod inject;
mod migration;
mod parse;
mod ranks;
mod screens;
mod torchrun;
