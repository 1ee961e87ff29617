//! The connections of a store: their sockets, and what is on its way in and out. What an idle one costs is its row.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd as _;

use crate::domain::torch_store::{Conn, Scanner, Sink};
use crate::sys::epoll::{Epoll, Interest};

/// In bytes: a connection to which more is on its way is not read from.
pub(super) const HIGH: usize = 256 << 10;
/// In bytes: an empty buffer keeps so much.
const KEEP: usize = 512;

/// One connection.
#[derive(Debug, Default)]
pub(super) struct Peer {
    stream: Option<TcpStream>,
    pub(super) from: Option<IpAddr>,
    /// The beginning of a request, or requests that wait until replies went out.
    pub(super) input: Vec<u8>,
    pub(super) scanner: Scanner,
    out: Vec<u8>,
    /// So much of it went out.
    sent: usize,
    /// Both buffers, as they were counted last.
    counted: usize,
    interest: Option<Interest>,
    dirty: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Peers {
    rows: Vec<Peer>,
    free: Vec<u32>,
    dirty: Vec<u32>,
    buffered: usize,
}

impl Sink for Peers {
    fn reply(&mut self, to: Conn) -> &mut Vec<u8> {
        // The store answers connections that it was told of; rows are never taken away.
        let at = (to.0 as usize).min(self.rows.len().saturating_sub(1));
        if self.rows.is_empty() {
            self.rows.push(Peer::default());
        }
        let row = &mut self.rows[at];
        if !row.dirty {
            row.dirty = true;
            self.dirty.push(to.0);
        }
        &mut row.out
    }
}

impl Peers {
    /// Connections that are open.
    pub(super) fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    /// Takes one in.
    pub(super) fn add(&mut self, epoll: &Epoll, stream: TcpStream, from: IpAddr) -> io::Result<Conn> {
        let number = match self.free.last() {
            Some(number) => *number,
            None => u32::try_from(self.rows.len()).map_err(|_| io::ErrorKind::OutOfMemory)?,
        };
        epoll.add(&stream, number, Interest::READ)?;
        if self.free.pop().is_none() {
            self.rows.push(Peer::default());
        }
        self.rows[number as usize] = Peer {
            stream: Some(stream),
            from: Some(from),
            interest: Some(Interest::READ),
            ..Peer::default()
        };
        Ok(Conn(number))
    }

    /// Closes one. False: it is closed already.
    pub(super) fn close(&mut self, conn: Conn) -> bool {
        let Some(row) = self.rows.get_mut(conn.0 as usize).filter(|row| row.stream.is_some()) else {
            return false;
        };
        self.buffered = self.buffered.saturating_sub(row.counted);
        // It may be among the dirty ones still: then it is found closed there, or another one with nothing to send.
        *row = Peer::default();
        self.free.push(conn.0);
        true
    }

    pub(super) fn row(&mut self, conn: Conn) -> Option<&mut Peer> {
        self.rows.get_mut(conn.0 as usize).filter(|row| row.stream.is_some())
    }

    /// Connections with replies on their way.
    pub(super) fn take_dirty(&mut self) -> Option<Conn> {
        self.dirty.pop().map(Conn)
    }

    /// Counts what the buffers of a connection hold. Where all together hold more than `most` bytes: the connection that
    /// is to be closed, which is not the one that came last but the one that holds most.
    pub(super) fn count(&mut self, conn: Conn, most: usize) -> Option<Conn> {
        let row = self.rows.get_mut(conn.0 as usize)?;
        let now = row.input.capacity() + row.out.capacity();
        self.buffered = self.buffered.saturating_sub(row.counted).saturating_add(now);
        row.counted = now;
        if self.buffered <= most {
            return None;
        }
        let open = (0..).map(Conn).zip(&self.rows).filter(|(_, row)| row.stream.is_some());
        open.max_by_key(|(_, row)| row.counted).map(|(conn, _)| conn)
    }
}

impl Peer {
    /// What came, into `buffer`: `None` nothing for now, 0 the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let Some(stream) = &mut self.stream else { return Ok(None) };
        match stream.read(buffer) {
            Ok(length) => Ok(Some(length)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// More is on its way out than it may be.
    pub(super) fn is_slow(&self) -> bool {
        self.out.len() - self.sent > HIGH
    }

    /// Keeps what was not dealt with of its input.
    pub(super) fn keep(&mut self, mut input: Vec<u8>, done: usize) {
        if done >= input.len() {
            input.clear();
            if input.capacity() > KEEP {
                input = Vec::new();
            }
        } else {
            input.drain(..done);
        }
        self.input = input;
    }

    /// Sends what it takes. What is waited for after that is up to how far that went.
    pub(super) fn flush(&mut self, epoll: &Epoll, number: u32) -> io::Result<()> {
        self.dirty = false;
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.sent < self.out.len() {
            match stream.write(&self.out[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.sent == self.out.len() {
            self.sent = 0;
            self.out.clear();
            if self.out.capacity() > KEEP {
                self.out = Vec::new();
            }
        } else if self.sent > HIGH && self.sent > self.out.len() / 2 {
            // Not before half of it went: what stays is moved, and must not be moved again and again.
            self.out.drain(..self.sent);
            self.sent = 0;
        }
        let wants = Interest { read: self.out.len() - self.sent <= HIGH, write: !self.out.is_empty() };
        if self.interest != Some(wants) {
            epoll.change(stream.as_fd(), number, wants)?;
            self.interest = Some(wants);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn over_the_bound_the_largest_is_closed_and_not_who_came_last() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (epoll, mut peers) = (Epoll::new(8).unwrap(), Peers::default());
        let conns: Vec<Conn> = (0..3)
            .map(|_| {
                let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                peers.add(&epoll, stream, IpAddr::from([127, 0, 0, 1])).unwrap()
            })
            .collect();
        let mut holds = |at: usize, bytes: usize| {
            peers.row(conns[at]).unwrap().input = Vec::with_capacity(bytes);
            let largest = peers.count(conns[at], 10_000);
            (largest, peers.buffered)
        };
        assert_eq!(holds(0, 1_000), (None, 1_000));
        assert_eq!(holds(1, 8_000), (None, 9_000));
        assert_eq!(holds(2, 1_500), (Some(conns[1]), 10_500));
        assert!(peers.close(conns[1]));
        assert_eq!(peers.count(conns[2], 10_000), None);
        assert_eq!((peers.buffered, peers.len()), (2_500, 2));
    }
}
