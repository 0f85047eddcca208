//! Network interfaces: addresses for peers, and speed.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A speed for interfaces that say none, in Mbit/s: what NCCL takes for its own sockets.
const DEFAULT_SPEED: u32 = 10_000;

/// `NCCL_SOCKET_IFNAME`: beginnings of names with commas between them; with `=` whole names, with `^` those to leave out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterfaceFilter {
    names: Vec<String>,
    is_exact: bool,
    excludes: bool,
}

impl InterfaceFilter {
    /// From the variable's text; an empty one admits all.
    pub fn parse(text: &str) -> Self {
        let (excludes, text) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (is_exact, text) = text.strip_prefix('=').map_or((false, text), |rest| (true, rest));
        // A port may stand behind a name.
        let name = |part: &str| part.split(':').next().unwrap_or_default().trim().to_owned();
        let names = text.split(',').map(name).filter(|name| !name.is_empty()).collect();
        Self { names, is_exact, excludes }
    }

    fn admits(&self, name: &str) -> bool {
        let is_named =
            |named: &String| if self.is_exact { name == named } else { name.starts_with(named.as_str()) };
        self.names.is_empty() || self.names.iter().any(is_named) != self.excludes
    }

    /// Whether the user has named it, so that it counts though it would not otherwise.
    fn names(&self, name: &str) -> bool {
        !self.names.is_empty() && !self.excludes && self.admits(name)
    }
}

/// An address of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interface {
    name: String,
    address: IpAddr,
    is_loopback: bool,
}

/// Addresses at which peers may reach this process, those first that reach furthest, and the speed of the fastest
/// interface in Mbit/s.
///
/// # Errors
/// When the system does not list the interfaces.
pub fn addresses(filter: &InterfaceFilter) -> io::Result<(Vec<IpAddr>, u32)> {
    let admitted = |interface: &Interface| filter.admits(&interface.name);
    let mut interfaces: Vec<Interface> = all()?.into_iter().filter(admitted).collect();
    interfaces.sort_by_key(|interface| rank(interface, filter));
    let speeds = interfaces.iter().filter(|interface| !interface.is_loopback).filter_map(|interface| {
        let text = std::fs::read_to_string(format!("/sys/class/net/{}/speed", interface.name)).ok()?;
        // Those without a link say -1.
        text.trim().parse::<u32>().ok().filter(|speed| *speed > 0)
    });
    let speed = speeds.max().unwrap_or(DEFAULT_SPEED);
    Ok((interfaces.into_iter().map(|interface| interface.address).collect(), speed))
}

/// Bridges of this host reach its own containers, the loopback its own processes.
fn rank(interface: &Interface, filter: &InterfaceFilter) -> u8 {
    let is_bridge =
        ["docker", "br-", "virbr", "cni", "veth"].iter().any(|name| interface.name.starts_with(name));
    match interface {
        Interface { is_loopback: true, .. } => 4,
        Interface { name, .. } if is_bridge && !filter.names(name) => 3,
        Interface { address: IpAddr::V6(_), .. } => 2,
        Interface { .. } => 1,
    }
}

/// Every address of an interface that is up, but for those that need an interface's number to be used.
fn all() -> io::Result<Vec<Interface>> {
    let mut first: *mut libc::ifaddrs = core::ptr::null_mut();
    // SAFETY: there is room for the list's address.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let (mut found, mut next) = (Vec::new(), first);
    // SAFETY: entries of the list that the system has made, which is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        let is_up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        // SAFETY: an entry's name ends with a zero, and its address is of the family that it names.
        let (name, address) = unsafe { (CStr::from_ptr(entry.ifa_name), address(entry.ifa_addr)) };
        let (true, Some(address)) = (is_up, address) else { continue };
        let is_loopback = entry.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
        found.push(Interface { name: name.to_string_lossy().into_owned(), address, is_loopback });
    }
    // SAFETY: the list from above, of which nothing is used any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// The address of an entry; none where it is of another family, or one of a link alone.
///
/// # Safety
/// Null, or an address as long as its family's.
unsafe fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: what is not null is an address as long as its family's, by what the caller guarantees.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: the family says that the caller's address is a structure of this type.
            let address = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the caller's address is a structure of this type.
            let address = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let address = Ipv6Addr::from(address.sin6_addr.s6_addr);
            (!address.is_unicast_link_local()).then_some(address.into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_follows_nccls_rules() {
        for (text, name, admits) in [
            ("", "eth0", true),
            ("eth", "eth0", true),
            ("eth,ib", "ib0", true),
            ("eth", "docker0", false),
            ("=eth0", "eth01", false),
            ("=eth0:5000", "eth0", true),
            ("^docker,lo", "docker0", false),
            ("^docker,lo", "eth0", true),
            ("^=eth0", "eth01", true),
        ] {
            assert_eq!(InterfaceFilter::parse(text).admits(name), admits, "{text} {name}");
        }
    }

    #[test]
    fn loopback_comes_last() {
        let (addresses, speed) = addresses(&InterfaceFilter::default()).unwrap();
        let first_loopback = addresses.iter().position(IpAddr::is_loopback);
        assert!(first_loopback.is_none_or(|first| addresses[first..].iter().all(IpAddr::is_loopback)));
        assert!(speed > 0);
    }
}
