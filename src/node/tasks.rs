//! Tasks of the control and beat threads.

use std::pin::Pin;

use tokio::task::spawn_local;

/// Starts a task on this thread; nobody waits for it. Boxed, so that the runtime's machinery for a task is compiled
/// once and not once for every kind of task.
pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) {
    let task: Pin<Box<dyn Future<Output = ()>>> = Box::pin(task);
    spawn_local(task);
}
