//! Tasks of one thread.

use std::pin::Pin;

use tokio::task::{AbortHandle, spawn_local};

/// Spawns on the present `LocalSet`. Boxed: one scheduler for all of them is a smaller binary.
pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) -> AbortHandle {
    let task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(task);
    spawn_local(task).abort_handle()
}

/// A task that ends with its owner.
pub(crate) struct Owned(AbortHandle);

impl Owned {
    pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn(task))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.abort();
    }
}
