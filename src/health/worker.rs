//! Body of `relight __worker probe`. May hang for as long as a file system likes.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::check::{self, Plan};
use super::error_files;
use super::protocol::{Request, Response, SpaceRow};
use crate::domain::health::{CheckResult, late};
use crate::ipc::frame;
use crate::sys::{clock, files};

/// Answers until the other side closes; returns the exit code of the process.
#[must_use]
pub fn run(socket: OwnedFd) -> i32 {
    frame::serve(UnixStream::from(socket), answer)
}

fn answer(request: Request) -> Response {
    match request {
        Request::Space { op, paths } => {
            let rows = paths.into_iter().map(|path| {
                let free_bytes = files::free_bytes(&path);
                SpaceRow { path, free_bytes }
            });
            Response::Space { op, rows: rows.collect() }
        }
        Request::ErrorFiles { op, paths, not_before_ms } => {
            let notes = paths.iter().map(|path| error_files::read(path, not_before_ms));
            Response::ErrorFiles { op, notes: notes.collect() }
        }
        Request::Leave { op, path, text } => {
            Response::Left { op, done: files::write_small(&path, text.as_bytes()).is_ok() }
        }
        Request::Checks { op, plan } => Response::Checks { op, results: checked(plan) },
    }
}

/// Beyond its limit a program that is stuck in the kernel is waited for no longer.
const BEYOND: Duration = Duration::from_secs(2);

/// All checks at once, each on a thread of its own: one that hangs is left behind.
fn checked(plan: Plan) -> Vec<CheckResult> {
    let began = clock::boot();
    let (sender, receiver) = mpsc::channel();
    let mut expected: Vec<(String, Duration, Option<CheckResult>)> = Vec::new();
    for (at, check) in plan.checks().into_iter().enumerate() {
        expected.push((check.name(), check.limit(), None));
        let sender = sender.clone();
        let look = move || {
            // Nobody listens any more when this is late.
            let _ = sender.send((at, check::run(check.as_ref())));
        };
        // Without a thread there is no answer.
        let _ = std::thread::Builder::new().name("check".into()).spawn(look);
    }
    drop(sender);
    loop {
        let open = expected.iter().filter(|(_, _, result)| result.is_none());
        let Some(longest) = open.map(|(_, limit, _)| *limit).max() else { break };
        match receiver.recv_timeout(began.after(longest + BEYOND).since(clock::boot())) {
            Ok((at, result)) => {
                if let Some((_, _, slot)) = expected.get_mut(at) {
                    *slot = Some(result);
                }
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    let missed = |name: String, limit: Duration| {
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        late(ms).named(name, ms)
    };
    let all = expected.into_iter();
    all.map(|(name, limit, result)| result.unwrap_or_else(|| missed(name, limit))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Op;

    #[test]
    fn it_tells_room_in_the_order_of_the_question() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let worker = std::thread::spawn(move || run(far.into()));
        let paths = vec!["/".into(), "/nowhere/at/all".into()];
        frame::write(&mut near, &Request::Space { op: Op(7), paths }).unwrap();
        let Response::Space { op, rows } = frame::read(&mut near).unwrap() else { panic!("another answer") };
        assert_eq!(op, Op(7));
        assert!(rows.iter().all(|row| row.free_bytes.is_some()), "{rows:?}");
        let asked: Vec<_> = rows.iter().map(|row| row.path.to_str().unwrap()).collect();
        assert_eq!(asked, ["/", "/nowhere/at/all"]);
        drop(near);
        assert_eq!(worker.join().unwrap(), 0);
    }
}
