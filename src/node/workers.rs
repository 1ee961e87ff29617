//! Worker processes: the same binary, a socket under number 3, started by the process thread.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use crate::agent::processes::{Command, Processes, WorkerId};
use crate::sys::memexec::Image;
use crate::sys::spawn::{SpawnRequest, Stdin};

/// The store worker.
pub(crate) const STORE: WorkerId = WorkerId(1);
/// The logs worker.
pub(crate) const LOGS: WorkerId = WorkerId(2);

/// The probe worker.
pub(crate) const PROBE: WorkerId = WorkerId(3);
/// What ends the job when nobody else is left.
pub(crate) const CLOSER: WorkerId = WorkerId(4);

/// The number of a worker's socket.
pub(crate) const SOCKET: i32 = 3;
const IMAGE: i32 = 7;
const SIGKILL: i32 = 9;
/// HUP, INT, QUIT, USR1, USR2, TERM: a terminal sends them to everybody; a worker ends when its agent does.
const IGNORED: [i32; 6] = [1, 2, 3, 10, 12, 15];

/// Starts workers.
pub(crate) struct Workers {
    pub(crate) image: Image,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) processes: Processes,
}

impl Workers {
    /// Starts a worker, an earlier one of the same kind is killed. Gives our end of its socket. Whether it runs is
    /// seen there: a worker that could not start closes it.
    pub(crate) fn start(&self, id: WorkerId) -> io::Result<UnixStream> {
        let kind = match id {
            STORE => "store",
            LOGS => "logs",
            _ => "probe",
        };
        let (ours, theirs) = UnixStream::pair()?;
        let image = self.image.fd().try_clone_to_owned()?;
        let program = format!("/proc/self/fd/{IMAGE}");
        let request = Box::new(SpawnRequest {
            argv: vec![program.into(), "__worker".into(), kind.into()],
            env: self.env.iter().map(|(k, v)| (k.into(), v.into())).collect(),
            cwd: PathBuf::from("/"),
            stdin: Stdin::Null,
            inherit: vec![(SOCKET, theirs.as_fd().try_clone_to_owned()?), (IMAGE, image)],
            death_signal: Some(SIGKILL),
            ignore: IGNORED.to_vec(),
            ..SpawnRequest::default()
        });
        self.processes.send(Command::SpawnWorker { id, request });
        Ok(ours)
    }
}
