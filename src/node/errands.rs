//! Commands of Slurm that an agent needs now and then, run as a worker of its own, each with a deadline.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::control::Life;
use super::workers::{ERRAND, Ends};
use crate::agent::processes::{Command, Processes};
use crate::sys::spawn::{SpawnRequest, Stdin};

const SIGKILL: i32 = 9;
/// What a command prints is read up to here, in bytes.
const MOST_OUTPUT: u64 = 64 << 10;
/// Between two looks for its end.
const LOOK: Duration = Duration::from_millis(20);

/// Runs them, one at a time.
pub(super) struct Errands {
    env: Vec<(OsString, OsString)>,
    processes: Processes,
    ends: Ends,
}

impl Life {
    pub(super) fn errands(&self) -> Errands {
        Errands {
            env: self.boot.context.base_env.clone(),
            processes: self.processes.clone(),
            ends: self.ends.clone(),
        }
    }
}

impl Errands {
    /// What a command printed; what went wrong, in a few words, where it failed or is `within` late. Then it is killed:
    /// an answer or an order that comes later is none of ours.
    pub(super) async fn ask(&self, words: &[String], within: Duration) -> Result<String, String> {
        let name = words.first().map(String::as_str).unwrap_or_default();
        let unheard = |error: std::io::Error| format!("{name}: {error}");
        let (out, stdout) = pair().map_err(unheard)?;
        let (err, stderr) = pair().map_err(unheard)?;
        // Where it lies is looked for by the child: a folder of PATH may be on a file server that hangs.
        let argv = words.iter().map(OsString::from);
        let request = Box::new(SpawnRequest {
            argv: argv.collect(),
            env: self.env.clone(),
            cwd: PathBuf::from("/"),
            stdin: Stdin::Null,
            stdout: Some(stdout),
            stderr: Some(stderr),
            death_signal: Some(SIGKILL),
            ..SpawnRequest::default()
        });
        self.ends.forget(ERRAND);
        self.processes.send(Command::SpawnWorker { id: ERRAND, request });
        let answer =
            tokio::time::timeout(within, async { tokio::join!(read(out), read(err), self.end()) }).await;
        let Ok((out, err, success)) = answer else {
            self.processes.send(Command::KillWorker { id: ERRAND });
            return Err(format!("{name} has not answered for {} s", within.as_secs()));
        };
        if success {
            return Ok(out);
        }
        let last = err.lines().map(str::trim).rfind(|line| !line.is_empty());
        let how = || self.ends.last(ERRAND).map_or_else(String::new, |kind| format!(": {kind}"));
        Err(last.map_or_else(|| format!("{name}{}", how()), str::to_owned))
    }

    /// Whether it ended well.
    async fn end(&self) -> bool {
        loop {
            if let Some(kind) = self.ends.last(ERRAND) {
                return kind.is_success();
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

fn pair() -> std::io::Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, theirs.as_fd().try_clone_to_owned()?))
}

async fn read(stream: UnixStream) -> String {
    let mut bytes = Vec::new();
    // What came counts.
    let _ = stream.take(MOST_OUTPUT).read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}
