//! The rules of the rendezvous store that relight hosts for the ranks of an attempt: the wire protocol of torch's
//! `TCPStore`, as torch's own clients speak it.
//!
//! [`frame`] finds requests in bytes, [`state`] answers them, [`seen`] draws from them which ranks are there. A client
//! sends requests one after the other, without numbers, and reads the replies in the same order; integers are
//! little-endian. The first request of a connection is `VALIDATE` with the magic number; clients of torch 2.1 do not have it and
//! number the others accordingly ([`Dialect`]).

pub mod frame;
pub mod seen;
pub mod state;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;

pub use frame::{Dialect, Fault, Request, Scanner};
pub use state::{Conn, Limits, Sink, Store};

/// What a client says first, but for those of torch 2.1.
pub const MAGIC: u32 = 0x3c85_f7ce;
/// In bytes: the longest key.
pub const MOST_KEY: u64 = 8 << 10;
/// In bytes: the longest value.
pub const MOST_VALUE: u64 = 8 << 20;
/// Keys of one request.
pub const MOST_KEYS: u64 = 131_072;
/// In bytes: the longest request or reply. torch has no limit of its own here; the other three allow a request of 1 TiB.
pub const MOST_FRAME: usize = 64 << 20;

/// `WAIT` and `BARRIER`: it is there.
pub const STOP_WAITING: u8 = 0;
/// The answer to `CANCEL_WAIT`.
pub const WAIT_CANCELED: u8 = 1;
/// `CHECK`: all keys are there.
pub const READY: u8 = 0;
/// `CHECK`: not all of them are.
pub const NOT_READY: u8 = 1;
