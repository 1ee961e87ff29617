//! What the last agent does for the job when the coordinator is gone: in the batch form nobody may be left who could.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::control::Life;
use super::workers::CLOSER;
use crate::agent::processes::Command;
use crate::domain::env;
use crate::net::tcp;
use crate::sys::spawn::{SpawnRequest, Stdin};

/// For the supervisor's port to answer.
const ANSWER: Duration = Duration::from_secs(4);
/// For `scancel`.
const CANCEL: Duration = Duration::from_secs(10);
const SIGKILL: i32 = 9;

impl Life {
    /// The run has ended for want of a coordinator. With `--no-kill` a job whose batch host is dead stays for ever: Slurm
    /// waits for a script that nobody runs. Whoever lives on is the job's only voice.
    pub(super) async fn end_job(&self) {
        let place = &self.boot.context.place;
        let (true, Some(job)) = (place.supervised, &place.job) else { return };
        let host: Option<IpAddr> = place.towards.as_ref().and_then(|text| text.parse().ok());
        let Some(supervisor) = host.zip(place.supervisor_port).map(SocketAddr::from) else { return };
        if tcp::dial(&[supervisor], ANSWER).await.is_ok() {
            // It lives, and ends its script with the run's code.
            return;
        }
        let Some(program) = self.which("scancel") else { return };
        self.teller.say(&format!(
            "ending job {}: its supervisor is gone with the batch host, and Slurm would keep the job without them",
            job.id
        ));
        self.run_to_end(program, &job.id).await;
    }

    fn which(&self, name: &str) -> Option<PathBuf> {
        let env = &self.boot.context.base_env;
        let path = env.iter().find(|(known, _)| known == env::PATH.name).map(|(_, value)| value.as_os_str());
        let path = path.unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"));
        let path = path.to_string_lossy().into_owned();
        path.split(':').map(|dir| Path::new(dir).join(name)).find(|file| file.is_file())
    }

    /// Its end is the end of a descriptor that only it holds.
    async fn run_to_end(&self, program: PathBuf, argument: &str) {
        let Ok((ours, theirs)) = StdStream::pair() else { return };
        let Ok(held) = theirs.as_fd().try_clone_to_owned() else { return };
        let request = Box::new(SpawnRequest {
            argv: vec![program.into(), argument.into()],
            env: self.boot.context.base_env.clone(),
            cwd: PathBuf::from("/"),
            stdin: Stdin::Null,
            inherit: vec![(3, held)],
            death_signal: Some(SIGKILL),
            ..SpawnRequest::default()
        });
        drop(theirs);
        self.processes.send(Command::SpawnWorker { id: CLOSER, request });
        if ours.set_nonblocking(true).is_ok()
            && let Ok(mut end) = UnixStream::from_std(ours)
        {
            let _ = tokio::time::timeout(CANCEL, end.read(&mut [0])).await;
        }
    }
}
