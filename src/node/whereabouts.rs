//! Where the coordinator is, as the control session last found it: the beat thread dials there.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Where beats go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    /// Nobody was found yet.
    Unknown,
    /// In this process.
    Here,
    /// On another node.
    There(SocketAddr),
}

/// Shared by control and beat thread.
#[derive(Clone)]
pub(crate) struct Whereabouts(Arc<Mutex<At>>);

impl Whereabouts {
    pub(crate) fn unknown() -> Self {
        Self(Arc::new(Mutex::new(At::Unknown)))
    }

    pub(crate) fn get(&self) -> At {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, at: At) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}
