//! Ring 2, the composition root: one agent process, with the coordinator if it lives here.
//!
//! The main thread is the process thread; the control thread holds the tasks of agent and coordinator, the
//! line between them, and the client of the store worker; beats have a thread of their own where grants are
//! not for ever; the log pump has one, too.

mod beats;
mod boot;
mod closing;
mod collected;
mod control;
mod direct;
mod errands;
mod evidence;
mod finding;
mod gate;
mod gpus;
mod hooks;
mod link;
mod listener;
pub mod operator;
mod output;
mod probe;
mod seeker;
mod status;
mod store;
mod tasks;
mod telemetry;
mod teller;
mod whereabouts;
mod workers;

use std::io;
use std::os::fd::OwnedFd;

use tokio::sync::mpsc;

pub use boot::{Boot, BootError};
use workers::Ends;

use crate::agent::driver::Input;
use crate::agent::processes::{self, Config, ProcessEvent, ProcessThread};
use crate::ipc::board::{self, Home};
use crate::sys::capability::Capabilities;
use crate::sys::lock::LockShare;
use crate::sys::memexec::{Image, name_thread};
use crate::sys::page::Page;
use crate::sys::seqpacket::Packets;
use crate::sys::{inherited, memfd, process};

/// The numbers under which the guardian leaves descriptors to its agent.
pub use crate::guardian::fds;

/// Why an agent process could not begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A descriptor that the guardian should have left is not there, or a thread or pipe could not be made.
    #[error("the agent cannot begin: {what}: {source}")]
    Call {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The configuration is not readable.
    #[error("the agent cannot begin: {0}")]
    Boot(#[from] BootError),
    /// The page is not readable.
    #[error("the agent cannot begin: {0}")]
    Page(#[from] crate::sys::page::PageError),
}

/// Everything that the guardian left to this agent.
pub(crate) struct Inheritance {
    pub(crate) boot: Boot,
    pub(crate) page: Page,
    pub(crate) image: Image,
    _lock: Option<LockShare>,
}

fn call(what: &'static str) -> impl FnOnce(io::Error) -> AgentError {
    move |source| AgentError::Call { what, source }
}

fn inherit() -> Result<(Inheritance, OwnedFd), AgentError> {
    let config = inherited::take(fds::CONFIG).map_err(call("its configuration"))?;
    let socket = inherited::take(fds::SOCKET).map_err(call("its line to the guardian"))?;
    let page = inherited::take(fds::PAGE).map_err(call("its page"))?;
    let image = inherited::take(fds::IMAGE).map_err(call("its binary"))?;
    // Without a lock (no private directory was needed) there is none.
    let lock = inherited::take(fds::LOCK).and_then(LockShare::from_fd).ok();
    let boot = Boot::decode(&memfd::read_bytes(config).map_err(call("its configuration"))?)?;
    let (page, image) = (Page::from_fd(page)?, Image::from_fd(image));
    Ok((Inheritance { boot, page, image, _lock: lock }, socket))
}

/// The agent's process. Must be called on the main thread, before there is any other; does not return but for
/// an error of the very beginning.
///
/// # Errors
/// [`AgentError`].
pub fn agent_main() -> Result<std::convert::Infallible, AgentError> {
    let (inheritance, socket) = inherit()?;
    name_thread(c"relight-agent");
    let caps = Capabilities::forced(&inheritance.boot.fallbacks);
    let ignore_hangup = inheritance.boot.ignore_hangup;
    let (processes, commands) = processes::channel().map_err(call("its process thread"))?;
    let (inbox, events) = mpsc::unbounded_channel();
    let forward = inbox.clone();
    let ends = Ends::default();
    let noted = ends.clone();
    let lock = inheritance._lock.as_ref().and_then(|lock| lock.again().ok());
    let context = &inheritance.boot.context;
    let (home, pages) = match Home::make(&board::places(&context.private_dir), &context.run_dir) {
        Ok(home) => (Ok(home.paths().clone()), Some(home)),
        Err(error) => (Err(error), None),
    };
    let config = Config { caps, guardian: Some(Packets::new(socket)), lock, home: pages };
    let thread = ProcessThread::new(config, commands, move |event| {
        if let ProcessEvent::WorkerExited { id, kind } = &event {
            noted.note(*id, kind);
        }
        // Nobody listens any more only when the process is about to end.
        let _ = forward.send(Input::Process(event));
    })
    .map_err(call("its process thread"))?;
    let parts = control::Parts { inheritance, processes, inbox, events, ignore_hangup, ends, home };
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            // A panic here is a bug: the process ends, the guardian sweeps and starts the next life.
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| control::run(parts)));
            if ended.is_err() {
                process::exit_now(101);
            }
        })
        .map_err(call("its control thread"))?;
    thread.run_to_exit()
}
