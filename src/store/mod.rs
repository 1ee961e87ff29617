//! The run directory: journal, secret, incident files, status, events. Everything here may block for as long
//! as a shared file system likes, so it runs in the store worker ([`worker`]); the agent holds a [`client`].

pub mod client;
pub mod codec;
mod error;
pub mod faults;
pub mod hint;
pub mod layout;
pub mod look;
pub mod nonce;
pub mod plain;
pub mod posix;
pub mod protocol;
pub mod status;
pub mod worker;

pub use error::IoTrouble;

#[cfg(test)]
pub(crate) mod testing;
