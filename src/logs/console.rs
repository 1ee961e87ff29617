//! Our standard output and error, shared by ranks and our own lines. A thread of its own writes them: who
//! reads our output (srun, and behind it a job's output file) may stop for minutes, and the files go on.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::files::BATCH;
use super::lines::{At, Owner, Piece};
use super::pump::dropped_marker;
use super::wire::Stream;
use crate::sys::pipes::{self, Want};

/// What waits for the console at most, in bytes; beyond it output of ranks is thrown away.
const WAITING: usize = 4 << 20;
/// Beyond that, room for our own lines.
const RESERVE: usize = 256 << 10;

/// What the writing thread does next.
enum Item {
    Text(Stream, Vec<u8>),
    /// Everything of the agent's frames up to this byte went before: tell it.
    Mark(u64),
    End,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: usize,
    /// Thrown away, by stream, and not yet marked.
    dropped: [u64; 2],
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
}

impl Shared {
    fn put(&self, change: impl FnOnce(&mut Queue)) {
        change(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner));
        self.more.notify_one();
    }

    fn take(&self) -> Item {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(item) = queue.items.pop_front() {
                return item;
            }
            queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Text counts until it is written.
    fn written(&self, bytes: usize) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).bytes -= bytes;
    }
}

/// Both outputs.
pub(super) struct Console {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
    /// Both lead to the same place (a terminal, a job's output file): a line of one can tear one of the
    /// other.
    same: bool,
    at: [At; 2],
    /// Gathered for one of the two; going over to the other queues it, so that their order stays.
    buf: Vec<u8>,
    to: Stream,
    /// `buf` holds lines of our own.
    own: bool,
}

impl Console {
    /// Starts the writing thread; `shown` is called on it for every [`Console::mark`] that is reached.
    pub(super) fn new(out: File, err: File, shown: impl FnMut(u64) + Send + 'static) -> io::Result<Self> {
        let place = |f: &File| f.metadata().map(|m| (m.dev(), m.ino(), m.rdev())).ok();
        let same = place(&out).is_some() && place(&out) == place(&err);
        let shared = Arc::new(Shared::default());
        let queue = Arc::clone(&shared);
        let writer = std::thread::Builder::new()
            .name("console".into())
            .spawn(move || write_out(&queue, [Some(out), Some(err)], shown))?;
        let (at, buf) = ([At::default(); 2], Vec::new());
        Ok(Self { shared, writer: Some(writer), same, at, buf, to: Stream::Out, own: false })
    }

    fn at(&mut self, stream: Stream, own: bool) -> (&mut At, &mut Vec<u8>) {
        if stream != self.to || own != self.own || self.buf.len() >= BATCH {
            self.flush();
            (self.to, self.own) = (stream, own);
        }
        let n = if self.same { 0 } else { stream.index() };
        (&mut self.at[n], &mut self.buf)
    }

    /// Bytes as they are.
    pub(super) fn raw(&mut self, stream: Stream, bytes: &[u8]) {
        let (at, buf) = self.at(stream, false);
        at.raw(bytes, buf);
    }

    /// A piece of a line.
    pub(super) fn line(&mut self, owner: Owner, prefix: &[u8], piece: Piece<'_>) {
        let (at, buf) = self.at(owner.2, false);
        at.line(owner, prefix, piece, buf);
    }

    /// A line of our own: never behind somebody's unfinished one.
    pub(super) fn own(&mut self, stream: Stream, bytes: &[u8]) {
        let (at, buf) = self.at(stream, true);
        at.fresh(buf);
        at.raw(bytes, buf);
    }

    /// Ends the unfinished line of a rank.
    pub(super) fn close(&mut self, owner: Owner) {
        let (at, buf) = self.at(owner.2, false);
        at.close(owner, buf);
    }

    /// Queues what is gathered for the writing thread.
    pub(super) fn flush(&mut self) {
        if self.buf.is_empty() {
            return;
        }
        let (text, n) = (std::mem::take(&mut self.buf), self.to.index());
        let limit = if self.own { WAITING + RESERVE } else { WAITING };
        self.shared.put(|queue| {
            if queue.bytes + text.capacity() > limit {
                queue.dropped[n] += text.len() as u64;
                return;
            }
            if queue.dropped[n] > 0 {
                let marker = format!("\n{}", dropped_marker(std::mem::take(&mut queue.dropped[n])));
                queue.bytes += marker.capacity();
                queue.items.push_back(Item::Text(self.to, marker.into_bytes()));
            }
            queue.bytes += text.capacity();
            queue.items.push_back(Item::Text(self.to, text));
        });
    }

    /// Everything up to this byte of the agent's frames was given to the console (or thrown away).
    pub(super) fn mark(&mut self, total: u64) {
        self.flush();
        self.shared.put(|queue| match queue.items.back_mut() {
            Some(Item::Mark(last)) => *last = total,
            _ => queue.items.push_back(Item::Mark(total)),
        });
    }

    /// Waits until everything is written.
    pub(super) fn finish(&mut self) {
        self.flush();
        self.shared.put(|queue| {
            for stream in Stream::BOTH {
                let n = std::mem::take(&mut queue.dropped[stream.index()]);
                if n > 0 {
                    let marker = format!("\n{}", dropped_marker(n)).into_bytes();
                    queue.bytes += marker.capacity();
                    queue.items.push_back(Item::Text(stream, marker));
                }
            }
            queue.items.push_back(Item::End);
        });
        if let Some(writer) = self.writer.take() {
            // A panic there was printed there.
            let _ = writer.join();
        }
    }
}

/// Body of the writing thread. An output that fails is given up; the other one and the marks go on.
fn write_out(queue: &Shared, mut outputs: [Option<File>; 2], mut shown: impl FnMut(u64)) {
    loop {
        match queue.take() {
            Item::Text(stream, text) => {
                let output = &mut outputs[stream.index()];
                if output.as_mut().is_some_and(|file| write_all(file, &text).is_err()) {
                    *output = None;
                }
                queue.written(text.capacity());
            }
            Item::Mark(total) => shown(total),
            Item::End => return,
        }
    }
}

/// As `Write::write_all`, but waits where somebody who shares the open file made it non-blocking.
fn write_all(file: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    let mut ready = Vec::new();
    while !bytes.is_empty() {
        match file.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                pipes::wait(&[(file.as_fd(), Want { read: false, write: true })], None, &mut ready)?;
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
