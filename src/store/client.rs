//! The agent's end of the store worker: bounded, never waiting for it without a deadline, and able to carry
//! on with a new worker where the old one left off.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::net::UnixStream;

use super::protocol::{Request, Response};
use crate::domain::ids::{Op, StoreId};
use crate::domain::record::Record;
use crate::ipc::frame::{self, FrameError, MAX_FRAME};

/// Requests that may be without an answer; then [`Client::send`] refuses.
pub const MAX_UNANSWERED: usize = 256;

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Too many are without an answer.
    #[error("{MAX_UNANSWERED} requests to the store worker are without an answer")]
    Full,
    /// It cannot be sent.
    #[error(transparent)]
    Frame(#[from] FrameError),
}

/// Talks to one store worker at a time.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    incoming: Vec<u8>,
    outgoing: VecDeque<u8>,
    unanswered: VecDeque<Request>,
    /// Records that came ahead of their `Opened`.
    records: Vec<Record>,
    /// The directory that was opened, for a new worker.
    place: Option<(PathBuf, StoreId)>,
    /// The answer to this request is our own business.
    silent: Option<Op>,
    heard: Instant,
    patience: Duration,
}

/// Never used by a caller: for the request that the client makes itself.
const SILENT: Op = Op(u64::MAX);

impl Client {
    /// A client for the other end of a worker's socket. It is late when it owes an answer and has said
    /// nothing for `patience`. Must be called inside a tokio runtime.
    pub fn new(stream: StdStream, patience: Duration) -> io::Result<Self> {
        Ok(Self {
            stream: adopt(stream)?,
            incoming: Vec::new(),
            outgoing: VecDeque::new(),
            unanswered: VecDeque::new(),
            records: Vec::new(),
            place: None,
            silent: None,
            heard: Instant::now(),
            patience,
        })
    }

    /// Queues a request. It goes out with the next [`Client::recv`]. Never blocks.
    pub fn send(&mut self, request: Request) -> Result<(), SendError> {
        if self.unanswered.len() >= MAX_UNANSWERED {
            return Err(SendError::Full);
        }
        if self.unanswered.is_empty() {
            self.heard = Instant::now();
        }
        self.outgoing.extend(frame::encode(&request)?);
        self.unanswered.push_back(request);
        // What the socket takes at once need not wait for the next turn of the loop.
        let _ = self.push();
        Ok(())
    }

    /// When the worker will be late; none while it owes nothing. Then kill it and [`Client::replace`] it.
    #[must_use]
    pub fn late_at(&self) -> Option<Instant> {
        let owes = !self.unanswered.is_empty() || self.silent.is_some();
        owes.then(|| self.heard + self.patience)
    }

    /// How many requests are without an answer.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.unanswered.len()
    }

    /// The next response. Cancel safe. An error means that the worker is gone or talks nonsense: kill it and
    /// [`Client::replace`] it.
    pub async fn recv(&mut self) -> Result<Response, FrameError> {
        loop {
            if let Some(response) = self.take()?
                && let Some(response) = self.digest(response)
            {
                return Ok(response);
            } else if self.has_frame() {
                continue;
            }
            let interest = if self.outgoing.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let ready = self.stream.ready(interest).await?;
            if ready.is_writable() {
                self.push()?;
            }
            if ready.is_readable() {
                self.pull()?;
            }
        }
    }

    /// Carries on with a new worker: opens the same directory and repeats what was not answered, under the
    /// same numbers. Events that were on their way may be written twice.
    pub fn replace(&mut self, stream: StdStream) -> Result<(), SendError> {
        self.stream = adopt(stream).map_err(FrameError::Io)?;
        self.incoming.clear();
        self.outgoing.clear();
        self.records.clear();
        self.heard = Instant::now();
        self.silent = None;
        if let Some((dir, store)) = self.place.clone() {
            self.silent = Some(SILENT);
            self.outgoing.extend(frame::encode(&Request::Reopen { op: SILENT, dir, store })?);
        }
        for request in &mut self.unanswered {
            match request {
                Request::Append { again, .. } => *again = true,
                // A fault plan was for the worker that it killed.
                Request::Open { faults, .. } => *faults = None,
                _ => {}
            }
            self.outgoing.extend(frame::encode(request)?);
        }
        let _ = self.push();
        Ok(())
    }

    fn push(&mut self) -> Result<(), FrameError> {
        while !self.outgoing.is_empty() {
            let (front, _) = self.outgoing.as_slices();
            match self.stream.try_write(front) {
                Ok(n) => drop(self.outgoing.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn pull(&mut self) -> Result<(), FrameError> {
        let mut buffer = [0_u8; 64 << 10];
        match self.stream.try_read(&mut buffer) {
            Ok(0) => Err(FrameError::Closed),
            Ok(n) => {
                self.heard = Instant::now();
                self.incoming.extend_from_slice(&buffer[..n]);
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn frame_len(&self) -> Option<usize> {
        let header = self.incoming.first_chunk::<4>()?;
        Some(usize::try_from(u32::from_le_bytes(*header)).unwrap_or(usize::MAX))
    }

    fn has_frame(&self) -> bool {
        self.frame_len().is_some_and(|length| self.incoming.len() - 4 >= length)
    }

    fn take(&mut self) -> Result<Option<Response>, FrameError> {
        let Some(length) = self.frame_len() else { return Ok(None) };
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        if !self.has_frame() {
            return Ok(None);
        }
        let response = postcard::from_bytes(&self.incoming[4..4 + length])?;
        self.incoming.drain(..4 + length);
        Ok(Some(response))
    }

    /// Keeps the books; passes on what is the caller's.
    fn digest(&mut self, mut response: Response) -> Option<Response> {
        if let Response::Records(records) = response {
            self.records.extend(records);
            return None;
        }
        let ends = response.ends();
        if ends.is_some() && ends == self.silent {
            self.silent = None;
            return None;
        }
        let asked = ends.and_then(|op| self.unanswered.iter().position(|r| r.op() == op));
        let asked = asked.and_then(|at| self.unanswered.remove(at));
        match (&mut response, asked) {
            (Response::Opened { opened, .. }, Some(Request::Open { options, .. })) => {
                let last = std::mem::take(&mut opened.records);
                opened.records = std::mem::take(&mut self.records);
                opened.records.extend(last);
                self.place = Some((options.dir, opened.store.clone()));
            }
            (Response::Aside { .. }, _) => self.place = None,
            _ => {}
        }
        Some(response)
    }
}

fn adopt(stream: StdStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
