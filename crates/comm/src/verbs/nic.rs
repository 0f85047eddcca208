//! RDMA device: choice and opening.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use causeway_config::read::PROCESS;
use causeway_config::table::{VERBS_DEVICE, VERBS_GID};
use causeway_ibverbs::{Description, Device, Gid, GidEntry, Libraries, Port, Transport};

use super::address;
use super::error::RdmaError;
use super::topology::choose_nearest;

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
}

impl RdmaDevice {
    /// The one that is wanted. Opened once for each such wish.
    pub(super) fn open(selector: &NicSelector) -> Result<Self, RdmaError> {
        static OPEN: Mutex<Vec<(NicSelector, RdmaDevice)>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, nic)) = open.iter().find(|(known, _)| known == selector) {
            return Ok(nic.clone());
        }
        if count_rdma_devices(Path::new("/")) == 0 {
            return Err(RdmaError::NoDevice);
        }
        let libraries = Libraries::load()?;
        let devices = Device::list(libraries)?;
        let name = PROCESS.text(&VERBS_DEVICE);
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
        let found = address::of_interface(self.gid.interface).map_err(RdmaError::Addresses)?;
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
