//! What the tests of this room share.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::layout::OpenOptions;
use super::protocol::{Request, Response};
use super::worker;
use crate::domain::ids::{Attempt, Incarnation, NodeName, RunId, Seq, Term};
use crate::domain::record::{Body, Evict, Kind, RECORD_VERSION, Record, Writer};
use crate::ipc::frame;

/// A small record.
pub(crate) fn record(seq: u64, nonce: u64) -> Record {
    Record {
        v: RECORD_VERSION,
        seq: Seq(seq),
        kind: Kind::Evict,
        term: Term(1),
        attempt: Attempt(2),
        writer: Writer { node: NodeName::new("n01"), incarnation: Incarnation(u64::MAX) },
        nonce,
        wall_ms: 1_700_000_000_000,
        why: vec!["a test wants it".into()],
        body: Body::Evict(Evict { node: NodeName::new("n02"), reason: "tested".into(), ..Evict::default() }),
    }
}

/// A worker process of this test binary, and the other end of its socket.
pub(crate) struct WorkerProcess {
    pub(crate) child: Child,
    pub(crate) socket: UnixStream,
}

const CHILD: &str = "RELIGHT_TEST_STORE_WORKER";

impl WorkerProcess {
    /// Starts one, under `wrapper` if there is one (`strace …`).
    pub(crate) fn start(wrapper: &[&str]) -> Self {
        let (socket, theirs) = UnixStream::pair().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let exe = std::env::current_exe().unwrap();
        let mut command = match wrapper.split_first() {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(exe);
                command
            }
            None => Command::new(exe),
        };
        let child = command
            .args(["--exact", "store::worker::tests::child_process", "--nocapture"])
            .env(CHILD, "1")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        Self { child, socket }
    }

    pub(crate) fn send(&mut self, request: &Request) {
        frame::write(&mut self.socket, request).unwrap();
    }

    pub(crate) fn recv(&mut self) -> Response {
        frame::read(&mut self.socket).unwrap()
    }

    /// The next response that ends a request, and how many troubles came before it.
    pub(crate) fn last_word(&mut self) -> (Response, Vec<Response>) {
        let mut before = Vec::new();
        loop {
            let response = self.recv();
            if response.ends().is_some() {
                return (response, before);
            }
            before.push(response);
        }
    }

    /// Waits until it is gone; by which signal, if by one.
    pub(crate) fn died_of(&mut self) -> Option<i32> {
        self.child.wait().unwrap().signal()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of the worker process; none in an ordinary test run.
pub(crate) fn be_a_worker() {
    if std::env::var_os(CHILD).is_some() {
        let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        std::process::exit(worker::run(socket));
    }
}

/// Opens a run directory below `base` as the first coordinator does.
pub(crate) fn options(base: &Path) -> OpenOptions {
    OpenOptions {
        dir: base.join("run1"),
        run: RunId::new("run1"),
        create: true,
        make_parents: false,
        command: vec!["relight".into(), "run".into(), "train.py".into()],
        wall_ms: 1_700_000_000_000,
    }
}
