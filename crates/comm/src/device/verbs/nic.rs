//! RDMA device of a team, and registered memory.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use causeway_ibverbs::{
    Access, Device, GidEntry, Libraries, MemoryRegion, Port, ProtectionDomain, choose, mlx5,
};

use super::doorbell::{Doorbell, Forwarder};
use super::error::VerbsError;
use crate::device::gpu::{Block, Gpu};
use crate::device::verbs::doorbell::Pages;

/// How a card is used.
#[derive(Debug, Clone, Copy)]
pub struct NicOptions {
    /// How long a wait of a kernel takes at most.
    pub limit: Duration,
    /// Who rings doorbells.
    pub doorbell: Doorbell,
}

impl Default for NicOptions {
    fn default() -> Self {
        Self { limit: Duration::from_secs(5), doorbell: Doorbell::default() }
    }
}

/// What all queues of a card share.
pub(super) struct Inner {
    pub(super) domain: ProtectionDomain,
    pub(super) port: Port,
    pub(super) gid: GidEntry,
    pub(super) gpu: Arc<dyn Gpu>,
    pub(super) pages: Pages,
    pub(super) forwarder: Forwarder,
    pub(super) options: NicOptions,
    /// In pinned memory: not 0 ends all waits of kernels.
    abort: Block,
}

impl Inner {
    /// Where kernels find the word that ends their waits.
    pub(super) fn abort_word(&self) -> u64 {
        self.abort.address
    }

    /// Nanoseconds of a wait.
    pub(super) fn limit(&self) -> u64 {
        u64::try_from(self.options.limit.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A network card, open for kernels of a GPU. Clones are the same one.
#[derive(Clone)]
pub struct Nic(pub(super) Arc<Inner>);

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nic").field("device", &self.name()).finish_non_exhaustive()
    }
}

impl Nic {
    /// Opens a card by its name, or with `None` the fastest one whose port is active.
    ///
    /// # Errors
    /// When there is none, its driver is not mlx5, or the GPU has no pinned memory.
    pub fn open(name: Option<&str>, gpu: Arc<dyn Gpu>, options: NicOptions) -> Result<Self, VerbsError> {
        let libraries = Libraries::load()?;
        let devices = Device::list(libraries)?;
        let no_port = || VerbsError::NoPort(name.map(str::to_owned));
        let chosen = choose(&devices, name, None).ok_or_else(no_port)?;
        let device = Device::open(libraries, &chosen.device.name)?;
        Self::open_port(&device, chosen.port, chosen.gid, gpu, options)
    }

    /// Opens a port of a card, with one of its addresses.
    ///
    /// # Errors
    /// When its driver is not mlx5, or the GPU has no pinned memory.
    pub fn open_port(
        device: &Device,
        port: &Port,
        gid: GidEntry,
        gpu: Arc<dyn Gpu>,
        options: NicOptions,
    ) -> Result<Self, VerbsError> {
        mlx5::check(device)?;
        let domain = ProtectionDomain::new(device)?;
        let abort = gpu.host_memory(64)?;
        Ok(Self(Arc::new(Inner {
            domain,
            port: port.clone(),
            gid,
            pages: Pages::new(Arc::clone(&gpu)),
            gpu,
            forwarder: Forwarder::default(),
            options,
            abort,
        })))
    }

    /// The kernel's name of it.
    pub fn name(&self) -> &str {
        self.0.domain.device().name()
    }

    /// Bytes a nanosecond of its port; 0 if the card does not say.
    pub fn bandwidth(&self) -> f64 {
        f64::from(self.0.port.rate) / 8_000.0
    }

    /// Ends all waits of kernels for this card's queues.
    pub fn abort(&self) {
        // SAFETY: the memory is pinned, holds the word, and lives as long as the card.
        unsafe { &*(self.0.abort.address as *const AtomicU32) }.store(1, Ordering::Release);
    }

    /// Lets kernels wait again.
    pub fn resume(&self) {
        // SAFETY: the memory is pinned, holds the word, and lives as long as the card.
        unsafe { &*(self.0.abort.address as *const AtomicU32) }.store(0, Ordering::Release);
    }

    /// Lets the card use memory: of the GPU, by a dma-buf or the module nvidia-peermem, or of the host.
    ///
    /// # Safety
    /// The memory stays until what is returned is dropped. The card, and with `access` the peers of its queue
    /// pairs, read and write it whenever requests say so.
    ///
    /// # Errors
    /// When the card or the kernel refuses.
    pub unsafe fn register(
        &self,
        address: u64,
        bytes: usize,
        access: Access,
    ) -> Result<Registered, VerbsError> {
        let domain = &self.0.domain;
        if let Some((descriptor, offset)) = self.0.gpu.dma_buf(address) {
            // SAFETY: the caller keeps the memory until what is returned is dropped, and the dma-buf does so
            // until the region goes.
            let region = unsafe {
                MemoryRegion::register_dma_buf(domain, descriptor.as_fd(), offset, bytes, address, access)
            };
            if let Ok(region) = region {
                return Ok(Registered { region, _nic: self.clone() });
            }
        }
        // SAFETY: the caller keeps the memory until what is returned is dropped. Where the kernel knows no
        // memory at a GPU's address, it refuses.
        let region = unsafe { MemoryRegion::register(domain, address as *mut u8, bytes, access) }?;
        Ok(Registered { region, _nic: self.clone() })
    }
}

/// Memory that a card reaches, as long as this lives.
#[derive(Debug)]
pub struct Registered {
    region: MemoryRegion,
    _nic: Nic,
}

impl Registered {
    /// The key by which requests of this side name it.
    pub fn lkey(&self) -> u32 {
        self.region.local_key()
    }

    /// The key by which requests of a peer name it.
    pub fn rkey(&self) -> u32 {
        self.region.remote_key()
    }
}
