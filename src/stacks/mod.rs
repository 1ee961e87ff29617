//! Where processes stand that do not advance: the kernel's facts, and stacks from inside and from outside.
//!
//! Whatever is read here is read of a process that may be stuck, so it is done in a worker that may be abandoned. What
//! takes a lock that such a process may hold (`cmdline`, `environ`, `maps`) is never read, and nothing is stopped.

mod inside;
mod outside;
pub mod protocol;
pub mod worker;
