//! The line to the probe worker: started when first asked, abandoned when late.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::workers::{PROBE, Workers};
use crate::agent::processes::Command;
use crate::domain::ids::Op;
use crate::health::protocol::{Request, Response, SpaceRow};
use crate::ipc::frame::{self, MAX_FRAME};

/// An answer later than this is none.
const PATIENCE: Duration = Duration::from_secs(2);

/// Asks; cheap to clone.
#[derive(Clone)]
pub(crate) struct Probe {
    workers: Rc<Workers>,
    socket: Rc<RefCell<Option<UnixStream>>>,
    busy: Rc<tokio::sync::Mutex<u64>>,
}

impl Probe {
    pub(crate) fn new(workers: Rc<Workers>) -> Self {
        Self { workers, socket: Rc::default(), busy: Rc::default() }
    }

    /// Room on the file systems of these paths; `None` is unknown: no answer in time, or no worker.
    pub(crate) async fn space(&self, paths: Vec<PathBuf>) -> Option<Vec<SpaceRow>> {
        let mut last = self.busy.lock().await;
        *last += 1;
        let request = Request::Space { op: Op(*last), paths };
        let taken = self.socket.borrow_mut().take();
        let mut socket = match taken {
            Some(socket) => socket,
            None => self.start()?,
        };
        if let Ok(Some(Response::Space { op, rows })) = timeout(PATIENCE, ask(&mut socket, &request)).await
            && op == Op(*last)
        {
            *self.socket.borrow_mut() = Some(socket);
            return Some(rows);
        }
        // It may hang in the kernel: nobody waits for its end.
        self.workers.processes.send(Command::KillWorker { id: PROBE });
        None
    }

    fn start(&self) -> Option<UnixStream> {
        let socket = self.workers.start(PROBE).ok()?;
        socket.set_nonblocking(true).ok()?;
        UnixStream::from_std(socket).ok()
    }
}

async fn ask(socket: &mut UnixStream, request: &Request) -> Option<Response> {
    socket.write_all(&frame::encode(request).ok()?).await.ok()?;
    let length = usize::try_from(socket.read_u32_le().await.ok()?).ok().filter(|n| *n <= MAX_FRAME)?;
    let mut body = vec![0; length];
    socket.read_exact(&mut body).await.ok()?;
    postcard::from_bytes(&body).ok()
}
