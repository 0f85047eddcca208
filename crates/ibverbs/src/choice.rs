//! Default port: selection when the user names none.

use std::net::IpAddr;

use crate::description::{Description, Port, PortState};
use crate::device::Transport;
use crate::gid::{self, GidEntry};

/// A port of a device, and the GID that names it.
#[derive(Clone, Debug)]
pub struct Chosen<'a> {
    /// The device.
    pub device: &'a Description,
    /// Its port.
    pub port: &'a Port,
    /// The GID.
    pub gid: GidEntry,
}

/// The port to use when the user names none: one that is active, first one that has the address `local` of
/// the connection beside it, then the fastest one. `name` restricts the choice to a device.
pub fn choose<'a>(
    devices: &'a [Description],
    name: Option<&str>,
    local: Option<IpAddr>,
) -> Option<Chosen<'a>> {
    let candidates = devices
        .iter()
        .filter(|device| name.is_none_or(|name| device.name == name) && device.transport != Transport::Other)
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
        .filter(|(_, port)| port.state == PortState::Active)
        .filter_map(|(device, port)| {
            let gid = gid::choose(port.link_layer, &port.gids, local)?;
            Some(Chosen { device, port, gid })
        });
    // The first of equals, so that the choice does not change from start to start.
    candidates.min_by_key(|chosen| {
        let is_here = local.is_some() && chosen.port.gids.iter().any(|one| Some(one.gid.address()) == local);
        (!is_here, core::cmp::Reverse(chosen.port.rate))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::Limits;
    use crate::gid::{Gid, GidKind, LinkLayer};
    use crate::queue_pair::PathMtu;

    fn device(name: &str, state: PortState, rate: u32, address: &str) -> Description {
        let address: std::net::Ipv4Addr = address.parse().unwrap();
        let gid = Gid(address.to_ipv6_mapped().octets());
        Description {
            name: name.to_owned(),
            transport: Transport::InfiniBand,
            firmware: String::new(),
            vendor: 0,
            limits: Limits {
                queue_pairs: 1,
                work_requests: 1,
                completions: 1,
                memory_regions: 1,
                memory_region_bytes: 1,
                reads: 1,
                answered_reads: 1,
            },
            ports: vec![Port {
                number: 1,
                state,
                link_layer: LinkLayer::Ethernet,
                max_mtu: PathMtu::Mtu4096,
                mtu: PathMtu::Mtu1024,
                rate,
                lid: 0,
                max_message: 1 << 30,
                gids: vec![GidEntry { index: 1, gid, kind: GidKind::RoceV2, interface: 2 }],
            }],
            sysfs: String::new(),
        }
    }

    #[test]
    fn the_port_with_the_connections_address_is_taken_then_the_fastest() {
        let devices = [
            device("a", PortState::Active, 10_000, "10.0.0.1"),
            device("b", PortState::Active, 100_000, "10.0.1.1"),
            device("c", PortState::Down, 400_000, "10.0.2.1"),
        ];
        let chosen = |name, local: Option<&str>| {
            let local = local.map(|address| address.parse().unwrap());
            choose(&devices, name, local).map(|chosen| chosen.device.name.clone())
        };
        assert_eq!(chosen(None, Some("10.0.0.1")).as_deref(), Some("a"));
        assert_eq!(chosen(None, Some("192.168.0.1")).as_deref(), Some("b"));
        assert_eq!(chosen(Some("a"), None).as_deref(), Some("a"));
        assert_eq!(chosen(Some("c"), None), None, "its port is down");
    }
}
