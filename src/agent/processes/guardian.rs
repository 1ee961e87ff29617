//! The line to the guardian.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use crate::sys::poll::Watch;
use crate::sys::seqpacket::{Packets, Received, Sent};

/// So many messages wait at most; a guardian that leaves more unread is stopped, and later ones are dropped.
const QUEUE: usize = 256;
/// So many are read in one turn: the line never keeps the loop from its other work.
const TURN: usize = 64;

/// The guardian is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gone;

#[derive(Debug)]
pub(super) struct Link {
    socket: Packets,
    queue: VecDeque<Vec<u8>>,
}

impl Link {
    pub(super) fn new(socket: Packets) -> Self {
        Self { socket, queue: VecDeque::new() }
    }

    pub(super) fn watch(&self) -> Watch<'_> {
        let fd = self.socket.as_fd();
        if self.queue.is_empty() { Watch::read(fd) } else { Watch::read_write(fd) }
    }

    pub(super) fn queue(&mut self, bytes: Vec<u8>) {
        if self.queue.len() < QUEUE {
            self.queue.push_back(bytes);
        }
    }

    pub(super) fn is_written(&self) -> bool {
        self.queue.is_empty()
    }

    /// Writes what goes, reads what is there. Never blocks.
    pub(super) fn exchange(&mut self, mut receive: impl FnMut(Vec<u8>)) -> Result<(), Gone> {
        while let Some(next) = self.queue.front() {
            match self.socket.send(next) {
                Sent::Done | Sent::TooLong => {
                    self.queue.pop_front();
                }
                Sent::Full => break,
                Sent::Closed => return Err(Gone),
            }
        }
        for _ in 0..TURN {
            match self.socket.receive() {
                Received::Packet(bytes) => receive(bytes),
                Received::Empty => break,
                Received::Closed => return Err(Gone),
            }
        }
        Ok(())
    }
}
