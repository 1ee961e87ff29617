//! Holding a TCP port for somebody who will listen on it later.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, SockaddrIn6, bind, getsockname, listen,
    setsockopt, socket, sockopt,
};

/// Ports below are left to services.
const LOWEST: u16 = 15_000;
/// So many are tried before the kernel is asked for any.
const TRIES: u64 = 64;

/// A port that is bound, not listened on: the kernel gives it to nobody who asks for any port, nobody else binds it by
/// accident, and whoever binds it with SO_REUSEADDR (as every server does) can listen on it meanwhile. Released
/// when dropped.
#[derive(Debug)]
pub struct PortHold {
    port: u16,
    socket: OwnedFd,
}

impl PortHold {
    /// Holds a free port that is not in `avoid`, outside the range from which the kernel takes ports of outgoing
    /// connections (a connection of anybody could else be on it when the server comes). The same seed tries
    /// the same ports in the same order.
    ///
    /// # Errors
    /// EMFILE, or EADDRINUSE when nothing is free.
    pub fn new(avoid: &[u16], seed: u64) -> io::Result<Self> {
        let range = range();
        let width = u64::from(range.end - range.start).max(1);
        let mut state = seed;
        for _ in 0..TRIES {
            state = scramble(state);
            let offset = u16::try_from(state % width).unwrap_or(0);
            let port = range.start.saturating_add(offset);
            if avoid.contains(&port) {
                continue;
            }
            match hold(port) {
                Ok(held) => return Ok(held),
                Err(error) if in_use(&error) => {}
                Err(error) => return Err(error),
            }
        }
        // Better one that an outgoing connection could have taken than none.
        let mut refused = Vec::new();
        for _ in 0..TRIES {
            let held = hold(0)?;
            if !avoid.contains(&held.port) {
                return Ok(held);
            }
            refused.push(held);
        }
        Err(io::Error::from_raw_os_error(libc::EADDRINUSE))
    }

    /// Nobody listens there, which a server may in spite of the hold. Says so for this moment only.
    #[must_use]
    pub fn is_free(&self) -> bool {
        listen(&self.socket, Backlog::MAXCONN).is_ok()
    }

    /// Its number.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The ports of this machine that a server may be given: outside the range from which the kernel takes ports of
/// outgoing connections.
#[must_use]
pub fn range() -> Range<u16> {
    candidates(&std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default())
}

/// Below the kernel's range; above it when it starts too low; anywhere when it takes everything.
fn candidates(local_range: &str) -> Range<u16> {
    let mut numbers = local_range.split_ascii_whitespace().filter_map(|text| text.parse::<u16>().ok());
    let (low, high) = (numbers.next().unwrap_or(32_768), numbers.next().unwrap_or(60_999));
    const ENOUGH: u16 = 1_000;
    if low.saturating_sub(LOWEST) >= ENOUGH {
        LOWEST..low
    } else if u16::MAX - high.max(LOWEST) >= ENOUGH {
        high.max(LOWEST) + 1..u16::MAX
    } else {
        LOWEST..u16::MAX
    }
}

fn hold(port: u16) -> io::Result<PortHold> {
    match hold_v6(port) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)) => {
            hold_v4(port)
        }
        other => other,
    }
}

// The bind itself is exclusive: two who hold would else share a port. SO_REUSEADDR comes after it, for the server.
fn hold_v6(port: u16) -> io::Result<PortHold> {
    let socket = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    let any = std::net::SocketAddrV6::new(std::net::Ipv6Addr::UNSPECIFIED, port, 0, 0);
    bind(socket.as_raw_fd(), &SockaddrIn6::from(any))?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    let port = getsockname::<SockaddrIn6>(socket.as_raw_fd())?.port();
    Ok(PortHold { port, socket })
}

fn hold_v4(port: u16) -> io::Result<PortHold> {
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let any = std::net::SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, port);
    bind(socket.as_raw_fd(), &SockaddrIn::from(any))?;
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    let port = getsockname::<SockaddrIn>(socket.as_raw_fd())?.port();
    Ok(PortHold { port, socket })
}

fn in_use(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EADDRINUSE | libc::EACCES))
}

/// SplitMix64: spreads a seed; no secret hangs on it.
fn scramble(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn ports_lie_outside_the_kernels_range() {
        assert_eq!(candidates("32768\t60999\n"), 15_000..32_768);
        assert_eq!(candidates("1024 60999"), 61_000..u16::MAX);
        assert_eq!(candidates("1024 65535"), 15_000..u16::MAX);
        assert_eq!(candidates("15100 20000"), 20_001..u16::MAX);
        assert_eq!(candidates(""), 15_000..32_768);
    }

    #[test]
    fn a_held_port_is_nobodys_but_can_be_served() {
        let seed = super::super::random::u64();
        let held = PortHold::new(&[], seed).unwrap();
        assert_eq!(hold(held.port()).unwrap_err().raw_os_error(), Some(libc::EADDRINUSE));
        let other = PortHold::new(&[], seed).unwrap();
        assert_ne!(other.port(), held.port());
        // std binds with SO_REUSEADDR, as torch's store does; both families, while the hold is there.
        let v4 = TcpListener::bind(("0.0.0.0", held.port())).unwrap();
        drop(v4);
        let v6 = TcpListener::bind(("::", held.port()));
        if let Ok(listener) = &v6 {
            let client = std::net::TcpStream::connect(("127.0.0.1", held.port())).unwrap();
            let (_peer, from) = listener.accept().unwrap();
            assert_eq!(from.port(), client.local_addr().unwrap().port());
        }
    }

    #[test]
    fn a_server_on_a_held_port_is_seen() {
        for host in ["0.0.0.0", "127.0.0.1"] {
            let held = PortHold::new(&[], super::super::random::u64()).unwrap();
            let server = TcpListener::bind((host, held.port())).unwrap();
            assert!(!held.is_free(), "{host}");
            drop(server);
            assert!(held.is_free(), "{host}");
        }
    }

    #[test]
    fn ports_to_avoid_are_avoided_and_drop_releases() {
        let seed = super::super::random::u64();
        let first = PortHold::new(&[], seed).unwrap().port();
        let second = PortHold::new(&[first], seed).unwrap();
        assert_ne!(second.port(), first);
        assert_eq!(hold(first).unwrap().port(), first);
    }
}
