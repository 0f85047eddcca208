//! RDMA device that messages use: its choice, the address of this host for rdma_cm, registration of GPU
//! memory, and errors.

use core::ptr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::OnceLock;

use causeway_config::ValueError;
use causeway_config::read::PROCESS;
use causeway_config::table::{VERBS_DEVICE, VERBS_GID};
use causeway_ibverbs::{
    Access, Description, Device, DeviceError, Gid, GidEntry, Libraries, LoadError, ManagerError,
    MemoryRegion, Port, PostError, ProtectionDomain, QueuePairError, RegisterError, Status, Transport,
};
use thiserror::Error;

use super::topology::choose_nearest;
use crate::cuda::{self, CudaError, DeviceMemory, Driver, Scope};
use crate::locks::{Mutex, rank};

/// A port of a device, which is open.
#[derive(Debug, Clone)]
pub(super) struct RdmaDevice {
    pub(super) device: Device,
    pub(super) port: Port,
    pub(super) gid: GidEntry,
}

/// Which card is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NicSelector {
    /// The address of this end of a connection over a network to the peer; none within a host.
    pub(crate) local: Option<IpAddr>,
    /// The PCI address of the GPU that the card is to be near, if that is in this host.
    pub(crate) gpu: Option<String>,
    /// The card's own GID, where the peer of this host names one that is to be used by both.
    pub(crate) gid: Option<Gid>,
    /// Its name, which else `CAUSEWAY_VERBS_DEVICE` may give.
    pub(crate) name: Option<String>,
}

impl RdmaDevice {
    /// The one that is wanted. Opened once for each such wish.
    pub(super) fn open(selector: &NicSelector) -> Result<Self, RdmaError> {
        static OPEN: Mutex<rank::Leaf, Vec<(NicSelector, RdmaDevice)>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock();
        if let Some((_, nic)) = open.iter().find(|(known, _)| known == selector) {
            return Ok(nic.clone());
        }
        // One that is asked for by name is looked for in any case.
        let name = selector.name.clone().or_else(|| PROCESS.text(&VERBS_DEVICE));
        if name.is_none() && count_rdma_devices(Path::new("/")) == 0 {
            return Err(RdmaError::NoDevice);
        }
        let libraries = Libraries::load()?;
        let devices = Device::list(libraries)?;
        let has = |device: &Description, gid| {
            device.ports.iter().flat_map(|port| &port.gids).any(|entry| entry.gid == gid)
        };
        let named = selector.gid.and_then(|gid| devices.iter().find(|device| has(device, gid)));
        let name = named.map(|device| device.name.clone()).or(name);
        let NicSelector { local, gpu, .. } = selector;
        let chosen = choose_nearest(Path::new("/"), &devices, name.as_deref(), *local, gpu.as_deref());
        let chosen = chosen.ok_or(RdmaError::NoPort)?;
        let gid = match PROCESS.number(&VERBS_GID)? {
            None => chosen.gid,
            Some(index) => {
                // At most 1023.
                let index = index as u32;
                let found = chosen.port.gids.iter().find(|entry| entry.index == index).copied();
                found.ok_or_else(|| RdmaError::NoGid { device: chosen.device.name.clone(), index })?
            }
        };
        let device = Device::open(libraries, &chosen.device.name)?;
        let nic = Self { device, port: chosen.port.clone(), gid };
        open.push((selector.clone(), nic.clone()));
        Ok(nic)
    }

    /// Whether rdma_cm alone joins its queue pairs.
    pub(super) fn needs_manager(&self) -> bool {
        self.device.transport() == Transport::Iwarp
    }

    /// The address at which rdma_cm reaches it from this host.
    pub(super) fn address(&self) -> Result<IpAddr, RdmaError> {
        let found = address_of_interface(self.gid.interface).map_err(RdmaError::Addresses)?;
        found.ok_or_else(|| RdmaError::NoAddress(self.device.name().to_owned()))
    }
}

/// Whether this process has a card that it can use, or why not. Found out once.
pub(crate) fn usable() -> &'static Result<(), String> {
    static USABLE: OnceLock<Result<(), String>> = OnceLock::new();
    USABLE.get_or_init(|| {
        RdmaDevice::open(&NicSelector::default()).map(drop).map_err(|error| error.to_string())
    })
}

/// RDMA devices of the kernel, by the files below a root.
pub(crate) fn count_rdma_devices(root: &Path) -> usize {
    std::fs::read_dir(root.join("sys/class/infiniband")).map_or(0, Iterator::count)
}

/// An address of a network interface.
///
/// iWARP devices are reached at addresses of a network alone. Ranks that meet at a Unix socket know none, so
/// the sender tells that of its device.
struct Address {
    /// The number of the interface.
    interface: u32,
    address: IpAddr,
}

/// The address at which an RDMA device takes connections whose network interface has this number: IPv4 before
/// IPv6, of which link-local ones say too little.
pub(super) fn address_of_interface(interface: u32) -> io::Result<Option<IpAddr>> {
    let addresses =
        all_addresses()?.into_iter().filter(|one| one.interface == interface).map(|one| one.address);
    let is_link_local = |address: &IpAddr| matches!(address, IpAddr::V6(six) if six.is_unicast_link_local());
    Ok(addresses.filter(|address| !is_link_local(address)).min_by_key(IpAddr::is_ipv6))
}

/// Whether an address is one of this host, in this network namespace.
pub(super) fn is_address_of_this_host(address: IpAddr) -> io::Result<bool> {
    Ok(all_addresses()?.iter().any(|one| one.address == address))
}

/// All of them.
fn all_addresses() -> io::Result<Vec<Address>> {
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
        // SAFETY: the name and the address of an entry are good until the list is freed.
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
    // SAFETY: the caller passes null, or an address that is as long as its family's are, each of which begins
    // with the family.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: an address of this family has this form; it may lie anywhere.
            let four = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: an address of this family has this form; it may lie anywhere.
            let six = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(six.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// What a card does with memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// The peer reads it.
    Exposed,
    /// What is read from the peer goes there.
    Filled,
}

impl Use {
    pub(crate) fn access(self, domain: &ProtectionDomain) -> Access {
        match (self, domain.device().transport()) {
            (Self::Exposed, _) => Access::REMOTE_READ,
            // iWARP brings the bytes of a read as a write of the peer.
            (Self::Filled, Transport::Iwarp) => Access::REMOTE_WRITE,
            (Self::Filled, _) => Access::LOCAL_WRITE,
        }
    }
}

/// Whether a card reaches an allocation, as far as the GPU's driver says. Not managed memory, whose pages
/// move.
pub(crate) fn is_gpudirect(driver: &Driver, memory: &DeviceMemory) -> bool {
    !Driver::is_remote() && !memory.is_managed && cuda::abilities(driver, memory.device).gpudirect
}

/// Registers a whole allocation.
///
/// # Errors
/// When the card does not reach it, or the kernel lets it not: then bytes pass through memory of the host.
///
/// By a dma-buf that the GPU's driver makes of it, or by its addresses, where the kernel has a module that
/// knows them (nvidia-peermem).
pub(crate) fn register(
    domain: &ProtectionDomain,
    scope: &Scope<'static>,
    memory: &DeviceMemory,
    usage: Use,
) -> Result<MemoryRegion, RdmaError> {
    if !is_gpudirect(scope.driver(), memory) {
        return Err(RdmaError::NotAccessible);
    }
    let length = usize::try_from(memory.bytes).map_err(|_| RdmaError::NotAccessible)?;
    let access = usage.access(domain);
    if let Ok((descriptor, offset)) = cuda::dma_buf(scope, memory) {
        let descriptor = descriptor.as_fd();
        // SAFETY: the dma-buf keeps the memory until the region goes, also where the program frees it. Who
        // reads and writes there is what the two ranks agree on for each message.
        let region = unsafe {
            MemoryRegion::register_dma_buf(domain, descriptor, offset, length, memory.start, access)
        };
        if let Ok(region) = region {
            return Ok(region);
        }
    }
    // SAFETY: where the program frees the memory, the module that knows the addresses takes them from the
    // card. Without such a module the kernel knows no memory there, and refuses.
    Ok(unsafe { MemoryRegion::register(domain, memory.start as *mut u8, length, access) }?)
}

/// Why a card does not move a message.
#[derive(Debug, Error)]
pub enum RdmaError {
    /// The kernel knows no device.
    #[error("there is no RDMA device (/sys/class/infiniband is empty)")]
    NoDevice,
    /// No port has a link.
    #[error("no port of an RDMA device is active, or of the one that CAUSEWAY_VERBS_DEVICE names")]
    NoPort,
    /// The port has no such GID.
    #[error("the RDMA device `{device}` has no GID of index {index} (CAUSEWAY_VERBS_GID)")]
    NoGid {
        /// The device.
        device: String,
        /// The index.
        index: u32,
    },
    /// The device's interface has no address.
    #[error(
        "the RDMA device `{0}` is iWARP, which needs a network address, and its network interface has none \
         here"
    )]
    NoAddress(String),
    /// Links join their queue pairs by themselves.
    #[error(
        "the RDMA device `{0}` is iWARP, whose queue pairs only rdma_cm can connect, which teams do not \
        use"
    )]
    NeedsManager(String),
    /// Messages of links travel within requests.
    #[error("the RDMA device `{0}` does not accept 40 inline bytes in a request")]
    NoInline(String),
    /// The system tells no addresses.
    #[error("cannot read the addresses of this host: {0}")]
    Addresses(#[source] io::Error),
    /// The peer's address is not of this host.
    #[error(
        "the peer's RDMA device is iWARP and takes connections at {0}, which is no address of this host in this \
         network namespace"
    )]
    Elsewhere(IpAddr),
    /// A setting.
    #[error(transparent)]
    Setting(#[from] ValueError),
    /// No library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The queue pair.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// rdma_cm.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// Memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The driver of the GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A card cannot reach this memory.
    #[error("a card cannot access such memory")]
    NotAccessible,
    /// The queue pair takes no request.
    #[error("the RDMA device does not accept a request: {0}")]
    Post(#[from] PostError),
    /// A read has failed.
    #[error("the RDMA device could not read the peer's memory: {0}")]
    Read(Status),
    /// The peer tells numbers that cannot be.
    #[error("the peer's description of its RDMA device is invalid")]
    Senseless,
    /// Nothing came.
    #[error("the RDMA device has not completed a read within {0} s")]
    Silent(u64),
    /// The peer has gone meanwhile.
    #[error("the peer ended while its memory was read")]
    PeerDisconnected,
    /// The system.
    #[error("cannot wait for completions of the RDMA device: {0}")]
    System(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_the_address_of_its_loopback_interface() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let interface =
            all_addresses().unwrap().iter().find(|one| one.address == local).map(|one| one.interface);
        let interface = interface.expect("the loopback interface is up");
        assert_eq!(address_of_interface(interface).unwrap(), Some(local));
        assert!(is_address_of_this_host(local).unwrap());
        // Of addresses for documents (RFC 5737), which no host has.
        assert!(!is_address_of_this_host([192, 0, 2, 7].into()).unwrap());
        assert_eq!(address_of_interface(u32::MAX).unwrap(), None);
    }
}
