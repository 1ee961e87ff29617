//! The line to the probe worker: started when first asked, abandoned when late.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::workers::Workers;
use crate::agent::processes::{Command, WorkerId};
use crate::domain::error_file::ErrorNote;
use crate::domain::ids::Op;
use crate::health::protocol::{Request, Response, SpaceRow};
use crate::ipc::frame::{self, MAX_FRAME};

/// An answer later than this is none.
const PATIENCE: Duration = Duration::from_secs(2);
/// Restarts wait for what ranks left, so not as long.
const ERROR_FILES: Duration = Duration::from_secs(1);

/// Asks; cheap to clone.
#[derive(Clone)]
pub(crate) struct Probe {
    workers: Rc<Workers>,
    id: WorkerId,
    socket: Rc<RefCell<Option<UnixStream>>>,
    busy: Rc<tokio::sync::Mutex<u64>>,
}

impl Probe {
    pub(crate) fn new(workers: Rc<Workers>, id: WorkerId) -> Self {
        Self { workers, id, socket: Rc::default(), busy: Rc::default() }
    }

    /// Room on the file systems of these paths; `None` is unknown: no answer in time, or no worker.
    pub(crate) async fn space(&self, paths: Vec<PathBuf>) -> Option<Vec<SpaceRow>> {
        match self.answer(|op| Request::Space { op, paths }, PATIENCE).await? {
            Response::Space { rows, .. } => Some(rows),
            _ => None,
        }
    }

    /// What these error files say, one a path; `None` is unknown, as before.
    pub(crate) async fn error_files(
        &self,
        paths: Vec<PathBuf>,
        not_before_ms: u64,
    ) -> Option<Vec<Option<ErrorNote>>> {
        match self.answer(|op| Request::ErrorFiles { op, paths, not_before_ms }, ERROR_FILES).await? {
            Response::ErrorFiles { notes, .. } => Some(notes),
            _ => None,
        }
    }

    /// Writes a file; whether that was done in time.
    pub(crate) async fn leave(&self, path: PathBuf, text: String) -> bool {
        let left = self.answer(|op| Request::Leave { op, path, text }, PATIENCE).await;
        matches!(left, Some(Response::Left { done: true, .. }))
    }

    async fn answer(&self, request: impl FnOnce(Op) -> Request, patience: Duration) -> Option<Response> {
        let mut last = self.busy.lock().await;
        *last += 1;
        let request = request(Op(*last));
        let taken = self.socket.borrow_mut().take();
        let mut socket = match taken {
            Some(socket) => socket,
            None => self.start()?,
        };
        if let Ok(Some(response)) = timeout(patience, ask::<_, Response>(&mut socket, &request)).await
            && response.op() == request.op()
        {
            *self.socket.borrow_mut() = Some(socket);
            return Some(response);
        }
        // It may hang in the kernel: nobody waits for its end.
        self.workers.processes.send(Command::KillWorker { id: self.id });
        None
    }

    fn start(&self) -> Option<UnixStream> {
        let socket = self.workers.start(self.id).ok()?;
        socket.set_nonblocking(true).ok()?;
        UnixStream::from_std(socket).ok()
    }
}

/// One question to a worker and its answer; none: it is no worker any more.
pub(super) async fn ask<Q: Serialize, A: DeserializeOwned>(
    socket: &mut UnixStream,
    request: &Q,
) -> Option<A> {
    socket.write_all(&frame::encode(request).ok()?).await.ok()?;
    let length = usize::try_from(socket.read_u32_le().await.ok()?).ok().filter(|n| *n <= MAX_FRAME)?;
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.ok()?;
    postcard::from_bytes(&body).ok()
}
