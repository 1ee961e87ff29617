//! TCP between nodes: where a coordinator listens, and how it is dialled.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::time::Duration;

use futures_util::future::{join_all, select_ok};
use hmac::Mac;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::TcpStream;

use super::secret::Secret;
use crate::sys::port;

/// How many ports may be where the coordinator listens.
pub const CANDIDATES: usize = 8;
/// Connections that may wait to be taken: every node of a large run may come at once.
const BACKLOG: i32 = 4096;
/// Between the first try at one address and the first at the next.
const STAGGER: Duration = Duration::from_millis(250);

/// The ports at which the coordinator of this run may listen, in order: outside the range from which the kernel takes
/// ports of outgoing connections, and the same on every node that knows the secret.
#[must_use]
pub fn candidates(secret: &Secret) -> [u16; CANDIDATES] {
    among(secret, &port::range())
}

fn among(secret: &Secret, range: &Range<u16>) -> [u16; CANDIDATES] {
    let width = u64::from(range.end.saturating_sub(range.start)).max(1);
    let mut ports = [0; CANDIDATES];
    for (number, port) in (0_u8..).zip(ports.iter_mut()) {
        let digest = secret.mac(&[b"port", &[number]]).finalize().into_bytes();
        let mut word = [0; 8];
        word.copy_from_slice(&digest[..8]);
        let offset = u16::try_from(u64::from_le_bytes(word) % width).unwrap_or(0);
        *port = range.start.saturating_add(offset);
    }
    ports
}

/// Listens on the first candidate that is free, on any port where none is. Both families where the kernel has both.
///
/// # Errors
/// EMFILE and the like: no port at all can be listened on.
pub fn listen(secret: &Secret) -> io::Result<TcpListener> {
    let mut last = None;
    for port in candidates(secret).into_iter().chain([0]) {
        match listen_on(port, false) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

/// Listens on this very port, which people chose for it: a connection of an earlier run that still lingers on it is no reason
/// not to.
///
/// # Errors
/// EADDRINUSE: somebody listens there; EACCES.
pub fn listen_at(port: u16) -> io::Result<TcpListener> {
    listen_on(port, true)
}

/// Listens on a port of the loopback interface that nobody chose, and says where.
///
/// # Errors
/// There is no such interface, or no port is free.
pub fn listen_here() -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    let at = socket.local_addr()?;
    Ok((socket, at))
}

fn listen_on(port: u16, reuse: bool) -> io::Result<TcpListener> {
    let both = || -> io::Result<Socket> {
        let socket = Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_only_v6(false)?;
        socket.set_reuse_address(reuse)?;
        socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)).into())?;
        Ok(socket)
    };
    // Of the candidates without SO_REUSEADDR: a port that a rank of somebody holds for its store is not ours.
    let socket = match both() {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(reuse)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)).into())?;
            socket
        }
        other => other?,
    };
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Connects to the first address that answers, within `within`.
///
/// # Errors
/// None answered; the error of one of them.
pub async fn dial(addresses: &[SocketAddr], within: Duration) -> io::Result<TcpStream> {
    let mut wait = Duration::ZERO;
    let tries = addresses.iter().map(|address| {
        let (after, address) = (wait, *address);
        wait += STAGGER;
        Box::pin(async move {
            tokio::time::sleep(after).await;
            TcpStream::connect(address).await
        })
    });
    let tries: Vec<_> = tries.collect();
    if tries.is_empty() {
        return Err(io::ErrorKind::AddrNotAvailable.into());
    }
    match tokio::time::timeout(within, select_ok(tries)).await {
        Ok(answered) => answered.map(|(stream, _)| stream),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// What answers on these ports of a host within a time, in their order.
pub async fn answering(host: IpAddr, ports: &[u16], within: Duration) -> Vec<TcpStream> {
    let tries = ports.iter().map(|port| tokio::time::timeout(within, TcpStream::connect((host, *port))));
    join_all(tries).await.into_iter().filter_map(|answer| answer.ok()?.ok()).collect()
}

/// Makes a connection notice in about `silence` that the other end is gone without a word.
pub fn tune(stream: &TcpStream, silence: Duration) {
    let socket = SockRef::from(stream);
    let probe = (silence / 5).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(4);
    // A kernel that refuses one of them still has beats above it.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&keepalive);
    let _ = socket.set_tcp_user_timeout(Some(silence));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(what: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
    }

    #[test]
    fn every_node_computes_the_same_ports_within_the_range() {
        let secret = Secret::from_bytes([7; 32]);
        let ports = among(&secret, &(15_000..32_768));
        assert_eq!(ports, among(&secret, &(15_000..32_768)));
        assert!(ports.iter().all(|port| (15_000..32_768).contains(port)), "{ports:?}");
        assert_ne!(ports, among(&Secret::from_bytes([8; 32]), &(15_000..32_768)));
        assert_eq!(among(&secret, &(9..9)), [9; CANDIDATES]);
    }

    #[test]
    fn taken_candidates_are_passed_over_and_every_one_taken_is_no_end() {
        let secret = Secret::random().unwrap();
        let held: Vec<_> = (0..CANDIDATES + 2).map(|_| listen(&secret).unwrap()).collect();
        let mut ports: Vec<u16> = held.iter().map(|one| one.local_addr().unwrap().port()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), CANDIDATES + 2);
    }

    #[test]
    fn the_first_address_that_answers_is_taken() {
        run(async {
            let listener = listen(&Secret::random().unwrap()).unwrap();
            let port = listener.local_addr().unwrap().port();
            let refused = {
                let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                gone.local_addr().unwrap()
            };
            let alive = SocketAddr::from(([127, 0, 0, 1], port));
            let stream = dial(&[refused, alive], Duration::from_secs(5)).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), alive);
            tune(&stream, Duration::from_secs(9));
            assert!(dial(&[refused], Duration::from_secs(5)).await.is_err());
            assert!(dial(&[], Duration::from_secs(5)).await.is_err());
        });
    }
}
