//! Socket addresses as the system's calls take them.

use std::net::SocketAddr;

/// An address in the form of the system's calls.
pub(super) fn raw_address(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all fields are numbers, for which 0 is a value.
    let mut storage: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let to: *mut libc::sockaddr_storage = &mut storage;
    match address {
        SocketAddr::V4(address) => {
            let value = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is long enough and aligned for every kind of address.
            unsafe { to.cast::<libc::sockaddr_in>().write(value) };
        }
        SocketAddr::V6(address) => {
            let value = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { to.cast::<libc::sockaddr_in6>().write(value) };
        }
    }
    storage
}
