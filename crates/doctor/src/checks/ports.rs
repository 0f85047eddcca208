//! The ports of RDMA devices: whether they are up, and what they can carry.

use super::{About, Finding};
use crate::facts::{Facts, Port, RdmaDevice};

/// The bytes that RoCE puts around each packet's content: addresses, transport headers, check sum. As the
/// kernel's own `iboe_get_mtu` counts them.
const ROCE_OVERHEAD: u32 = 96;

/// Path MTUs, the largest first.
const MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

pub fn check(facts: &Facts) -> Vec<Finding> {
    let ports =
        || facts.rdma.devices.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    let any_active = ports().any(|(_, port)| port.is_active());
    ports()
        .flat_map(|(device, port)| check_port(facts, device, port, any_active))
        .chain(rdma_devices(facts))
        .collect()
}

impl Port {
    /// The port carries data.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }

    /// The port is one of Ethernet.
    pub fn is_ethernet(&self) -> bool {
        self.link_layer == "Ethernet"
    }
}

/// The path MTU of a port: what libibverbs says, else what follows from its interface.
pub fn path_mtu(facts: &Facts, device: &RdmaDevice, port: &Port) -> Option<u32> {
    let reported = facts.live.verbs.mtu(&device.name, port.number);
    reported.map(|mtu| mtu.active).or_else(|| mtu_of_interface(device, port))
}

/// The path MTU as far as it follows from the interface: Ethernet packets must hold it with its headers, an
/// InfiniBand interface in datagram mode is four bytes shorter.
fn mtu_of_interface(device: &RdmaDevice, port: &Port) -> Option<u32> {
    // A device has one interface a port, in the ports' order; most have one of either.
    let interface =
        device.interfaces.get(port.number.checked_sub(1)? as usize).or(device.interfaces.first())?;
    let capacity = match port.is_ethernet() {
        true => interface.mtu.checked_sub(ROCE_OVERHEAD)?,
        // In connected mode the interface tells nothing of the link.
        false if interface.mtu <= 4092 => interface.mtu + 4,
        false => return None,
    };
    MTUS.into_iter().find(|mtu| *mtu <= capacity)
}

fn check_port(facts: &Facts, device: &RdmaDevice, port: &Port, any_active: bool) -> Vec<Finding> {
    let name = format!("{} port {}", device.name, port.number);
    if !port.is_active() {
        return vec![inactive(device, port, &name, any_active)];
    }
    let mtu = path_mtu(facts, device, port);
    let mtu_text = mtu.map(|mtu| format!(", path MTU {mtu}")).unwrap_or_default();
    let mut findings = vec![Finding::good(
        About::Rdma,
        format!("{name} is active: {} at {}{mtu_text}.", port.link_layer, port.rate),
    )];
    let first = device.interfaces.first().map_or("its interface", |interface| interface.name.as_str());
    if port.is_ethernet() {
        if !port.gids.iter().any(|gid| gid.kind == "RoCE v2") && !device.name.starts_with("siw") {
            findings.push(Finding::problem(
                About::Rdma,
                format!("{name} has no address of RoCE v2."),
                format!("Give {first} an IP address: `ip addr add ADDRESS/BITS dev {first}`."),
            ));
        }
        if let Some(mtu) = mtu.filter(|mtu| *mtu < 4096) {
            findings.push(
                Finding::note(
                    About::Rdma,
                    format!("{name} cuts messages into packets of {mtu} bytes, because {first} has the MTU of small Ethernet frames."),
                )
                .advise(format!("`ip link set {first} mtu 9000`, if switch and peers can do so too.")),
            );
        }
    } else if let Some(reported) =
        facts.live.verbs.mtu(&device.name, port.number).filter(|reported| reported.active < reported.max)
    {
        findings.push(
            Finding::note(
                About::Rdma,
                format!("{name} cuts messages into packets of {} bytes, though it could do {}.", reported.active, reported.max),
            )
            .advise("Set the MTU of the subnet manager's partition (`mtu=5` in opensm's partitions.conf is 4096)."),
        );
    }
    if !port.is_ethernet() && port.lid == 0 {
        findings.push(Finding::problem(
            About::Rdma,
            format!("{name} is active but has no local identifier."),
            "Look at the fabric's subnet manager (`sminfo`): it gives them out.",
        ));
    }
    findings
}

fn inactive(device: &RdmaDevice, port: &Port, name: &str, any_active: bool) -> Finding {
    let state =
        format!("{name} does not work: its state is {}, its link's {}", port.state, port.physical_state);
    let (text, advice) = match (port.physical_state.as_str(), port.is_ethernet()) {
        ("LinkUp", false) => (
            format!("{state}, so the cable is fine and no subnet manager has set the port up."),
            "Start one on some node of the fabric (`systemctl start opensm`), or switch on the switch's own."
                .to_owned(),
        ),
        ("Disabled", _) => (
            format!("{state}."),
            match device.interfaces.first() {
                Some(interface) if port.is_ethernet() => format!("`ip link set {} up`.", interface.name),
                _ => format!("`ibportstate -D 0 {} enable`, or look for who disabled it.", port.number),
            },
        ),
        (_, true) => (
            format!("{state}."),
            match device.interfaces.first() {
                Some(interface) => {
                    format!("Look at cable and switch, then `ip link set {} up`.", interface.name)
                }
                None => "Look at cable and switch, and at the interface that belongs to it.".to_owned(),
            },
        ),
        _ => (format!("{state}."), "Look at the cable, and at the port at its other end.".to_owned()),
    };
    // A card with two ports is often used with one cable.
    if any_active {
        Finding::note(About::Rdma, text).advise(advice)
    } else {
        Finding::problem(About::Rdma, text, advice)
    }
}

/// Cards whose PCIe link is slower than they are.
fn rdma_devices(facts: &Facts) -> impl Iterator<Item = Finding> {
    facts.rdma.devices.iter().filter_map(|device| {
        let pci = device.pci.as_ref()?;
        let is_slow = !pci.link.is_empty() && !pci.best_link.is_empty() && pci.link != pci.best_link;
        is_slow.then(|| {
            Finding::note(
                About::Rdma,
                format!(
                    "{} is on a PCIe link of {}, and could use {}.",
                    device.name, pci.link, pci.best_link
                ),
            )
            .advise(
                "If the slot can do more, seat the card again, and look at the slot's setting in the BIOS.",
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Interface;

    #[test]
    fn path_mtus_follow_from_the_interface() {
        let mtu = |layer: &str, mtu| {
            let interfaces = vec![Interface { name: "x".into(), mtu }];
            let device = RdmaDevice { interfaces, ..RdmaDevice::default() };
            mtu_of_interface(&device, &Port { number: 1, link_layer: layer.into(), ..Port::default() })
        };
        assert_eq!(mtu("Ethernet", 1500), Some(1024));
        assert_eq!(mtu("Ethernet", 4200), Some(4096));
        assert_eq!(mtu("Ethernet", 9000), Some(4096));
        assert_eq!(mtu("Ethernet", 90), None);
        assert_eq!(mtu("InfiniBand", 2044), Some(2048));
        assert_eq!(mtu("InfiniBand", 4092), Some(4096));
        assert_eq!(mtu("InfiniBand", 65520), None);
    }
}
