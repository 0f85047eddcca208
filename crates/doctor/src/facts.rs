//! What can be known of a machine. Absence is a fact too: nothing here is an error.

use causeway_wire::text::{MAX_TEXT_BYTES, printable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// The machine as a whole.
    pub machine: Machine,
    /// Its network cards that know remote memory access.
    pub rdma: Rdma,
    /// Its GPUs.
    pub gpus: Gpus,
    /// What is known only by asking the system.
    pub live: Live,
}

/// The most bytes of another machine's facts that are looked at. A node with sixteen cards has some 100 KiB.
pub const MAX_BYTES: usize = 1 << 20;

/// The most devices of a kind that are looked at in the facts of another machine.
const MAX_DEVICES: usize = 64;

impl Facts {
    /// The facts of another machine, which may say anything: nothing when they are too long or make no sense.
    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        let reported: Value = serde_json::from_slice(bytes).ok().filter(|_| bytes.len() <= MAX_BYTES)?;
        let mut facts: Self = serde_json::from_value(with_printable_texts(reported)).ok()?;
        facts.rdma.devices.truncate(MAX_DEVICES);
        facts.rdma.idle_rdma_devices.truncate(MAX_DEVICES);
        facts.rdma.nodes.truncate(MAX_DEVICES);
        facts.gpus.devices.truncate(MAX_DEVICES);
        facts.live.features.truncate(MAX_DEVICES);
        facts.live.verbs.devices.truncate(MAX_DEVICES);
        if let DriverProbe::Started { devices, .. } = &mut facts.live.driver {
            devices.truncate(MAX_DEVICES);
        }
        Some(facts)
    }

    /// The facts as they travel.
    pub fn to_json(&self) -> Vec<u8> {
        // Names and numbers alone; there is nothing that could not be written.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

/// The same with texts that may be shown, wherever one stands.
fn with_printable_texts(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(printable(&text, MAX_TEXT_BYTES)),
        Value::Array(values) => values.into_iter().map(with_printable_texts).collect(),
        Value::Object(members) => {
            let printable = |(name, value)| {
                (printable(String::as_str(&name), MAX_TEXT_BYTES), with_printable_texts(value))
            };
            members.into_iter().map(printable).collect()
        }
        other => other,
    }
}

/// The machine as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its name.
    pub host: String,
    /// The kernel's release, such as `6.1.0-18-amd64`.
    pub kernel: String,
    /// What kind of container this is, if it is one.
    pub container: Option<String>,
    /// Whether `/sys/class/iommu` names an IOMMU.
    pub has_iommu: bool,
    /// The parameters that the kernel was started with and that are about its IOMMU.
    pub iommu_parameters: Vec<String>,
    /// Options of the kernel's build that matter here and are known, by name: `y`, `m` or `n`.
    pub kernel_options: Vec<(String, String)>,
    /// The limit of the memory cgroup in bytes.
    pub memory_limit: Option<u64>,
    /// Whether the control daemon of NVIDIA's Multi-Process Service listens here.
    pub has_mps: bool,
}

/// Cards with RDMA, and what programs need to use them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Rdma {
    /// The kernel's RDMA devices.
    pub devices: Vec<RdmaDevice>,
    /// Network cards on the PCI bus that could be RDMA devices and are none.
    pub idle_rdma_devices: Vec<PciDevice>,
    /// The device files of verbs and of the connection manager.
    pub nodes: Vec<Node>,
    /// The RDMA modules of the kernel that are loaded or built in.
    pub modules: Vec<String>,
    /// Drivers of user space (`libmlx5-rdmav34.so` is `mlx5`).
    pub providers: Vec<String>,
}

/// An RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaDevice {
    /// Its name, such as `mlx5_0`.
    pub name: String,
    /// The kernel driver, such as `mlx5_core`; empty when it is not told, as for `rxe`.
    pub driver: String,
    /// The kind of card, such as `MT4115`.
    pub model: String,
    /// The version of its firmware.
    pub firmware: String,
    /// Where it is on the PCI bus; nothing for a device of software.
    pub pci: Option<PciDevice>,
    /// Its network interfaces.
    pub interfaces: Vec<Interface>,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Its device file, such as `uverbs0`.
    pub node: String,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Bytes of its longest packet.
    pub mtu: u32,
}

/// A port of an RDMA device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Port {
    /// Its number, from 1.
    pub number: u32,
    /// `ACTIVE`, `INIT`, `DOWN` ...
    pub state: String,
    /// `LinkUp`, `Polling`, `Disabled` ...
    pub physical_state: String,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// The rate as the kernel writes it, such as `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// The local identifier that the subnet manager gave; 0 if none did, and on Ethernet.
    pub lid: u32,
    /// That of the subnet manager.
    pub manager_lid: u32,
    /// Its addresses that are not empty.
    pub gids: Vec<Gid>,
}

/// An address of a port.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gid {
    /// Its place in the table.
    pub index: u32,
    /// The address.
    pub gid: String,
    /// `IB/RoCE v1` or `RoCE v2`.
    pub kind: String,
}

/// A device file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its path.
    pub path: String,
    /// Its permissions, as of `chmod`.
    pub mode: u32,
    /// Whether this process may read and write it.
    pub is_usable: bool,
}

/// A device on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PciDevice {
    /// Such as `0000:3b:00.0`.
    pub address: String,
    /// The host bridge (`pci0000:3a`), the bridges below it, and the device itself.
    pub path: Vec<String>,
    /// The NUMA node; nothing where there is only one or it is not told.
    pub numa_node: Option<u32>,
    /// How the IOMMU treats it (`identity`, `DMA`, `DMA-FQ`); nothing without an IOMMU.
    pub iommu: Option<String>,
    /// The bridges above it of which it is known whether their access control (ACS) sends what devices say to
    /// each other through the host bridge.
    pub redirecting: Vec<(String, bool)>,
    /// The rate of its link and the number of its lanes, such as `16.0 GT/s PCIe x16`.
    pub link: String,
    /// The best that the device could do, in the same words.
    pub best_link: String,
}

/// GPUs, and what other devices need to reach their memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpus {
    /// NVIDIA's GPUs on the PCI bus.
    pub devices: Vec<PciDevice>,
    /// The version of NVIDIA's kernel driver, if it is loaded.
    pub kernel_driver: Option<String>,
    /// Whether those are the open kernel modules.
    pub is_open: bool,
    /// Whether `nvidia_peermem`, or its predecessor, is loaded.
    pub has_peermem: bool,
    /// Whether `gdrdrv` is loaded.
    pub has_gdrdrv: bool,
    /// Its device file.
    pub gdrdrv_node: Option<Node>,
    /// Libraries of NVIDIA's driver whose work Causeway does not forward, by their paths.
    pub not_forwarded: Vec<String>,
}

/// What is known only by asking the system, from the place of this process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Live {
    /// Causeway's version.
    pub release: String,
    /// The folder of the client library, or why there is none; nothing where it was not looked for.
    pub client_library: Option<Result<String, String>>,
    /// The libraries of NVIDIA's driver for which that folder has no stub.
    pub without_stub: Vec<String>,
    /// Whether this is root's process.
    pub is_root: bool,
    /// Bytes of memory that this process may lock; nothing for any number.
    pub memlock: Option<u64>,
    /// How far it may raise that by itself.
    pub memlock_max: Option<u64>,
    /// The process may lock any number all the same (`CAP_IPC_LOCK`).
    pub may_lock_all: bool,
    /// Bytes of `/dev/shm`.
    pub shm: Option<u64>,
    /// Libraries of the host that were asked for, and why they could not be loaded, if so.
    pub libraries: Vec<(String, Option<String>)>,
    /// What libibverbs says.
    pub verbs: Verbs,
    /// What NVIDIA's driver library says.
    pub driver: DriverProbe,
    /// Features of the kernel that Causeway uses, and whether they are there.
    pub features: Vec<(Feature, bool)>,
}

impl Live {
    /// Why a library could not be loaded; nothing when it could, or was not asked for.
    pub fn why_not(&self, library: &str) -> Option<&str> {
        self.libraries.iter().find(|(name, _)| name == library)?.1.as_deref()
    }
}

/// What libibverbs said, where it could be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Verbs {
    /// The library registers dma-bufs with a device.
    pub has_dma_buf: bool,
    /// Its devices: each name with what it says of its ports, or why it cannot be used.
    pub devices: Vec<(String, Result<Vec<PathMtu>, String>)>,
}

impl Verbs {
    /// What it says of a port.
    pub fn mtu(&self, device: &str, port: u32) -> Option<PathMtu> {
        let (_, ports) = self.devices.iter().find(|(name, _)| name == device)?;
        ports.as_ref().ok()?.iter().find(|mtu| mtu.port == port).copied()
    }
}

/// How long the packets of a port are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PathMtu {
    /// The port's number.
    pub port: u32,
    /// Bytes of a packet's content that its link carries now.
    pub active: u32,
    /// What the device could do.
    pub max: u32,
}

/// What NVIDIA's driver library answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum DriverProbe {
    /// It was not asked.
    #[default]
    NotProbed,
    /// It cannot be asked: this build of Causeway has no back end for it.
    NotBuiltIn,
    /// There is none, or it does not start: why, as sentences.
    None {
        /// Whether the library is there and fails to start.
        is_installed: bool,
        /// Why.
        why: String,
    },
    /// It started.
    Started {
        /// Its name and version.
        name: String,
        /// Its devices.
        devices: Vec<CudaDevice>,
    },
}

/// A GPU as its driver shows it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CudaDevice {
    /// Its name.
    pub name: String,
    /// Its place on the PCI bus.
    pub address: String,
    /// How cards may reach its memory, the best first.
    pub paths: Vec<String>,
    /// Which ways are closed, and why.
    pub closed: Vec<(String, String)>,
}

/// A feature of the kernel that Causeway uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Feature {
    /// Memory as a file that can be passed on (`memfd_create` with seals).
    SealedMemory,
    /// Descriptors of processes (`pidfd_open`).
    ProcessDescriptors,
    /// Letting go of all descriptors at an `exec` (`close_range`, Linux 5.11).
    CloseRange,
    /// Pages that were written to are noted (`userfaultfd` and `PAGEMAP_SCAN`, Linux 6.7).
    WrittenPages,
}
