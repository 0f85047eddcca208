//! PCI topology: the RDMA devices that are nearest to a GPU, by the bridges that the paths of both have in
//! common on the PCI bus, in the words of `nvidia-smi topo`.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use causeway_ibverbs::{Chosen, Description, LinkLayer, PortState, choose};

/// What lies between a card and a GPU, the nearest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PciDistance {
    /// At most one PCIe switch (PIX).
    OneSwitch,
    /// Several PCIe switches, and no host bridge (PXB).
    Switches,
    /// A host bridge (PHB).
    HostBridge,
    /// Several host bridges of one NUMA node (NODE).
    Node,
    /// The link between NUMA nodes, or nobody knows what (SYS).
    System,
}

/// Where a device is: its bridges from the host bridge on, itself at the end, and its NUMA node.
#[derive(Debug, Default)]
struct Location {
    path: Vec<String>,
    node: Option<u32>,
}

impl Location {
    /// Of the device to whose folder a path below the root leads.
    fn read(folder: &Path) -> Self {
        let real = fs::canonicalize(folder).unwrap_or_default();
        let parts = real.iter().filter_map(|part| part.to_str().map(str::to_owned));
        // Without NUMA the kernel writes -1.
        let node = fs::read_to_string(folder.join("numa_node")).ok();
        Self {
            path: parts.skip_while(|part| !part.starts_with("pci")).collect(),
            node: node.and_then(|node| node.trim().parse().ok()),
        }
    }

    fn distance(&self, other: &Self) -> PciDistance {
        let common = self.path.iter().zip(&other.path).take_while(|(one, two)| one == two).count();
        // Below what is common: bridges, and the device itself at the end.
        let depth = |location: &Self| location.path.len().saturating_sub(common + 1);
        match common {
            0 if self.node.is_some() && self.node == other.node => PciDistance::Node,
            0 => PciDistance::System,
            1 => PciDistance::HostBridge,
            // A switch has one bridge for each of its ports.
            _ if depth(self) <= 1 && depth(other) <= 1 => PciDistance::OneSwitch,
            _ => PciDistance::Switches,
        }
    }
}

/// The port to use for a GPU at a PCI address: of those that can be used the one that is nearest, then the
/// fastest. `name` restricts the choice to a device. Over a network, from the address `local`, the peer must
/// be reached: then the card with that address is used, and another one only if it is in the same InfiniBand
/// subnet.
pub(super) fn choose_nearest<'a>(
    root: &Path,
    devices: &'a [Description],
    name: Option<&str>,
    local: Option<IpAddr>,
    gpu: Option<&str>,
) -> Option<Chosen<'a>> {
    let by_address = choose(devices, name, local);
    let (Some(gpu), Some(first)) = (gpu, &by_address) else { return by_address };
    let is_reachable =
        |device: &Description| local.is_none() || subnet(device).is_some_and(|own| is_of(first, own));
    let gpu = Location::read(&root.join("sys/bus/pci/devices").join(gpu));
    let distance = |device: &Description| {
        let folder: PathBuf = device.sysfs.trim_start_matches('/').into();
        Location::read(&root.join(folder).join("device")).distance(&gpu)
    };
    let mut matches: Vec<_> = devices
        .iter()
        .filter(|device| is_reachable(device))
        .map(|device| (distance(device), device))
        .collect();
    matches.sort_by_key(|(distance, _)| *distance);
    let groups = matches.chunk_by(|(one, _), (two, _)| one == two);
    let fastest = |group: &[(PciDistance, &'a Description)]| {
        let usable =
            group.iter().filter_map(|(_, device)| choose(core::slice::from_ref(*device), name, local));
        // The first of equals, so that the choice does not change from start to start.
        usable.min_by_key(|chosen| core::cmp::Reverse(chosen.port.rate))
    };
    groups.into_iter().find_map(fastest).or(by_address)
}

/// The InfiniBand subnet of a device's active port.
fn subnet(device: &Description) -> Option<[u8; 8]> {
    let mut active = device.ports.iter().filter(|port| port.state == PortState::Active);
    let port = active.find(|port| port.link_layer == LinkLayer::InfiniBand)?;
    port.gids.first()?.gid.0.first_chunk().copied()
}

fn is_of(chosen: &Chosen<'_>, subnet: [u8; 8]) -> bool {
    chosen.port.link_layer == LinkLayer::InfiniBand && chosen.gid.gid.0.first_chunk() == Some(&subnet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_ibverbs::{Gid, GidEntry, GidKind, Limits, PathMtu, Port, Transport};

    /// Of two sockets with two switches each, and a GPU and a card below each switch.
    const SWITCHES: [&str; 4] = [
        "pci0000:10/0000:10:01.0/0000:11:00.0",
        "pci0000:20/0000:20:01.0/0000:21:00.0",
        "pci0000:90/0000:90:01.0/0000:91:00.0",
        "pci0000:a0/0000:a0:01.0/0000:a1:00.0",
    ];

    fn gpu(switch: usize) -> String {
        format!("0000:{}3:00.0", ["1", "2", "9", "a"][switch])
    }

    /// The folders of the machine's devices, as the kernel shows them.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let link = |target: &Path, at: &str| {
            let at = root.path().join(at);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, at).unwrap();
        };
        for (number, switch) in SWITCHES.iter().enumerate() {
            let bus = &switch[switch.len() - 7..switch.len() - 6];
            for (port, device, is_card) in [("00", "2", true), ("04", "3", false)] {
                let address = format!("0000:{bus}{device}:00.0");
                let bridge = format!("{}:{port}.0", &switch[switch.len() - 12..switch.len() - 5]);
                let folder = root.path().join("sys/devices").join(switch).join(bridge).join(&address);
                fs::create_dir_all(&folder).unwrap();
                fs::write(folder.join("numa_node"), format!("{}\n", number / 2)).unwrap();
                link(&folder, &format!("sys/bus/pci/devices/{address}"));
                if is_card {
                    link(&folder, &format!("sys/class/infiniband/mlx5_{number}/device"));
                }
            }
        }
        root
    }

    fn nic(number: usize, state: PortState, rate: u32, layer: LinkLayer) -> Description {
        let last = u8::try_from(number).unwrap();
        // Ethernet: each in a network of its own. InfiniBand: one subnet.
        let gid = match layer {
            LinkLayer::Ethernet => Gid(std::net::Ipv4Addr::new(10, 0, last, 1).to_ipv6_mapped().octets()),
            _ => Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]),
        };
        let kind = if layer == LinkLayer::Ethernet { GidKind::RoceV2 } else { GidKind::InfiniBand };
        let limits = Limits {
            queue_pairs: 1,
            work_requests: 1,
            completions: 1,
            memory_regions: 1,
            memory_region_bytes: 1,
            reads: 1,
            answered_reads: 1,
        };
        let port = Port {
            number: 1,
            state,
            link_layer: layer,
            max_mtu: PathMtu::Mtu4096,
            mtu: PathMtu::Mtu1024,
            rate,
            lid: 1,
            max_message: 1 << 30,
            gids: vec![GidEntry { index: 0, gid, kind, interface: 2 }],
        };
        Description {
            name: format!("mlx5_{number}"),
            transport: Transport::InfiniBand,
            firmware: String::new(),
            vendor: 0x15b3,
            limits,
            ports: vec![port],
            sysfs: format!("/sys/class/infiniband/mlx5_{number}"),
        }
    }

    fn cards(layer: LinkLayer) -> Vec<Description> {
        (0..4).map(|number| nic(number, PortState::Active, 200_000, layer)).collect()
    }

    #[test]
    fn each_gpu_has_the_card_of_its_switch_then_of_its_socket_then_the_fastest() {
        let machine = machine();
        let chosen = |cards: &[Description], switch: usize| {
            let chosen = choose_nearest(machine.path(), cards, None, None, Some(&gpu(switch)));
            chosen.map(|chosen| chosen.device.name.clone())
        };
        let all = cards(LinkLayer::Ethernet);
        for switch in 0..4 {
            assert_eq!(chosen(&all, switch), Some(format!("mlx5_{switch}")));
            // A faster one is no nearer.
            let mut faster = all.clone();
            faster[(switch + 1) % 4].ports[0].rate = 800_000;
            assert_eq!(chosen(&faster, switch), Some(format!("mlx5_{switch}")));
            // The other one of the socket, where its own is down.
            let mut down = faster;
            down[switch].ports[0].state = PortState::Down;
            assert_eq!(chosen(&down, switch), Some(format!("mlx5_{}", switch ^ 1)));
            // Of the other socket the fastest.
            down[switch ^ 1].ports[0].state = PortState::Down;
            let mut far: Vec<_> = (0..4).filter(|number| number / 2 != switch / 2).collect();
            down[far[0]].ports[0].rate = 100_000;
            down[far[1]].ports[0].rate = 400_000;
            assert_eq!(chosen(&down, switch), Some(format!("mlx5_{}", far.remove(1))));
        }
        // Of a GPU that is not on this host, or is not known: the first of equals.
        assert_eq!(choose_nearest(machine.path(), &all, None, None, None).unwrap().device.name, "mlx5_0");
        let elsewhere = choose_nearest(machine.path(), &all, None, None, Some("0000:ff:00.0"));
        assert_eq!(elsewhere.unwrap().device.name, "mlx5_0");
        let named = choose_nearest(machine.path(), &all, Some("mlx5_2"), None, Some(&gpu(0)));
        assert_eq!(named.unwrap().device.name, "mlx5_2", "the user has said so");
    }

    #[test]
    fn over_a_network_the_peer_must_be_reached() {
        let machine = machine();
        let chosen = |cards: &[Description], local: &str| {
            let local = Some(local.parse().unwrap());
            choose_nearest(machine.path(), cards, None, local, Some(&gpu(3))).unwrap().device.name.clone()
        };
        // The networks of Ethernet cards may not lead to each other.
        assert_eq!(chosen(&cards(LinkLayer::Ethernet), "10.0.1.1"), "mlx5_1");
        // All of an InfiniBand subnet do.
        assert_eq!(chosen(&cards(LinkLayer::InfiniBand), "10.0.1.1"), "mlx5_3");
        let mut other = cards(LinkLayer::InfiniBand);
        other[3].ports[0].gids[0].gid.0[7] = 9;
        assert_eq!(chosen(&other, "10.0.1.1"), "mlx5_2");
    }

    #[test]
    fn distances_are_those_of_nvidia_smi() {
        let at = |path: &str, node| Location {
            path: path.split('/').map(str::to_owned).collect(),
            node: Some(node),
        };
        let nic = at("pci0000:3a/3a:00.0/3b:00.0/3c:00.0/3d:00.0", 0);
        let to = |path, node| nic.distance(&at(path, node));
        assert_eq!(to("pci0000:3a/3a:00.0/3b:00.0/3c:04.0/3e:00.0", 0), PciDistance::OneSwitch);
        assert_eq!(
            to("pci0000:3a/3a:00.0/3b:00.0/3c:04.0/3e:00.0/3f:00.0/40:00.0", 0),
            PciDistance::Switches
        );
        assert_eq!(to("pci0000:3a/3a:02.0/41:00.0", 0), PciDistance::HostBridge);
        assert_eq!(to("pci0000:5d/5d:00.0/5e:00.0", 0), PciDistance::Node);
        assert_eq!(to("pci0000:85/85:00.0/86:00.0", 1), PciDistance::System);
        assert_eq!(Location::default().distance(&Location::default()), PciDistance::System);
    }
}
