//! Worker processes: the same binary, a socket under number 3, started by the process thread.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use crate::agent::processes::{Command, Processes, WorkerId};
use crate::domain::exit::ExitKind;
use crate::sys::memexec::Image;
use crate::sys::spawn::{SpawnRequest, Stdin};

/// The store worker.
pub(crate) const STORE: WorkerId = WorkerId(1);
/// The logs worker.
pub(crate) const LOGS: WorkerId = WorkerId(2);

/// The probe worker.
pub(crate) const PROBE: WorkerId = WorkerId(3);
/// A command of Slurm.
pub(crate) const ERRAND: WorkerId = WorkerId(4);
/// A probe that reads what ranks left: it may hang where they wrote.
pub(crate) const READER: WorkerId = WorkerId(5);

/// The one that looks at ranks that do not advance.
pub(crate) const STACKS: WorkerId = WorkerId(6);

/// The one that looks whether the node is fit.
pub(crate) const GATE: WorkerId = WorkerId(7);

/// The one that asks the driver of GPUs.
pub(crate) const GPUS: WorkerId = WorkerId(8);

/// The number of a worker's socket.
pub(crate) const SOCKET: i32 = 3;
const IMAGE: i32 = 7;
const SIGKILL: i32 = 9;
/// HUP, INT, QUIT, USR1, USR2, TERM: a terminal sends them to everybody; a worker ends when its agent does.
const IGNORED: [i32; 6] = [1, 2, 3, 10, 12, 15];

/// How workers ended that nobody killed, the last one of each kind. The process thread writes, before the worker's
/// socket closes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends(Arc<Mutex<BTreeMap<WorkerId, ExitKind>>>);

impl Ends {
    pub(crate) fn note(&self, id: WorkerId, kind: &ExitKind) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id, kind.clone());
    }

    pub(crate) fn forget(&self, id: WorkerId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// How the last one ended; none of this kind has.
    pub(crate) fn last(&self, id: WorkerId) -> Option<ExitKind> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }
}

/// Starts workers.
pub(crate) struct Workers {
    pub(crate) image: Image,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) processes: Processes,
    pub(crate) ends: Ends,
}

impl Workers {
    /// Starts a worker, an earlier one of the same kind is killed. Gives our end of its socket. Whether it runs is
    /// seen there: a worker that could not start closes it.
    pub(crate) fn start(&self, id: WorkerId) -> io::Result<UnixStream> {
        let kind = match id {
            STORE => "store",
            LOGS => "logs",
            STACKS => "stacks",
            _ => "probe",
        };
        let image = self.image.fd().try_clone_to_owned()?;
        let program = format!("/proc/self/fd/{IMAGE}");
        let request = SpawnRequest {
            argv: vec![program.into(), "__worker".into(), kind.into()],
            env: self.env.iter().map(|(k, v)| (k.into(), v.into())).collect(),
            cwd: PathBuf::from("/"),
            inherit: vec![(IMAGE, image)],
            ..SpawnRequest::default()
        };
        self.start_with(id, request)
    }

    /// The same for another program: what it has to say for itself beside its socket is not heard.
    pub(crate) fn start_program(&self, id: WorkerId, request: SpawnRequest) -> io::Result<UnixStream> {
        let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
        let (stdout, stderr) = (Some(nowhere.try_clone()?.into()), Some(nowhere.into()));
        self.start_with(id, SpawnRequest { stdout, stderr, ..request })
    }

    fn start_with(&self, id: WorkerId, mut request: SpawnRequest) -> io::Result<UnixStream> {
        // Of the one before; the next entry is this one's.
        self.ends.forget(id);
        let (ours, theirs) = UnixStream::pair()?;
        request.inherit.push((SOCKET, theirs.as_fd().try_clone_to_owned()?));
        request.stdin = Stdin::Null;
        request.death_signal = Some(SIGKILL);
        request.ignore = IGNORED.to_vec();
        let request = Box::new(request);
        self.processes.send(Command::SpawnWorker { id, request });
        Ok(ours)
    }
}
