//! Address of this host for rdma_cm.
//!
//! iWARP devices are reached at addresses of a network alone. Ranks that meet at a Unix socket know none, so
//! the sender tells that of its device.

use core::ptr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address of a network interface.
struct Address {
    /// The number of the interface.
    interface: u32,
    address: IpAddr,
}

/// The address at which an RDMA device takes connections whose network interface has this number: IPv4 before
/// IPv6, of which link-local ones say too little.
pub(super) fn of_interface(interface: u32) -> io::Result<Option<IpAddr>> {
    let addresses = all()?.into_iter().filter(|one| one.interface == interface).map(|one| one.address);
    let is_link_local = |address: &IpAddr| matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
    Ok(addresses.filter(|address| !is_link_local(address)).min_by_key(IpAddr::is_ipv6))
}

/// Whether an address is one of this host, in this network namespace.
pub(super) fn is_of_this_host(address: IpAddr) -> io::Result<bool> {
    Ok(all()?.iter().any(|one| one.address == address))
}

/// All of them.
fn all() -> io::Result<Vec<Address>> {
    let mut first: *mut libc::ifaddrs = ptr::null_mut();
    // SAFETY: there is room for the address of a list.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: the entries of the list are good until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: as above, the name and the address of an entry.
        let (interface, address) = unsafe { (libc::if_nametoindex(entry.ifa_name), ip(entry.ifa_addr)) };
        found.extend(address.map(|address| Address { interface, address }));
    }
    // SAFETY: the list of above, which nobody has any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// An address of the system's, if it is one of IP.
///
/// # Safety
/// It is null, or an address that is as long as its family's are.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: as promised by the caller.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this form; it may lie anywhere.
            let four = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let six = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(six.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_address_of_its_loopback_interface() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let interface = all().unwrap().iter().find(|one| one.address == local).map(|one| one.interface);
        let interface = interface.expect("the loopback interface is up");
        assert_eq!(of_interface(interface).unwrap(), Some(local));
        assert!(is_of_this_host(local).unwrap());
        // Of addresses for documents (RFC 5737), which no host has.
        assert!(!is_of_this_host([192, 0, 2, 7].into()).unwrap());
        assert_eq!(of_interface(u32::MAX).unwrap(), None);
    }
}
