//! Which card is used, or why is there none?

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use causeway_config::read::PROCESS;
use causeway_config::table::{VERBS_DEVICE, VERBS_GID};
use causeway_ibverbs::{Description, Device, Gid, GidEntry, Libraries, Port, Transport};

use super::address;
use super::error::CardError;
use super::near::choose_near;

/// A port of a device, which is open.
#[derive(Debug, Clone)]
pub(super) struct Card {
    pub(super) device: Device,
    pub(super) port: Port,
    pub(super) gid: GidEntry,
}

/// Which card is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The address of this end of a connection over a network to the peer; none within a host.
    pub(crate) local: Option<IpAddr>,
    /// The PCI address of the GPU that the card is to be near, if that is in this host.
    pub(crate) gpu: Option<String>,
    /// The card's own GID, where the peer of this host names one that is to be used by both.
    pub(crate) gid: Option<Gid>,
}

impl Card {
    /// The one that is wanted. Opened once for each such wish.
    pub(super) fn open(wanted: &Wanted) -> Result<Self, CardError> {
        static OPEN: Mutex<Vec<(Wanted, Card)>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, card)) = open.iter().find(|(known, _)| known == wanted) {
            return Ok(card.clone());
        }
        if count_rdma_devices(Path::new("/")) == 0 {
            return Err(CardError::NoDevice);
        }
        let libraries = Libraries::load()?;
        let devices = Device::list(libraries)?;
        let name = PROCESS.text(&VERBS_DEVICE);
        let has = |device: &Description, gid| {
            device.ports.iter().flat_map(|port| &port.gids).any(|entry| entry.gid == gid)
        };
        let named = wanted.gid.and_then(|gid| devices.iter().find(|device| has(device, gid)));
        let name = named.map(|device| device.name.clone()).or(name);
        let Wanted { local, gpu, .. } = wanted;
        let chosen = choose_near(Path::new("/"), &devices, name.as_deref(), *local, gpu.as_deref());
        let chosen = chosen.ok_or(CardError::NoPort)?;
        let gid = match PROCESS.number(&VERBS_GID)? {
            None => chosen.gid,
            Some(index) => {
                // At most 1023.
                let index = index as u32;
                let found = chosen.port.gids.iter().find(|entry| entry.index == index).copied();
                found.ok_or_else(|| CardError::NoGid { device: chosen.device.name.clone(), index })?
            }
        };
        let device = Device::open(libraries, &chosen.device.name)?;
        let card = Self { device, port: chosen.port.clone(), gid };
        open.push((wanted.clone(), card.clone()));
        Ok(card)
    }

    /// Whether rdma_cm alone joins its queue pairs.
    pub(super) fn needs_manager(&self) -> bool {
        self.device.transport() == Transport::Iwarp
    }

    /// The address at which rdma_cm reaches it from this host.
    pub(super) fn address(&self) -> Result<IpAddr, CardError> {
        let found = address::of_interface(self.gid.interface).map_err(CardError::Addresses)?;
        found.ok_or_else(|| CardError::NoAddress(self.device.name().to_owned()))
    }
}

/// Whether this process has a card that it can use, or why not. Found out once.
pub(crate) fn usable() -> &'static Result<(), String> {
    static USABLE: OnceLock<Result<(), String>> = OnceLock::new();
    USABLE.get_or_init(|| Card::open(&Wanted::default()).map(drop).map_err(|error| error.to_string()))
}

/// RDMA devices of the kernel, by the files below a root.
pub(crate) fn count_rdma_devices(root: &Path) -> usize {
    std::fs::read_dir(root.join("sys/class/infiniband")).map_or(0, Iterator::count)
}
