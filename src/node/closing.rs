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
use crate::domain::record::Body;
use crate::net::tcp;
use crate::sys::spawn::{SpawnRequest, Stdin};

/// For the supervisor's port to answer.
const ANSWER: Duration = Duration::from_secs(4);
/// For the journal.
const JOURNAL: Duration = Duration::from_secs(5);
/// For `scancel`, and no longer: a network that comes back late must not carry it out.
const CANCEL: Duration = Duration::from_secs(5);
/// Between two agents that would do the same.
const TURN: Duration = Duration::from_secs(10);
/// Those further back in the list take the turn of this one.
const LAST_TURN: u32 = 3;
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
        // One after the other, in order: the first that can is enough.
        tokio::time::sleep(TURN.saturating_mul(place.index.saturating_sub(1).min(LAST_TURN))).await;
        if !self.is_abandoned().await {
            return;
        }
        let Some(program) = self.which("scancel") else { return };
        self.teller.say(&format!(
            "ending job {}: its supervisor is gone with the batch host, and Slurm would keep the job without them",
            job.id
        ));
        self.run_to_end(program, &job.id).await;
    }

    /// Nobody leads this run on without us: the journal can be read, and since this agent lost the coordinator nothing
    /// was written that goes on elsewhere. A node that was merely cut off must not end what others train.
    async fn is_abandoned(&self) -> bool {
        let store = self.store.clone();
        let opened = match tokio::time::timeout(JOURNAL, store.open(self.options(false))).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(_)) | Err(_) => return false,
        };
        let own = &self.boot.context.node;
        let unread = opened.records.iter().skip(usize::try_from(self.read.get()).unwrap_or(usize::MAX));
        unread.into_iter().all(|record| match &record.body {
            Body::Attempt(world) => {
                world.members.iter().any(|m| m.node == *own) || world.spares.contains(own)
            }
            Body::Membership(change) => change.voters.contains(own),
            Body::Incident(_) => true,
            _ => false,
        })
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
