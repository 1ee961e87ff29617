//! The pump's side of the connection to the logs worker: a bounded queue of frames, kept until they are
//! acknowledged.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::pump::Trouble;
use super::wire::{Source, Stream, ToPump, ToWorker};
use crate::ipc::frame;

/// What one queued frame costs beside its bytes.
const ENTRY: usize = 64;
/// Room beyond the limit for our own lines.
const RESERVE: usize = 256 << 10;
/// A frame that was under way so often when its worker died is given up: it may be what kills them.
const TRIES: u8 = 3;
/// A worker's frame is never longer than a path.
const LONGEST_REPLY: usize = 64 << 10;

/// How much a frame matters when the queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Output of ranks: refused when the limit is reached.
    Data,
    /// Our own lines: have a reserve.
    Own,
    /// Tiny and rare: always taken.
    Control,
}

/// Whose bytes a frame carries, and how many.
pub(super) type Load = Option<(Source, Stream, usize)>;

/// A place in the queue that a flush waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    /// So many frames have to be acknowledged since the start.
    frames: u64,
    /// Which byte of which connection has to be on the console.
    place: Option<(u64, u64)>,
}

#[derive(Debug)]
struct Entry {
    bytes: Vec<u8>,
    load: Load,
}

#[derive(Debug)]
struct Conn {
    socket: UnixStream,
    preamble: Vec<u8>,
    /// Bytes of the preamble that are sent.
    begun: usize,
    /// Position, in bytes of this connection, of the first queued frame.
    front_at: u64,
    acked: u64,
    /// What the worker says is on the console too.
    shown: u64,
    /// Which connection this is.
    number: u64,
    inbox: Vec<u8>,
    progress: Instant,
}

#[derive(Debug)]
pub(super) struct Outbox {
    limit: usize,
    entries: VecDeque<Entry>,
    /// Memory that `entries` hold, in bytes.
    held: usize,
    /// Their lengths, together.
    length: u64,
    attached: u64,
    /// So many entries are sent whole, and of the next one so many bytes.
    sent: usize,
    offset: usize,
    conn: Option<Conn>,
    full: bool,
    front_tries: u8,
    pushed: u64,
    popped: u64,
    /// When a worker last acknowledged something new, or was attached in the place of one that had.
    progress: Instant,
    /// Some worker took something, ever.
    taken: bool,
    /// The last one that was let go of had taken something.
    worked: bool,
}

impl Outbox {
    pub(super) fn new(limit: usize, now: Instant) -> Self {
        Self {
            limit,
            entries: VecDeque::new(),
            held: 0,
            length: 0,
            attached: 0,
            sent: 0,
            offset: 0,
            conn: None,
            full: false,
            front_tries: 0,
            pushed: 0,
            popped: 0,
            progress: now,
            taken: false,
            worked: false,
        }
    }

    /// Would a data frame be taken now? Once full, not before half of it is free again: fewer, longer gaps.
    pub(super) fn has_room(&mut self) -> bool {
        if self.full && self.held <= self.limit / 2 {
            self.full = false;
        }
        !self.full
    }

    /// Queues a frame; false: thrown away.
    pub(super) fn push(&mut self, bytes: Vec<u8>, class: Class, load: Load, now: Instant) -> bool {
        let cost = bytes.capacity() + ENTRY;
        let fits = match class {
            Class::Data => self.has_room() && self.held + cost <= self.limit,
            Class::Own => self.held + cost <= self.limit + RESERVE,
            Class::Control => true,
        };
        if !fits {
            self.full |= class == Class::Data;
            return false;
        }
        if self.idle()
            && let Some(conn) = &mut self.conn
        {
            conn.progress = now;
        }
        self.held += cost;
        self.length += bytes.len() as u64;
        self.pushed += 1;
        self.entries.push_back(Entry { bytes, load });
        true
    }

    /// Everything queued so far, as something to wait for.
    pub(super) fn mark(&self) -> Mark {
        let place = self.conn.as_ref().map(|c| (c.number, c.front_at + self.length));
        Mark { frames: self.pushed, place }
    }

    /// Is everything up to `mark` written, and on the console? After a change of workers the console's part
    /// counts up to what is queued now.
    pub(super) fn reached(&self, mark: &mut Mark) -> bool {
        if self.popped < mark.frames {
            return false;
        }
        let Some(conn) = &self.conn else { return mark.frames == 0 };
        let end = match mark.place {
            Some((number, end)) if number == conn.number => end,
            _ => conn.front_at,
        };
        mark.place = Some((conn.number, end));
        conn.shown >= end
    }

    pub(super) fn progress(&self) -> Instant {
        self.progress
    }

    /// Our own lines that wait, where no worker has ever taken anything.
    pub(super) fn unsaid(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for entry in self.entries.iter().filter(|_| !self.taken) {
            if let Ok(ToWorker::Say { bytes, .. }) = frame::read(&mut &entry.bytes[..]) {
                text.extend_from_slice(&bytes.0);
            }
        }
        text
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    pub(super) fn socket(&self) -> Option<&UnixStream> {
        self.conn.as_ref().map(|c| &c.socket)
    }

    /// Has the socket something to carry?
    pub(super) fn wants_write(&self) -> bool {
        self.conn.as_ref().is_some_and(|c| c.begun < c.preamble.len() || self.sent < self.entries.len())
    }

    /// Is everything acknowledged?
    fn idle(&self) -> bool {
        self.entries.is_empty() && self.conn.as_ref().is_none_or(|c| c.acked >= c.front_at)
    }

    /// When the worker will be late, unless it acknowledges something.
    pub(super) fn late_at(&self, after: Duration) -> Option<Instant> {
        let conn = self.conn.as_ref()?;
        if self.idle() { None } else { Some(conn.progress + after) }
    }

    /// Forgives the time until `now` (this thread itself did not run).
    pub(super) fn forgive(&mut self, now: Instant) {
        self.progress = now;
        if let Some(conn) = &mut self.conn {
            conn.progress = now;
        }
    }

    /// A new worker; it gets `preamble` and then everything that is not acknowledged. What the old one wrote
    /// and did not acknowledge appears twice. Returns the load of a frame that was given up.
    pub(super) fn attach(&mut self, socket: UnixStream, preamble: Vec<u8>, now: Instant) -> io::Result<Load> {
        let worked = self.conn.as_ref().map_or(self.worked, |conn| conn.acked > 0);
        let lost = self.detach();
        socket.set_nonblocking(true)?;
        let front_at = preamble.len() as u64;
        // Workers that come and go and take nothing are no progress.
        if worked {
            self.progress = now;
        }
        self.attached += 1;
        self.conn = Some(Conn {
            socket,
            preamble,
            begun: 0,
            front_at,
            acked: 0,
            shown: 0,
            number: self.attached,
            inbox: Vec::new(),
            progress: now,
        });
        Ok(lost)
    }

    /// Lets go of the worker. Returns the load of a frame that was given up.
    pub(super) fn detach(&mut self) -> Load {
        self.worked = self.conn.take()?.acked > 0;
        let under_way = self.sent > 0 || self.offset > 0;
        (self.sent, self.offset) = (0, 0);
        if !under_way {
            return None;
        }
        self.front_tries += 1;
        if self.front_tries < TRIES {
            return None;
        }
        self.pop()
    }

    fn pop(&mut self) -> Load {
        let entry = self.entries.pop_front()?;
        self.held -= entry.bytes.capacity() + ENTRY;
        self.length -= entry.bytes.len() as u64;
        self.popped += 1;
        self.front_tries = 0;
        if self.entries.is_empty() && self.entries.capacity() > 1024 {
            self.entries = VecDeque::new();
        }
        entry.load
    }

    /// Sends as much as the socket takes.
    pub(super) fn write(&mut self) -> Result<(), Trouble> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        loop {
            let rest = if conn.begun < conn.preamble.len() {
                &conn.preamble[conn.begun..]
            } else if let Some(entry) = self.entries.get(self.sent) {
                &entry.bytes[self.offset..]
            } else {
                return Ok(());
            };
            let n = match conn.socket.write(rest) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(broken(&e)),
            };
            let whole = n == rest.len();
            if conn.begun < conn.preamble.len() {
                conn.begun += n;
            } else if whole {
                self.sent += 1;
                self.offset = 0;
            } else {
                self.offset += n;
            }
        }
    }

    /// Takes what the worker says; `other` gets everything but acknowledgements.
    pub(super) fn read(
        &mut self,
        now: Instant,
        mut other: impl FnMut(ToPump<'static>),
    ) -> Result<(), Trouble> {
        let mut buf = [0_u8; 4096];
        loop {
            let Some(mut conn) = self.conn.as_mut() else { return Ok(()) };
            match conn.socket.read(&mut buf) {
                Ok(0) => return Err(Trouble::Closed),
                Ok(n) => conn.inbox.extend_from_slice(&buf[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(broken(&e)),
            }
            while let Some(message) = next(&mut conn.inbox)? {
                match message {
                    ToPump::Ack(total) => self.acknowledged(total, now)?,
                    ToPump::Shown(total) if total > conn.shown => {
                        conn.shown = total;
                        self.progress = now;
                    }
                    message => other(message),
                }
                let Some(c) = &mut self.conn else { return Ok(()) };
                conn = c;
            }
        }
    }

    fn acknowledged(&mut self, total: u64, now: Instant) -> Result<(), Trouble> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        if total > conn.acked {
            self.taken = true;
            conn.acked = total;
            conn.progress = now;
            self.progress = now;
        }
        loop {
            let Some(conn) = &mut self.conn else { return Ok(()) };
            let Some(front) = self.entries.front() else { break };
            let end = conn.front_at + front.bytes.len() as u64;
            if conn.acked < end {
                break;
            }
            if self.sent == 0 {
                // It acknowledges what it was never sent.
                return Err(Trouble::Garbled);
            }
            conn.front_at = end;
            self.sent -= 1;
            self.pop();
        }
        Ok(())
    }
}

fn next(inbox: &mut Vec<u8>) -> Result<Option<ToPump<'static>>, Trouble> {
    let Some(header) = inbox.first_chunk::<4>() else { return Ok(None) };
    let length = usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX);
    if length > LONGEST_REPLY {
        return Err(Trouble::Garbled);
    }
    if inbox.len() < 4 + length {
        return Ok(None);
    }
    let message = frame::read(&mut &inbox[..4 + length]).map_err(|_| Trouble::Garbled)?;
    inbox.drain(..4 + length);
    Ok(Some(message))
}

fn broken(e: &io::Error) -> Trouble {
    match e.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Trouble::Closed,
        kind => Trouble::Broken(kind),
    }
}
