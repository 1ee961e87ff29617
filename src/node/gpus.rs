//! The line to the process that asks NVIDIA's driver, for as long as the agent lives. It is given up when it is late, and
//! started again after a while; its end is never ours.

use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{sleep, timeout};

use super::tasks;
use super::workers::{GPUS, SOCKET, Workers};
use crate::agent::driver::{GpuNews, Input};
use crate::agent::processes::Command;
use crate::domain::devices::Word;
use crate::health::gpus::{Driver, word};

/// Between two looks at every GPU.
const EVERY: Duration = Duration::from_secs(15);
/// Who has said nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(45);
/// Before it is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// The longest line, in bytes.
const MOST: usize = 16 << 10;

/// How one of these processes ended.
enum Over {
    /// There is nothing to ask here.
    Skipped,
    /// It hangs.
    Late,
    /// It is gone, or talks nonsense.
    Gone,
}

/// Hands on whatever the driver says.
pub(crate) fn watch(workers: Rc<Workers>, driver: Driver, inbox: UnboundedSender<Input>) {
    tasks::spawn(async move {
        loop {
            let over = match start(&workers, &driver) {
                Some(socket) => listen(socket, &inbox).await,
                None => Over::Gone,
            };
            // It may hang in the kernel: nobody waits for its end.
            workers.processes.send(Command::KillWorker { id: GPUS });
            match over {
                Over::Skipped => return,
                Over::Late => {
                    let ms = u64::try_from(PATIENCE.as_millis()).unwrap_or(u64::MAX);
                    let _ = inbox.send(Input::Gpus(GpuNews::Late(ms)));
                }
                Over::Gone => {}
            }
            sleep(AGAIN).await;
        }
    });
}

fn start(workers: &Workers, driver: &Driver) -> Option<UnixStream> {
    let socket = workers.start_program(GPUS, driver.request(SOCKET, EVERY)).ok()?;
    socket.set_nonblocking(true).ok()?;
    UnixStream::from_std(socket).ok()
}

async fn listen(mut socket: UnixStream, inbox: &UnboundedSender<Input>) -> Over {
    let mut bytes = Vec::new();
    loop {
        match timeout(PATIENCE, socket.read_buf(&mut bytes)).await {
            Err(_) => return Over::Late,
            Ok(Err(_) | Ok(0)) => return Over::Gone,
            Ok(Ok(_)) => {}
        }
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            let Some(word) = word(&line) else { continue };
            let skipped = matches!(word, Word::Skipped { .. });
            if inbox.send(Input::Gpus(GpuNews::Word(word))).is_err() {
                return Over::Gone;
            }
            if skipped {
                return Over::Skipped;
            }
        }
        if bytes.len() > MOST {
            return Over::Gone;
        }
    }
}
