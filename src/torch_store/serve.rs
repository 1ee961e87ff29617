//! The thread of a store: reads requests, has them answered, sends replies. It waits for descriptors and nothing else, so
//! a client that does not read, or sends half a request, keeps nobody waiting.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::peers::Peers;
use super::{Closes, Opening, Told};
use crate::domain::time::BootTime;
use crate::domain::torch_store::seen::Place;
use crate::domain::torch_store::{Conn, Fault, Store};
use crate::sys::clock;
use crate::sys::epoll::{Epoll, Interest, Ready};
use crate::sys::wake::Wake;

const LISTENER: u32 = u32::MAX;
const WAKE: u32 = u32::MAX - 1;
/// In bytes: so much is read at once.
const CHUNK: usize = 64 << 10;
/// Connections that are taken before others are served again.
const TAKEN: usize = 256;
/// Between two words about what is seen.
const TELL: Duration = Duration::from_millis(250);
/// Without room for another connection: until the next try.
const PAUSE: Duration = Duration::from_millis(200);
/// Strangers that are told.
const MOST_TOLD: usize = 8;

pub(super) struct Serving {
    listener: TcpListener,
    epoll: Epoll,
    wake: Wake,
    closes: Arc<Closes>,
    members: BTreeSet<IpAddr>,
    most: usize,
    buffered: usize,
    count_after: Duration,
    places: Vec<Place>,
    tell: Box<dyn FnMut(Told) + Send>,
    store: Store,
    peers: Peers,
    chunk: Vec<u8>,
    strangers: BTreeSet<IpAddr>,
    faults: u64,
    /// When the number of them is told.
    count_at: Option<BootTime>,
    counted: bool,
    no_room: bool,
    /// Nobody is taken in until then.
    paused: Option<BootTime>,
    /// When what is seen is told next, where that is new.
    tell_at: Option<BootTime>,
    told_at: Option<BootTime>,
}

impl Serving {
    pub(super) fn new(
        listener: TcpListener,
        epoll: Epoll,
        (wake, closes): (Wake, Arc<Closes>),
        members: BTreeSet<IpAddr>,
        opening: Opening,
    ) -> io::Result<Self> {
        epoll.add(&listener, LISTENER, Interest::READ)?;
        epoll.add(&wake, WAKE, Interest::READ)?;
        let Opening { places, world, limits, most, buffered, count_after, tell } = opening;
        Ok(Self {
            listener,
            epoll,
            wake,
            closes,
            members,
            most,
            buffered,
            count_after,
            places,
            tell,
            store: Store::new(limits, world),
            peers: Peers::default(),
            chunk: vec![0; CHUNK],
            strangers: BTreeSet::new(),
            faults: 0,
            count_at: None,
            counted: false,
            no_room: false,
            paused: None,
            tell_at: None,
            told_at: None,
        })
    }

    pub(super) fn run(mut self) {
        let mut ready: Vec<Ready> = Vec::new();
        while !self.is_over() {
            ready.clear();
            match self.epoll.wait(self.timeout()) {
                Ok(events) => ready.extend(events),
                // Not possible with a descriptor of our own.
                Err(_) => return,
            }
            for event in &ready {
                if self.closes.now.load(Ordering::Acquire) {
                    return;
                }
                match event.token {
                    LISTENER => self.accept(),
                    WAKE => self.wake.clear(),
                    number => self.serve(Conn(number), *event),
                }
            }
            self.on_time();
        }
    }

    fn is_over(&self) -> bool {
        self.closes.now.load(Ordering::Acquire)
            || (self.closes.empty.load(Ordering::Acquire) && self.peers.len() == 0)
    }

    fn timeout(&self) -> Option<Duration> {
        let at = [self.paused, self.tell_at, self.count_at].into_iter().flatten().min()?;
        Some(at.since(clock::boot()))
    }

    fn on_time(&mut self) {
        if self.store.seen_mut().take_changed() && self.tell_at.is_none() {
            let now = clock::boot();
            self.tell_at = Some(self.told_at.map_or(now, |told| told.after(TELL)));
        }
        if self.timeout().is_none() {
            return;
        }
        let now = clock::boot();
        if self.tell_at.is_some_and(|at| at <= now) {
            self.tell_at = None;
            self.told_at = Some(now);
            (self.tell)(Told::Reach(self.store.seen().reach(&self.places)));
        }
        if self.count_at.is_some_and(|at| at <= now) {
            self.count_at = None;
            if self.faults > 1 {
                self.counted = true;
                (self.tell)(Told::ClosedInAll(self.faults));
            }
        }
        if self.paused.is_some_and(|at| at <= now) {
            self.paused = None;
            self.listen(true);
        }
    }

    fn listen(&self, on: bool) {
        use std::os::fd::AsFd as _;
        let interest = Interest { read: on, write: false };
        // Only a descriptor that was not added can be refused.
        let _ = self.epoll.change(self.listener.as_fd(), LISTENER, interest);
    }

    fn accept(&mut self) {
        for _ in 0..TAKEN {
            if self.peers.len() >= self.most {
                let why = "as many as there may be beside the ranks' files (ulimit -n)";
                return self.pause(format!("{} connections are open, {why}", self.most));
            }
            let (stream, from) = match self.listener.accept() {
                Ok((stream, from)) => (stream, from.ip().to_canonical()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // What came is gone again, or was never there.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) =>
                {
                    continue;
                }
                Err(error) => return self.pause(error.to_string()),
            };
            if !self.members.contains(&from) {
                if self.strangers.len() < MOST_TOLD && self.strangers.insert(from) {
                    (self.tell)(Told::Stranger(from));
                }
                continue;
            }
            // A connection without it is slower, no more.
            let _ = stream.set_nodelay(true);
            let added = stream.set_nonblocking(true).and_then(|()| self.peers.add(&self.epoll, stream, from));
            match added {
                Ok(conn) => self.store.connect(conn),
                Err(error) => return self.pause(error.to_string()),
            }
        }
    }

    /// What waits at the port stays there for a while.
    fn pause(&mut self, why: String) {
        self.listen(false);
        self.paused = Some(clock::boot().after(PAUSE));
        if !std::mem::replace(&mut self.no_room, true) {
            (self.tell)(Told::NoRoom(why));
        }
    }

    fn serve(&mut self, conn: Conn, event: Ready) {
        if event.write {
            self.flush(conn);
        }
        if event.read {
            self.read(conn);
        }
        while let Some(conn) = self.peers.take_dirty() {
            self.flush(conn);
        }
    }

    fn read(&mut self, conn: Conn) {
        let mut chunk = std::mem::take(&mut self.chunk);
        if let Some(peer) = self.peers.row(conn) {
            match peer.read(&mut chunk) {
                Ok(None) => {}
                Ok(Some(0)) | Err(_) => self.close(conn),
                Ok(Some(length)) => self.input(conn, &chunk[..length]),
            }
        }
        self.chunk = chunk;
    }

    /// Deals with what came: in its place, where nothing is kept of before.
    fn input(&mut self, conn: Conn, new: &[u8]) {
        let Some(peer) = self.peers.row(conn) else { return };
        let outcome = if peer.input.is_empty() {
            self.requests(conn, new).map(|done| {
                if let Some(peer) = self.peers.row(conn) {
                    peer.input.extend_from_slice(new.get(done..).unwrap_or_default());
                }
            })
        } else {
            peer.input.extend_from_slice(new);
            self.kept(conn)
        };
        match outcome {
            Ok(()) => self.count(conn),
            Err(fault) => self.fault(conn, fault),
        }
    }

    /// Deals with what was kept.
    fn kept(&mut self, conn: Conn) -> Result<(), Fault> {
        let Some(peer) = self.peers.row(conn) else { return Ok(()) };
        let input = std::mem::take(&mut peer.input);
        let done = self.requests(conn, &input)?;
        if let Some(peer) = self.peers.row(conn) {
            peer.keep(input, done);
        }
        Ok(())
    }

    fn count(&mut self, conn: Conn) {
        while let Some(largest) = self.peers.count(conn, self.buffered) {
            self.fault(largest, Fault::Holds);
        }
    }

    /// Answers requests as long as their replies go out; how many bytes are dealt with.
    fn requests(&mut self, conn: Conn, input: &[u8]) -> Result<usize, Fault> {
        let mut done = 0;
        let Some(peer) = self.peers.row(conn) else { return Ok(input.len()) };
        let Some(from) = peer.from else { return Ok(input.len()) };
        let mut scanner = peer.scanner;
        loop {
            let rest = input.get(done..).unwrap_or_default();
            let Some(length) = scanner.scan(rest)? else { break };
            let request = rest.get(..length).unwrap_or_default();
            self.store.handle(conn, from, request, &mut self.peers)?;
            done += length;
            if self.peers.row(conn).is_none_or(|peer| peer.is_slow()) {
                break;
            }
        }
        if let Some(peer) = self.peers.row(conn) {
            peer.scanner = scanner;
        }
        Ok(done)
    }

    fn flush(&mut self, conn: Conn) {
        let Some(peer) = self.peers.row(conn) else { return };
        let was_slow = peer.is_slow();
        if peer.flush(&self.epoll, conn.0).is_err() {
            return self.close(conn);
        }
        let resumes = was_slow && !peer.is_slow() && !peer.input.is_empty();
        // Requests that waited behind the replies: nothing tells of them again.
        let outcome = if resumes { self.kept(conn) } else { Ok(()) };
        match outcome {
            Ok(()) => self.count(conn),
            Err(fault) => self.fault(conn, fault),
        }
    }

    fn fault(&mut self, conn: Conn, fault: Fault) {
        let from = self.peers.row(conn).and_then(|peer| peer.from);
        self.faults = self.faults.saturating_add(1);
        if !self.counted && self.count_at.is_none() {
            self.count_at = Some(clock::boot().after(self.count_after));
        }
        if let (Some(from), 1) = (from, self.faults) {
            (self.tell)(Told::Closed(from, fault));
        }
        self.close(conn);
    }

    fn close(&mut self, conn: Conn) {
        if self.peers.close(conn) {
            self.store.disconnect(conn);
        }
    }
}
