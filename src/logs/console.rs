//! Our standard output and error, shared by ranks and our own lines.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;

use super::files::BATCH;
use super::lines::{At, Owner, Piece};
use super::wire::Stream;
use crate::sys::pipes::{self, Want};

/// Both outputs. Writes may block as long as they like.
#[derive(Debug)]
pub(super) struct Console {
    /// `None`: nobody reads it any more.
    outputs: [Option<File>; 2],
    /// Both lead to the same place (a terminal, a job's output file): a line of one can tear one of the
    /// other.
    same: bool,
    at: [At; 2],
    /// Gathered for one of the two; going over to the other writes it, so that their order stays.
    buf: Vec<u8>,
    to: Stream,
}

impl Console {
    pub(super) fn new(out: File, err: File) -> Self {
        let place = |f: &File| f.metadata().map(|m| (m.dev(), m.ino(), m.rdev())).ok();
        let same = place(&out).is_some() && place(&out) == place(&err);
        Self {
            outputs: [Some(out), Some(err)],
            same,
            at: [At::default(); 2],
            buf: Vec::new(),
            to: Stream::Out,
        }
    }

    fn at(&mut self, stream: Stream) -> (&mut At, &mut Vec<u8>) {
        if stream != self.to {
            self.flush();
            self.to = stream;
        } else if self.buf.len() >= BATCH {
            self.flush();
        }
        let n = if self.same { 0 } else { stream.index() };
        (&mut self.at[n], &mut self.buf)
    }

    /// Bytes as they are.
    pub(super) fn raw(&mut self, stream: Stream, bytes: &[u8]) {
        let (at, buf) = self.at(stream);
        at.raw(bytes, buf);
    }

    /// A piece of a line.
    pub(super) fn line(&mut self, owner: Owner, prefix: &[u8], piece: Piece<'_>) {
        let (at, buf) = self.at(owner.2);
        at.line(owner, prefix, piece, buf);
    }

    /// A line of our own: never behind somebody's unfinished one.
    pub(super) fn own(&mut self, stream: Stream, bytes: &[u8]) {
        let (at, buf) = self.at(stream);
        at.fresh(buf);
        at.raw(bytes, buf);
    }

    /// Ends the unfinished line of a rank.
    pub(super) fn close(&mut self, owner: Owner) {
        let (at, buf) = self.at(owner.2);
        at.close(owner, buf);
    }

    /// Writes what is gathered. An output that fails is given up.
    pub(super) fn flush(&mut self) {
        let output = &mut self.outputs[self.to.index()];
        if let Some(file) = output
            && !self.buf.is_empty()
            && write_all(file, &self.buf).is_err()
        {
            *output = None;
        }
        self.buf.clear();
        self.buf.shrink_to(2 * BATCH);
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
