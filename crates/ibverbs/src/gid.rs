//! GID selection: which of a port's GIDs names this end of a path.

use core::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What a port is plugged into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE or iWARP.
    Ethernet,
    /// The device does not say.
    Unspecified,
}

/// The 16 bytes that name an end of a path: on RoCE an IP address, on InfiniBand subnet and port.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gid(pub [u8; 16]);

impl Gid {
    /// The IP address that it is on RoCE: IPv4 addresses are mapped into IPv6.
    pub fn address(&self) -> IpAddr {
        let address = Ipv6Addr::from(self.0);
        address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
    }

    /// The IPv4 address that it stands for, if it does.
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        Ipv6Addr::from(self.0).to_ipv4_mapped()
    }

    /// Whether all bytes are 0: an entry of the table that is not in use.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; 16]
    }

    fn is_link_local(&self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&Ipv6Addr::from(self.0), f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What packets with a GID look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand, and iWARP, which uses GIDs only as names.
    InfiniBand,
    /// RoCE version 1: Ethernet frames, which no router forwards.
    RoceV1,
    /// RoCE version 2: UDP packets.
    RoceV2,
    /// Neither the library nor the kernel says.
    Unknown,
}

impl fmt::Display for GidKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
            Self::Unknown => "unknown kind",
        })
    }
}

/// An entry of a port's table of GIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its index in the table.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// What it is for.
    pub kind: GidKind,
    /// The number of the network interface that it belongs to; 0 where there is none or it is not known.
    pub interface: u32,
}

/// The entry to use when the user names none: on Ethernet RoCE v2 before v1, because it is routed, and within
/// that the address `local` if it is there, then IPv4, then addresses that are more than link-local;
/// elsewhere the first one.
pub fn choose(layer: LinkLayer, entries: &[GidEntry], local: Option<IpAddr>) -> Option<GidEntry> {
    let usable = entries.iter().filter(|entry| !entry.gid.is_empty());
    if layer != LinkLayer::Ethernet {
        return usable.min_by_key(|entry| entry.index).copied();
    }
    let rank = |entry: &&GidEntry| {
        let version = match entry.kind {
            GidKind::RoceV2 => 0,
            GidKind::Unknown | GidKind::InfiniBand => 1,
            GidKind::RoceV1 => 2,
        };
        let is_requested = local == Some(entry.gid.address());
        let scope = match entry.gid.ipv4() {
            Some(_) => 0,
            None if !entry.gid.is_link_local() => 1,
            None => 2,
        };
        (version, !is_requested, scope, entry.index)
    };
    usable.min_by_key(rank).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, address: &str, kind: GidKind) -> GidEntry {
        let address: Ipv6Addr = match address.parse::<IpAddr>().unwrap() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        GidEntry { index, gid: Gid(address.octets()), kind, interface: 2 }
    }

    #[test]
    fn roce_v2_over_ipv4_is_taken_before_all_else() {
        let table = [
            entry(0, "fe80::1", GidKind::RoceV1),
            entry(1, "fe80::1", GidKind::RoceV2),
            entry(2, "10.1.2.3", GidKind::RoceV1),
            entry(3, "2001:db8::7", GidKind::RoceV2),
            entry(4, "10.1.2.3", GidKind::RoceV2),
        ];
        let chosen = |entries: &[GidEntry]| choose(LinkLayer::Ethernet, entries, None).map(|one| one.index);
        assert_eq!(chosen(&table), Some(4));
        assert_eq!(chosen(&table[..4]), Some(3), "a routed address before link-local ones");
        assert_eq!(chosen(&table[..3]), Some(1), "version 2 before version 1");
        assert_eq!(chosen(&[]), None);
    }

    #[test]
    fn the_address_of_the_connection_beside_it_is_preferred() {
        let table = [entry(1, "10.1.2.3", GidKind::RoceV2), entry(5, "10.9.2.3", GidKind::RoceV2)];
        let local = Some("10.9.2.3".parse().unwrap());
        assert_eq!(choose(LinkLayer::Ethernet, &table, local).unwrap().index, 5);
    }

    #[test]
    fn infiniband_and_iwarp_have_one_name_a_port() {
        let table = [entry(0, "fe80::2:c903:0:1", GidKind::InfiniBand), entry(1, "::", GidKind::InfiniBand)];
        assert_eq!(choose(LinkLayer::InfiniBand, &table, None).unwrap().index, 0);
        assert_eq!(
            choose(LinkLayer::Ethernet, &[entry(3, "::", GidKind::RoceV2)], None),
            None,
            "an empty entry"
        );
    }
}
