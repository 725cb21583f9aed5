//! Socket addresses as UCX takes and gives them.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6, sockaddr_storage};

use crate::ucs_sock_addr_t;

/// An address in the memory layout of C.
#[derive(Clone, Copy)]
pub struct SockAddr {
    storage: sockaddr_storage,
    len: usize,
}

impl SockAddr {
    /// `address` in the layout of C.
    #[must_use]
    pub fn new(address: SocketAddr) -> Self {
        // SAFETY: zeroes are a valid value of this and the types below: integers and arrays of integers.
        let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
        let len = match address {
            SocketAddr::V4(address) => {
                // SAFETY: as above.
                let mut inet: sockaddr_in = unsafe { std::mem::zeroed() };
                inet.sin_family = AF_INET as _;
                inet.sin_port = address.port().to_be();
                inet.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                // SAFETY: a `sockaddr_storage` is as large and aligned as any socket address.
                unsafe { (&raw mut storage).cast::<sockaddr_in>().write(inet) };
                size_of::<sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                // SAFETY: as above.
                let mut inet: sockaddr_in6 = unsafe { std::mem::zeroed() };
                inet.sin6_family = AF_INET6 as _;
                inet.sin6_port = address.port().to_be();
                inet.sin6_addr.s6_addr = address.ip().octets();
                inet.sin6_scope_id = address.scope_id();
                // SAFETY: a `sockaddr_storage` is as large and aligned as any socket address.
                unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(inet) };
                size_of::<sockaddr_in6>()
            }
        };
        Self { storage, len }
    }

    /// As UCX's parameters have it: valid as long as this value stays where it is.
    #[must_use]
    pub fn as_ucs(&self) -> ucs_sock_addr_t {
        ucs_sock_addr_t {
            addr: (&raw const self.storage).cast(),
            addrlen: self.len as u32,
        }
    }
}

/// The address that UCX wrote; `None` for families other than IPv4 and IPv6.
#[must_use]
pub fn socket_addr(storage: &sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        AF_INET => {
            // SAFETY: the family says that it is one, and the storage is as large and aligned.
            let inet = unsafe { &*(&raw const *storage).cast::<sockaddr_in>() };
            let ip = Ipv4Addr::from(inet.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(inet.sin_port)))
        }
        AF_INET6 => {
            // SAFETY: as above.
            let inet = unsafe { &*(&raw const *storage).cast::<sockaddr_in6>() };
            let ip = Ipv6Addr::from(inet.sin6_addr.s6_addr);
            let port = u16::from_be(inet.sin6_port);
            Some(SocketAddrV6::new(ip, port, 0, inet.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["127.0.0.1:4711", "[::1]:1", "[fe80::1%7]:65535", "192.0.2.1:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let c = SockAddr::new(address);
            assert_eq!(socket_addr(&c.storage), Some(address));
            assert_eq!(c.as_ucs().addrlen, if address.is_ipv4() { 16 } else { 28 });
        }
        // SAFETY: zeroes are a valid value.
        let unspecified: sockaddr_storage = unsafe { std::mem::zeroed() };
        assert_eq!(socket_addr(&unspecified), None);
    }
}
