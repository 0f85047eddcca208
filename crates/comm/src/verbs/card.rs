//! Which card is used, or why is there none?

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use causeway_config::read::PROCESS;
use causeway_config::table::{VERBS_DEVICE, VERBS_GID};
use causeway_ibverbs::{Device, GidEntry, Libraries, Port, Transport, choose};

use super::address;
use super::error::CardError;

/// A port of a device, which is open.
#[derive(Debug, Clone)]
pub(super) struct Card {
    pub(super) device: Device,
    pub(super) port: Port,
    pub(super) gid: GidEntry,
}

impl Card {
    /// The one for a peer to whom the address `local` leads, if the two are joined by a network. Opened once
    /// for each address.
    pub(super) fn open(local: Option<IpAddr>) -> Result<Self, CardError> {
        static OPEN: Mutex<Vec<(Option<IpAddr>, Card)>> = Mutex::new(Vec::new());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, card)) = open.iter().find(|(address, _)| *address == local) {
            return Ok(card.clone());
        }
        if number_of_cards(Path::new("/")) == 0 {
            return Err(CardError::NoDevice);
        }
        let libraries = Libraries::load()?;
        let devices = Device::list(libraries)?;
        let wanted = PROCESS.text(&VERBS_DEVICE);
        let chosen = choose(&devices, wanted.as_deref(), local).ok_or(CardError::NoPort)?;
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
        open.push((local, card.clone()));
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
    USABLE.get_or_init(|| Card::open(None).map(drop).map_err(|error| error.to_string()))
}

/// RDMA devices of the kernel, by the files below a root.
pub(crate) fn number_of_cards(root: &Path) -> usize {
    std::fs::read_dir(root.join("sys/class/infiniband")).map_or(0, Iterator::count)
}
