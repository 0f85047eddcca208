//! Facts from the kernel's file systems: the machine, the PCI bus, RDMA devices and NVIDIA's GPUs.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use causeway_gpu::gpudirect::is_peermem_loaded;
use rustix::fs::{Access, access};

use crate::facts::{Facts, Gid, Gpus, Interface, Live, Machine, Node, PciDevice, Port, Rdma, RdmaDevice};

/// All facts that files tell, with what is known otherwise.
pub fn facts(system: &System, live: Live) -> Facts {
    Facts { machine: machine(system), rdma: rdma(system), gpus: gpus(system), live }
}

/// The most bytes of a file that are read.
const MAX_FILE_BYTES: u64 = 64 << 10;

/// The file systems of a machine, below a root that need not be the real one.
#[derive(Debug, Clone)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// Below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path as it is from here.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The beginning of a file's bytes; nothing when it cannot be read.
    fn bytes(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(self.at(path)).ok()?.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// A file's text without the blanks around it; empty when it cannot be read.
    fn text(&self, path: impl AsRef<Path>) -> String {
        let bytes = self.bytes(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).trim().to_owned()
    }

    /// What a file says, if it is that.
    fn parse<T: core::str::FromStr>(&self, path: impl AsRef<Path>) -> Option<T> {
        self.text(path).parse().ok()
    }

    /// The names in a folder, sorted; none when it cannot be read.
    fn names(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
        names
    }

    fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).exists()
    }

    /// The name of what a link leads to.
    fn target_name(&self, link: impl AsRef<Path>) -> Option<String> {
        Some(fs::read_link(self.at(link)).ok()?.file_name()?.to_str()?.to_owned())
    }

    /// Where links lead to, as a path below the root.
    fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let (real, root) = (self.at(path).canonicalize().ok()?, self.root.canonicalize().ok()?);
        Some(real.strip_prefix(root).ok()?.to_owned())
    }

    /// A device file, if it is there.
    fn node(&self, path: &str) -> Option<Node> {
        let at = self.at(path);
        let mode = fs::metadata(&at).ok()?.permissions().mode() & 0o7777;
        let is_usable = access(&at, Access::READ_OK | Access::WRITE_OK).is_ok();
        Some(Node { path: path.to_owned(), mode, is_usable })
    }
}

/// Options of the kernel's build that GPUDirect and the RDMA modules need.
const OPTIONS: [&str; 5] = [
    "CONFIG_INFINIBAND_USER_ACCESS",
    "CONFIG_INFINIBAND_USER_MEM",
    "CONFIG_DMA_SHARED_BUFFER",
    "CONFIG_PCI_P2PDMA",
    "CONFIG_USERFAULTFD",
];

fn machine(system: &System) -> Machine {
    let kernel = system.text("/proc/sys/kernel/osrelease");
    let parameters = system.text("/proc/cmdline");
    let about_iommu = parameters.split_whitespace().filter(|parameter| parameter.contains("iommu"));
    Machine {
        host: system.text("/proc/sys/kernel/hostname"),
        container: container(system),
        has_iommu: !system.names("/sys/class/iommu").is_empty(),
        iommu_parameters: about_iommu.map(str::to_owned).collect(),
        kernel_options: options(system, &kernel),
        // Without a limit the file says `max`.
        memory_limit: system.parse("/sys/fs/cgroup/memory.max"),
        has_mps: system.exists("/tmp/nvidia-mps/control"),
        kernel,
    }
}

fn container(system: &System) -> Option<String> {
    let systemd = system.text("/run/systemd/container");
    let kinds = [
        (system.exists("/.dockerenv"), "Docker"),
        (system.exists("/run/.containerenv"), "Podman"),
        (system.exists("/.singularity.d"), "Apptainer"),
        (system.exists("/var/run/secrets/kubernetes.io"), "Kubernetes"),
        (!systemd.is_empty(), systemd.as_str()),
    ];
    kinds.iter().find(|(is_one, _)| *is_one).map(|(_, name)| (*name).to_owned())
}

fn options(system: &System, kernel: &str) -> Vec<(String, String)> {
    let Ok(text) = fs::read_to_string(system.at(format!("/boot/config-{kernel}"))) else {
        return Vec::new();
    };
    let value = |name: &str| {
        let set = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        (name.to_owned(), set.unwrap_or("n").to_owned())
    };
    OPTIONS.iter().map(|name| value(name)).collect()
}

const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// The addresses of all devices.
fn pci_addresses(system: &System) -> Vec<String> {
    system.names(PCI_DEVICES)
}

/// The identifiers of a device: vendor and class. The class has three bytes: base class, subclass,
/// programming interface.
fn pci_identity(system: &System, address: &str) -> Option<(u32, u32)> {
    let number = |name: &str| {
        let text = system.text(Path::new(PCI_DEVICES).join(address).join(name));
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    };
    Some((number("vendor")?, number("class")?))
}

/// Everything of the device at an address.
fn pci_device(system: &System, address: &str) -> PciDevice {
    let folder = Path::new(PCI_DEVICES).join(address);
    let text = |name: &str| system.text(folder.join(name));
    let link = |speed: &str, width: &str| match (text(speed), text(width)) {
        (speed, width) if speed.is_empty() || width.is_empty() => String::new(),
        (speed, width) => format!("{speed} x{width}"),
    };
    let path = path_of(system, &folder);
    let bridges = path.iter().skip(1).take(path.len().saturating_sub(2));
    let redirecting = bridges
        .filter_map(|bridge| {
            let config = system.bytes(Path::new(PCI_DEVICES).join(bridge).join("config"))?;
            Some((bridge.clone(), redirects(&config)?))
        })
        .collect();
    PciDevice {
        address: address.to_owned(),
        // Without NUMA the kernel writes -1.
        numa_node: system.parse(folder.join("numa_node")),
        iommu: Some(text("iommu_group/type")).filter(|kind| !kind.is_empty()),
        link: link("current_link_speed", "current_link_width"),
        best_link: link("max_link_speed", "max_link_width"),
        path,
        redirecting,
    }
}

/// From the host bridge to the device.
fn path_of(system: &System, folder: &Path) -> Vec<String> {
    let real = system.resolve(folder).unwrap_or_default();
    let parts = real.iter().filter_map(|part| part.to_str().map(str::to_owned));
    parts.skip_while(|part| !part.starts_with("pci")).collect()
}

/// Whether a bridge with this configuration space sends requests between devices below it up to the host
/// bridge. Nothing when only the first 64 bytes are there, which is all that an ordinary user sees.
///
/// Extended capabilities begin at 0x100; each has 16 bits of identifier, 4 of version, 12 of the next one's
/// offset (PCI Express Base Specification, 7.6). ACS is number 0x000d, its control register 6 bytes behind
/// its begin.
fn redirects(config: &[u8]) -> Option<bool> {
    const ACS: u16 = 0x000d;
    const REQUEST_REDIRECT: u16 = 1 << 2;
    const COMPLETION_REDIRECT: u16 = 1 << 3;
    let word = |at: usize| Some(u16::from_le_bytes(config.get(at..at + 2)?.try_into().ok()?));
    let mut at = 0x100;
    // A list that goes round is left after as many steps as there is room for entries.
    for _ in 0..(4096 - 0x100) / 8 {
        let (identifier, next) = (word(at)?, usize::from(word(at + 2)? >> 4));
        if identifier == ACS {
            return Some(word(at + 6)? & (REQUEST_REDIRECT | COMPLETION_REDIRECT) != 0);
        }
        if next < 0x100 {
            break;
        }
        at = next;
    }
    Some(false)
}

const RDMA_CLASS: &str = "/sys/class/infiniband";
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

fn rdma(system: &System) -> Rdma {
    let devices: Vec<RdmaDevice> =
        system.names(RDMA_CLASS).into_iter().map(|name| rdma_device(system, name)).collect();
    let has_device = |address: &String| {
        devices.iter().filter_map(|device| device.pci.as_ref()).any(|pci| pci.address == *address)
    };
    let could_be_one = |address: &String| {
        pci_identity(system, address)
            .is_some_and(|(vendor, class)| vendor == MELLANOX && NETWORK.contains(&(class >> 8)))
    };
    let idle = pci_addresses(system).into_iter().filter(could_be_one).filter(|address| !has_device(address));
    let names = system.names("/dev/infiniband");
    let files = names.iter().filter(|name| name.starts_with("uverbs") || *name == "rdma_cm");
    Rdma {
        idle_rdma_devices: idle.map(|address| pci_device(system, &address)).collect(),
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

fn rdma_device(system: &System, name: String) -> RdmaDevice {
    let folder = Path::new(RDMA_CLASS).join(&name);
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
        pci: address.map(|address| pci_device(system, &address)),
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

const NVIDIA: u32 = 0x10de;
/// Display controllers: VGA and 3D.
const DISPLAY: [u32; 2] = [0x0300, 0x0302];

/// Libraries of NVIDIA's driver for what Causeway does not forward: video decoding and encoding, optical
/// flow, ray tracing.
pub const NOT_FORWARDED: [&str; 4] =
    ["libnvcuvid.so.1", "libnvidia-encode.so.1", "libnvidia-opticalflow.so.1", "libnvoptix.so.1"];

fn gpus(system: &System) -> Gpus {
    let is_gpu = |address: &String| {
        pci_identity(system, address)
            .is_some_and(|(vendor, class)| vendor == NVIDIA && DISPLAY.contains(&(class >> 8)))
    };
    let version = system.text("/proc/driver/nvidia/version");
    let kernel_driver = version.lines().find_map(version_in).or_else(|| {
        let version = system.text("/sys/module/nvidia/version");
        (!version.is_empty()).then_some(version)
    });
    Gpus {
        devices: pci_addresses(system).iter().filter(|a| is_gpu(a)).map(|a| pci_device(system, a)).collect(),
        kernel_driver,
        is_open: version.contains("Open Kernel Module"),
        has_peermem: is_peermem_loaded(&system.at("/sys")),
        has_gdrdrv: system.exists("/sys/module/gdrdrv"),
        gdrdrv_node: system.node("/dev/gdrdrv"),
        not_forwarded: not_forwarded(system),
    }
}

/// The libraries of [`NOT_FORWARDED`] in the usual folders, each file once.
fn not_forwarded(system: &System) -> Vec<String> {
    const FOLDERS: [&str; 6] = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/nvidia/lib64",
        "/usr/lib/wsl/lib",
        "/run/opengl-driver/lib",
    ];
    let (mut files, mut found) = (Vec::new(), Vec::new());
    for path in FOLDERS.iter().flat_map(|folder| NOT_FORWARDED.map(|name| format!("{folder}/{name}"))) {
        let Some(file) = system.resolve(&path) else { continue };
        if !files.contains(&file) {
            files.push(file);
            found.push(path);
        }
    }
    found
}

/// The version in `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 ...`.
fn version_in(line: &str) -> Option<String> {
    let words = line.strip_prefix("NVRM version:")?.split_whitespace();
    let is_version =
        |word: &&str| word.contains('.') && word.split('.').all(|part| part.parse::<u32>().is_ok());
    words.into_iter().find(is_version).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_capabilities(list: &[(usize, u16, usize, u16)]) -> Vec<u8> {
        let mut config = vec![0; 4096];
        for (at, identifier, next, control) in list {
            config[*at..at + 2].copy_from_slice(&identifier.to_le_bytes());
            config[at + 2..at + 4].copy_from_slice(&((*next as u16) << 4 | 1).to_le_bytes());
            config[at + 6..at + 8].copy_from_slice(&control.to_le_bytes());
        }
        config
    }

    #[test]
    fn access_control_is_found_among_the_capabilities() {
        let on = with_capabilities(&[(0x100, 1, 0x148, 0), (0x148, 0x000d, 0, 0x1d)]);
        assert_eq!(redirects(&on), Some(true));
        let off = with_capabilities(&[(0x100, 1, 0x148, 0), (0x148, 0x000d, 0, 0x01)]);
        assert_eq!(redirects(&off), Some(false));
        assert_eq!(redirects(&with_capabilities(&[(0x100, 1, 0, 0)])), Some(false));
        assert_eq!(redirects(&on[..64]), None, "what an ordinary user sees");
        let round = with_capabilities(&[(0x100, 1, 0x100, 0)]);
        assert_eq!(redirects(&round), Some(false));
        let beyond = with_capabilities(&[(0x100, 1, 0xfff, 0)]);
        assert_eq!(redirects(&beyond), None);
    }
}
