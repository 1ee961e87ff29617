//! Body of `relight __worker stacks`. Each rank has a thread of its own: one that hangs is left out of the answer.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, UNIX_EPOCH};

use super::protocol::{Found, Request, Response, Target};
use super::{inside, outside};
use crate::domain::liveness::flight::Recorder;
use crate::domain::time::BootTime;
use crate::ipc::frame;
use crate::sys::capability::Capabilities;
use crate::sys::{clock, facts, files, procfs};

/// An answer comes after so long, with what there is.
pub const LIMIT: Duration = Duration::from_millis(4_000);
/// Clocks of files may be behind ours, in milliseconds.
const SKEW_MS: u64 = 2_000;

/// Answers until the other side closes; returns the exit code of the process.
#[must_use]
pub fn run(socket: OwnedFd) -> i32 {
    frame::serve(UnixStream::from(socket), answer)
}

fn answer(request: Request) -> Response {
    let until = clock::boot().after(LIMIT);
    let between = Duration::from_millis(request.between_ms).min(LIMIT / 2);
    let path: Arc<str> = request.path.into();
    let (sender, receiver) = mpsc::channel();
    let asked = request.ranks.len();
    for (at, target) in request.ranks.into_iter().enumerate() {
        let (sender, path) = (sender.clone(), path.clone());
        let look = move || {
            // Nobody listens any more when this is late.
            let _ = sender.send((at, look(&target, between, &path)));
        };
        // Without a thread there is no look at this rank.
        let _ = std::thread::Builder::new().name("look".into()).spawn(look);
    }
    drop(sender);
    let mut found = Vec::new();
    while found.len() < asked {
        match receiver.recv_timeout(until.since(clock::boot())) {
            Ok(one) => found.push(one),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    found.sort_by_key(|(at, _)| *at);
    Response { op: request.op, ranks: found.into_iter().map(|(_, found)| found).collect() }
}

fn look(target: &Target, between: Duration, path: &str) -> Found {
    let caps = Capabilities::probe();
    let (began, wall_ms) = (clock::boot(), clock::now().wall_ms);
    let root = i32::try_from(target.pid).unwrap_or(0);
    let family = facts::family(root, caps);
    let subject = facts::subject(&family, target.owner, caps);
    let before = facts::look(subject, &family);
    let asked = target.recorder.as_ref().filter(|recorder| files::poke_pipe(&recorder.pipe, b"1\n").is_ok());
    let stack = match settled(subject, before.state) {
        // One that is stopped, traced or stuck in the kernel runs no handler.
        None | Some('Z' | 'X' | 'x') => None,
        Some('D') => outside::kernel(subject),
        Some(state) => {
            let asks = target.signal.zip(target.file.as_deref()).filter(|_| !matches!(state, 'T' | 't'));
            asks.and_then(|(signal, file)| inside::read(subject, signal, file))
                .or_else(|| outside::py_spy(subject, path, caps))
                .or_else(|| outside::kernel(subject))
        }
    };
    wait_until(began.after(between));
    // Whoever was started meanwhile is movement, too.
    let after = facts::look(subject, &facts::family(root, caps));
    let flight_recorder = asked.map(|recorder| dump_of(recorder, wall_ms)).unwrap_or_default();
    Found {
        local_rank: target.local_rank,
        before,
        after,
        between_ms: u64::try_from(clock::boot().since(began).as_millis()).unwrap_or(u64::MAX),
        stack,
        flight_recorder,
    }
}

/// A read from a disk is over in a moment, one from a file server that is gone is not.
fn settled(pid: i32, state: Option<char>) -> Option<char> {
    const MOMENT: Duration = Duration::from_millis(100);
    if state != Some('D') {
        return state;
    }
    std::thread::sleep(MOMENT);
    procfs::state(pid)
}

fn wait_until(at: BootTime) {
    std::thread::sleep(at.since(clock::boot()));
}

/// The dump that was written since, else the one that is likely to come.
fn dump_of(recorder: &Recorder, since_ms: u64) -> String {
    let changed_ms = |path: &&PathBuf| {
        let changed = path.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        u64::try_from(changed.as_millis()).ok()
    };
    let written = recorder
        .dumps
        .iter()
        .find(|path| changed_ms(path).is_some_and(|changed| changed.saturating_add(SKEW_MS) >= since_ms));
    written.or(recorder.dumps.first()).map(|path| path.display().to_string()).unwrap_or_default()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
