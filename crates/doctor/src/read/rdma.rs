//! RDMA devices, as `/sys/class/infiniband` tells of them, and what programs need besides.

use super::pci;
use super::system::System;
use crate::facts::{Gid, Interface, Port, Rdma, RdmaDevice};
use std::path::{Path, PathBuf};

const CLASS: &str = "/sys/class/infiniband";
/// Vendor of NVIDIA's (Mellanox's) network cards.
const MELLANOX: u32 = 0x15b3;
/// Classes of network cards: Ethernet and InfiniBand.
const NETWORK: [u32; 2] = [0x0200, 0x0207];
/// The kernel's RDMA modules that may be missing.
const MODULES: [&str; 13] = [
    "ib_core",
    "ib_uverbs",
    "ib_umad",
    "rdma_cm",
    "rdma_ucm",
    "mlx4_ib",
    "mlx5_core",
    "mlx5_ib",
    "irdma",
    "bnxt_re",
    "efa",
    "rdma_rxe",
    "siw",
];
/// Where distributions keep the drivers of user space.
const PROVIDERS: [&str; 3] =
    ["/usr/lib/x86_64-linux-gnu/libibverbs", "/usr/lib64/libibverbs", "/usr/lib/libibverbs"];

pub fn read(system: &System) -> Rdma {
    let devices: Vec<RdmaDevice> = system.names(CLASS).into_iter().map(|name| device(system, name)).collect();
    let has_device = |address: &String| {
        devices.iter().filter_map(|device| device.pci.as_ref()).any(|pci| pci.address == *address)
    };
    let could_be_one = |address: &String| {
        pci::identity(system, address)
            .is_some_and(|(vendor, class)| vendor == MELLANOX && NETWORK.contains(&(class >> 8)))
    };
    let idle = pci::addresses(system).into_iter().filter(could_be_one).filter(|address| !has_device(address));
    let names = system.names("/dev/infiniband");
    let files = names.iter().filter(|name| name.starts_with("uverbs") || *name == "rdma_cm");
    Rdma {
        idle_rdma_devices: idle.map(|address| pci::device(system, &address)).collect(),
        nodes: files.filter_map(|name| system.node(&format!("/dev/infiniband/{name}"))).collect(),
        modules: MODULES
            .iter()
            .filter(|name| system.exists(Path::new("/sys/module").join(name)))
            .map(|name| (*name).to_owned())
            .collect(),
        providers: providers(system),
        devices,
    }
}

fn device(system: &System, name: String) -> RdmaDevice {
    let folder = Path::new(CLASS).join(&name);
    let text = |file: &str| system.text(folder.join(file));
    // A device of software has no place on a bus, but the interface that it lies on.
    let address = system.resolve(folder.join("device")).and_then(|real| {
        let last = real.file_name()?.to_str()?.to_owned();
        is_pci_address(&last).then_some(last)
    });
    let mut interfaces = system.names(folder.join("device/net"));
    interfaces.extend(Some(text("parent")).filter(|parent| !parent.is_empty() && !parent.contains('/')));
    let node = system
        .names("/sys/class/infiniband_verbs")
        .into_iter()
        .find(|node| system.text(Path::new("/sys/class/infiniband_verbs").join(node).join("ibdev")) == name);
    RdmaDevice {
        driver: system.target_name(folder.join("device/driver")).unwrap_or_default(),
        model: text("hca_type"),
        firmware: text("fw_ver"),
        pci: address.map(|address| pci::device(system, &address)),
        interfaces: interfaces.into_iter().map(|name| interface(system, name)).collect(),
        ports: ports(system, &folder.join("ports")),
        node: node.unwrap_or_default(),
        name,
    }
}

fn is_pci_address(text: &str) -> bool {
    let hex =
        |part: &str, digits| part.len() == digits && part.chars().all(|letter| letter.is_ascii_hexdigit());
    let parts: Vec<&str> = text.split([':', '.']).collect();
    matches!(parts[..], [domain, bus, slot, function] if hex(domain, 4) && hex(bus, 2) && hex(slot, 2) && hex(function, 1))
}

fn interface(system: &System, name: String) -> Interface {
    let mtu = system.parse(Path::new("/sys/class/net").join(&name).join("mtu")).unwrap_or(0);
    Interface { name, mtu }
}

fn ports(system: &System, folder: &Path) -> Vec<Port> {
    let numbers = system.names(folder).into_iter().filter_map(|name| name.parse().ok());
    numbers.map(|number: u32| port(system, folder.join(number.to_string()), number)).collect()
}

fn port(system: &System, folder: PathBuf, number: u32) -> Port {
    let text = |file: &str| system.text(folder.join(file));
    // `4: ACTIVE`, `0x0001`
    let behind_number =
        |file| text(file).split_once(": ").map_or_else(|| text(file), |(_, word)| word.to_owned());
    let hexadecimal = |file| {
        let text = text(file);
        u32::from_str_radix(text.strip_prefix("0x").unwrap_or(&text), 16).unwrap_or(0)
    };
    let indices = system.names(folder.join("gids")).into_iter().filter_map(|name| name.parse().ok());
    let gid = |index: u32| {
        let gid = text(&format!("gids/{index}"));
        let is_empty = gid.chars().all(|letter| letter == '0' || letter == ':');
        (!is_empty).then(|| Gid { index, gid, kind: text(&format!("gid_attrs/types/{index}")) })
    };
    Port {
        number,
        state: behind_number("state"),
        physical_state: behind_number("phys_state"),
        link_layer: text("link_layer"),
        rate: text("rate"),
        lid: hexadecimal("lid"),
        manager_lid: hexadecimal("sm_lid"),
        gids: indices.filter_map(gid).collect(),
    }
}

/// The names of `libNAME-rdmav34.so`.
fn providers(system: &System) -> Vec<String> {
    let files = PROVIDERS.iter().flat_map(|folder| system.names(folder));
    let mut names: Vec<String> =
        files.filter_map(|file| Some(file.strip_prefix("lib")?.split_once("-rdmav")?.0.to_owned())).collect();
    names.sort();
    names.dedup();
    names
}
