//! The addresses of this machine, without a name lookup.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

/// Addresses under which other machines could reach this one: of interfaces that are up, IPv4 first; no loopback, no
/// link-local ones. Empty where there is no network, or where the kernel does not say.
#[must_use]
pub fn own() -> Vec<IpAddr> {
    let Ok(all) = getifaddrs() else { return Vec::new() };
    let mut found: Vec<IpAddr> = all
        .filter(|one| {
            one.flags.contains(InterfaceFlags::IFF_UP) && !one.flags.contains(InterfaceFlags::IFF_LOOPBACK)
        })
        .filter_map(|one| {
            let address = one.address?;
            let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
        })
        .filter(is_reachable)
        .collect();
    found.sort_by_key(IpAddr::is_ipv6);
    found.dedup();
    found
}

/// Neither this machine alone nor this cable alone.
fn is_reachable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_link_local() && !v4.is_loopback() && !v4.is_unspecified(),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0) != 0xfe80 && !v6.is_loopback() && !v6.is_unspecified(),
    }
}

/// The address of this machine from which packets to `peer` go out; `None` without a route. Sends nothing.
#[must_use]
pub fn towards(peer: IpAddr) -> Option<IpAddr> {
    let any: SocketAddr = match peer {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect((peer, 9)).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_oneself_starts_at_oneself() {
        let loopback = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(towards(loopback), Some(loopback));
        for address in own() {
            assert_eq!(towards(address), Some(address));
        }
    }

    #[test]
    fn addresses_that_lead_nowhere_are_none() {
        for bad in ["127.0.0.1", "169.254.3.4", "fe80::1", "::1", "0.0.0.0", "::"] {
            assert!(!is_reachable(&bad.parse().unwrap()), "{bad}");
        }
        assert!(is_reachable(&"10.1.2.3".parse().unwrap()));
    }
}
