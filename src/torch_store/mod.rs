//! Ring 1: the rendezvous store of an attempt, served to the clients of torch's `TCPStore`. One thread, one store; rules
//! and replies are [`crate::domain::torch_store`]'s.
//!
//! [`listen`] takes the port, without taking anybody in; [`Listening::serve`] opens the store once it is known whose
//! ranks may come. The protocol has no authentication, so addresses are all that tells members from strangers.

mod peers;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::domain::torch_store::seen::{Place, Reach};
pub use crate::domain::torch_store::{Fault, Limits};
use crate::sys::addresses;
use crate::sys::epoll::Epoll;
use crate::sys::wake::Wake;

/// Connections that may wait to be taken, as far as the kernel lets them.
const BACKLOG: i32 = 65_535;
/// Events that are taken at once.
const EVENTS: usize = 512;
/// Connections of each rank, about: more than any program opens, and of any rank at least.
const PER_RANK: u64 = 16;
const LEAST_CONNECTIONS: u64 = 1_024;

/// In bytes, of all connections: with more on its way to and from them, the one that holds most of it is closed.
pub const MOST_BUFFERED: usize = 1 << 30;
/// Between a connection that was closed for what it sent and the word about how many were.
pub const COUNT_AFTER: Duration = Duration::from_secs(60);

/// A port that is listened on. Who connects is not taken in yet, and not refused.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
}

/// What a store is opened with.
pub struct Opening {
    /// Where the ranks of the attempt are.
    pub places: Vec<Place>,
    /// All ranks.
    pub world: u32,
    /// How much it keeps.
    pub limits: Limits,
    /// Connections that it takes at once; others wait at the port. See [`room`].
    pub most: usize,
    /// In bytes, of all connections together: what may be on its way to and from them. [`MOST_BUFFERED`], but for tests.
    pub buffered: usize,
    /// Between a connection that was closed for what it sent and the word about how many were. [`COUNT_AFTER`], but for
    /// tests.
    pub count_after: Duration,
    /// Is told what it sees, on its thread.
    pub tell: Box<dyn FnMut(Told) + Send>,
}

/// What a store has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Ranks came; a few times a second while they do.
    Reach(Reach),
    /// Somebody who is no member wanted in. Each address is told once, the first few of them.
    Stranger(IpAddr),
    /// A connection was closed for this; the first is told.
    Closed(IpAddr, Fault),
    /// So many were closed in all, some time after the first, or after the second where that came late. Told once.
    ClosedInAll(u64),
    /// No more connections can be taken for now: this is why. Told once.
    NoRoom(String),
}

/// A store that is served. Dropped, it is closed soon, and with it every connection; nobody waits for that.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    wake: Wake,
    closes: Arc<Closes>,
}

/// What its thread is told.
#[derive(Debug, Default)]
struct Closes {
    /// At once.
    now: AtomicBool,
    /// With the last connection.
    empty: AtomicBool,
}

/// Listens on this port of the address that other nodes use for this one; on all of them where the kernel does not know that
/// address (it belongs to a router in front of this machine).
///
/// # Errors
/// The port is taken, or EMFILE and the like.
pub fn listen(address: IpAddr, port: u16) -> io::Result<Listening> {
    let listener = match listen_on(address, port) {
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            let any =
                if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
            listen_on(any, port)?
        }
        other => other?,
    };
    Ok(Listening { listener })
}

fn listen_on(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let domain = if address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // The agent holds the port with a socket of its own.
    socket.set_reuse_address(true)?;
    socket.bind(&SocketAddr::new(address, port).into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

impl Listening {
    /// Where.
    ///
    /// # Errors
    /// None that is expected.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Opens an empty store and takes in who waits at the port: members, and this machine.
    ///
    /// # Errors
    /// EMFILE, EAGAIN: there are no more descriptors or threads.
    pub fn serve(self, opening: Opening) -> io::Result<Server> {
        let address = self.address()?;
        let (wake, closes) = (Wake::new()?, Arc::<Closes>::default());
        let members = members(&opening.places, address.ip());
        let epoll = Epoll::new(EVENTS)?;
        let serving =
            serve::Serving::new(self.listener, epoll, (wake.clone(), closes.clone()), members, opening)?;
        // Detached: what it holds takes a while to be given back, and who closes it starts an attempt.
        std::thread::Builder::new().name("store".into()).spawn(move || serving.run())?;
        Ok(Server { address, wake, closes })
    }
}

/// Connections that are more than any program with so many ranks opens.
fn enough(world: u32) -> u64 {
    LEAST_CONNECTIONS.max(u64::from(world).saturating_mul(PER_RANK))
}

/// Files that a process must be allowed to open for a store of so many ranks, and for `others` beside it.
#[must_use]
pub fn files(world: u32, others: u64) -> u64 {
    enough(world).saturating_add(others)
}

/// Connections that a store of so many ranks may take where the process may open `granted` files and needs `others` for
/// something else. Where even those are not granted it is a quarter: then all have too few.
#[must_use]
pub fn room(world: u32, granted: u64, others: u64) -> usize {
    let most = enough(world).min(granted.saturating_sub(others).max(granted / 4));
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Who may come.
fn members(places: &[Place], listens: IpAddr) -> BTreeSet<IpAddr> {
    let told = places.iter().flat_map(|place| place.addresses.iter().copied());
    let own =
        addresses::own().into_iter().chain([listens, Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    told.chain(own)
        .map(|address| address.to_canonical())
        .filter(|address| !address.is_unspecified())
        .collect()
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Is closed as soon as nobody is connected. Until then it serves as before, and who comes, too.
    pub fn retire(&self) {
        self.closes.empty.store(true, Ordering::Release);
        self.wake.wake();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closes.now.store(true, Ordering::Release);
        self.wake.wake();
    }
}
