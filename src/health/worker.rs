//! Body of `relight __worker probe`. May hang for as long as a file system likes.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::error_files;
use super::protocol::{Request, Response, SpaceRow};
use crate::ipc::frame::{self, FrameError};
use crate::sys::files;

/// Answers until the other side closes; returns the exit code of the process.
#[must_use]
pub fn run(socket: OwnedFd) -> i32 {
    let mut socket = UnixStream::from(socket);
    loop {
        let request = match frame::read::<Request>(&mut socket) {
            Ok(request) => request,
            Err(FrameError::Closed) => return 0,
            Err(_) => return 1,
        };
        let response = match request {
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
        };
        if frame::write(&mut socket, &response).is_err() {
            return 1;
        }
    }
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
