//! RDMA devices: what programs need to use them (libraries, device files, locked memory), and their ports.

use crate::checks::{About, Finding, binary};
use crate::facts::{Facts, Port, RdmaDevice};

/// Registered memory is locked. A session's staging, both directions and all queue pairs together, and the
/// queues of the card fit into this; pinned memory that a program registers comes on top.
const ENOUGH_LOCKED: u64 = 1 << 30;

const VERBS: &str = "libibverbs.so.1";
const CONNECTION_MANAGER: &str = "librdmacm.so.1";
/// What to install, by distribution.
const PACKAGES: &str = "Install libibverbs1, ibverbs-providers and librdmacm1 (Debian, Ubuntu), or libibverbs and librdmacm \
                        (Fedora, RHEL, SUSE).";

pub fn check(facts: &Facts) -> Vec<Finding> {
    let rdma = &facts.rdma;
    let in_container = facts.machine.container.is_some();
    let mut findings = Vec::new();
    for rdma_device in &rdma.idle_rdma_devices {
        let text = format!(
            "The network card at {} is not an RDMA device here, although cards of its vendor can be.",
            rdma_device.address
        );
        findings.push(if in_container {
            Finding::note(About::Rdma, text)
                .advise("If this container is to use it, start it with `--device /dev/infiniband` and the host's network.")
        } else {
            Finding::problem(
                About::Rdma,
                text,
                "Load its RDMA driver: `modprobe mlx5_ib` (`mlx4_ib` for a ConnectX-3), from the kernel's own modules \
                 (package linux-modules-extra on Ubuntu) or NVIDIA's DOCA-OFED.",
            )
        });
    }
    if rdma.devices.is_empty() {
        if rdma.idle_rdma_devices.is_empty() {
            findings.push(Finding::note(
                About::Rdma,
                "There is no RDMA device, so sessions use TCP, or shared memory on one host.",
            ));
        }
        let missing: Vec<&str> = [VERBS, CONNECTION_MANAGER]
            .into_iter()
            .filter(|library| facts.live.why_not(library).is_some())
            .collect();
        if !missing.is_empty() {
            findings.push(
                Finding::note(
                    About::Rdma,
                    format!("Cannot load {}, which RDMA devices would need.", missing.join(" and ")),
                )
                .advise(PACKAGES),
            );
        }
        return findings;
    }
    findings.extend(libraries(facts));
    findings.extend(rdma.devices.iter().filter_map(|device| provider(facts, device)));
    findings.extend(unusable(facts));
    findings.extend(nodes(facts));
    findings.extend(memlock(facts));
    findings
}

fn libraries(facts: &Facts) -> Vec<Finding> {
    let mut findings = Vec::new();
    match facts.live.why_not(VERBS) {
        Some(why) => findings.push(Finding::problem(
            About::Rdma,
            format!("libibverbs cannot be loaded ({why}), so no program can use the RDMA devices."),
            PACKAGES,
        )),
        None => findings.push(Finding::good(
            About::Rdma,
            format!("libibverbs is installed, with drivers for {}.", listed(&facts.rdma.providers)),
        )),
    }
    if let Some(why) = facts.live.why_not(CONNECTION_MANAGER) {
        findings.push(
            Finding::note(
                About::Rdma,
                format!(
                    "librdmacm cannot be loaded ({why}), so queue pairs are connected by numbers sent over \
                     TCP."
                ),
            )
            .advise(PACKAGES),
        );
    }
    findings
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "no device that can be seen".to_owned() } else { names.join(", ") }
}

/// A device whose driver of user space is missing.
fn provider(facts: &Facts, device: &RdmaDevice) -> Option<Finding> {
    // Libraries in unusual places are not seen, so an empty list says nothing.
    if facts.rdma.providers.is_empty() || facts.live.why_not(VERBS).is_some() {
        return None;
    }
    let required = match device.driver.as_str() {
        "mlx5_core" => "mlx5",
        "mlx4_core" => "mlx4",
        "bnxt_en" => "bnxt_re",
        "ice" | "irdma" | "i40e" => "irdma",
        "efa" => "efa",
        _ if device.pci.is_some() => return None,
        _ if device.name.starts_with("rxe") => "rxe",
        _ if device.name.starts_with("siw") => "siw",
        _ => return None,
    };
    (!facts.rdma.providers.iter().any(|name| name == required)).then(|| {
        Finding::problem(
            About::Rdma,
            format!("libibverbs has no driver `{required}`, so {} cannot be used.", device.name),
            "Install ibverbs-providers (Debian, Ubuntu) or the rest of libibverbs (Fedora, RHEL, SUSE).",
        )
    })
}

/// Devices that libibverbs cannot open, where nothing else says why.
fn unusable(facts: &Facts) -> Vec<Finding> {
    let opened = facts.live.verbs.devices.iter();
    let failed = opened.filter_map(|(name, ports)| Some((name, ports.as_ref().err()?)));
    let found = failed.map(|(name, why)| {
        Finding::problem(
            About::Rdma,
            format!("Programs cannot open {name}: {why}."),
            "Check the device files and limits above, and the kernel's log (dmesg).",
        )
    });
    found.collect()
}

fn nodes(facts: &Facts) -> Vec<Finding> {
    let nodes = &facts.rdma.nodes;
    let in_container = facts.machine.container.is_some();
    let mut findings: Vec<Finding> = nodes
        .iter()
        .filter(|node| !node.is_usable)
        .map(|node| {
            Finding::problem(
                About::Rdma,
                format!("This user may not use {} (its mode is {:04o}).", node.path, node.mode),
                "Install rdma-core, whose udev rules open it to all users, or `chmod 666` it.",
            )
        })
        .collect();
    if !nodes.iter().any(|node| node.path.contains("uverbs")) {
        findings.push(Finding::problem(
            About::Rdma,
            "There is no /dev/infiniband/uverbs*, through which programs use RDMA devices.",
            if in_container {
                "Start the container with `--device /dev/infiniband`."
            } else {
                "`modprobe ib_uverbs`."
            },
        ));
    } else if !nodes.iter().any(|node| node.path.ends_with("rdma_cm")) {
        findings.push(
            Finding::note(
                About::Rdma,
                "There is no /dev/infiniband/rdma_cm, so queue pairs are connected by numbers sent over TCP.",
            )
            .advise(if in_container {
                "Start the container with `--device /dev/infiniband`."
            } else {
                "`modprobe rdma_ucm`."
            }),
        );
    }
    findings
}

fn memlock(facts: &Facts) -> Option<Finding> {
    let live = &facts.live;
    let limit = live.memlock.filter(|_| !live.may_lock_all)?;
    if limit >= ENOUGH_LOCKED {
        return Some(Finding::good(About::Rdma, format!("{} of memory may be locked.", binary(limit))));
    }
    let advice = match facts.machine.container {
        Some(_) => "Start the container with `--ulimit memlock=-1`.",
        None => {
            "Put `* - memlock unlimited` into /etc/security/limits.d/rdma.conf and log in again; for a service of systemd, \
             set LimitMEMLOCK=infinity."
        }
    };
    Some(Finding::problem(
        About::Rdma,
        format!(
            "Only {} of memory may be locked (`ulimit -l`), and registering memory with a card locks it: \
             staging needs {}, plus pinned memory of programs. Sessions can use less staging, down to 1 MiB \
             for each direction, and copy refused pinned memory through it.",
            binary(limit),
            binary(ENOUGH_LOCKED)
        ),
        advice,
    ))
}

/// The bytes that RoCE puts around each packet's content: addresses, transport headers, check sum. As the
/// kernel's own `iboe_get_mtu` counts them.
const ROCE_OVERHEAD: u32 = 96;

/// Path MTUs, the largest first.
const MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];

pub fn check_ports(facts: &Facts) -> Vec<Finding> {
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
                    format!(
                        "{name} splits messages into packets of {mtu} bytes, because {first} has the MTU \
                        of small Ethernet frames."
                    ),
                )
                .advise(format!("`ip link set {first} mtu 9000`, if switch and peers support it, too.")),
            );
        }
    } else if let Some(reported) =
        facts.live.verbs.mtu(&device.name, port.number).filter(|reported| reported.active < reported.max)
    {
        findings.push(
            Finding::note(
                About::Rdma,
                format!("{name} splits messages into packets of {} bytes, although it supports {}.", reported.active, reported.max),
            )
            .advise("Set the MTU of the subnet manager's partition (`mtu=5` in opensm's partitions.conf is 4096)."),
        );
    }
    if !port.is_ethernet() && port.lid == 0 {
        findings.push(Finding::problem(
            About::Rdma,
            format!("{name} is active but has no local identifier."),
            "Check the fabric's subnet manager (`sminfo`), which assigns them.",
        ));
    }
    findings
}

fn inactive(device: &RdmaDevice, port: &Port, name: &str, any_active: bool) -> Finding {
    let state =
        format!("{name} does not work: its state is {}, its link's {}", port.state, port.physical_state);
    let (text, advice) = match (port.physical_state.as_str(), port.is_ethernet()) {
        ("LinkUp", false) => (
            format!("{state}, so the cable is fine, but no subnet manager has configured the port."),
            "Start one on a node of the fabric (`systemctl start opensm`), or enable the switch's own."
                .to_owned(),
        ),
        ("Disabled", _) => (
            format!("{state}."),
            match device.interfaces.first() {
                Some(interface) if port.is_ethernet() => format!("`ip link set {} up`.", interface.name),
                _ => format!("`ibportstate -D 0 {} enable`, or find out why it was disabled.", port.number),
            },
        ),
        (_, true) => (
            format!("{state}."),
            match device.interfaces.first() {
                Some(interface) => {
                    format!("Check cable and switch, then `ip link set {} up`.", interface.name)
                }
                None => "Check cable and switch, and the interface that belongs to it.".to_owned(),
            },
        ),
        _ => (format!("{state}."), "Check the cable, and the port at its other end.".to_owned()),
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
            .advise("If the slot supports more, reseat the card, and check the slot's setting in the BIOS.")
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
