//! Destination of a fetch: the memory that bytes go to, the device that copies, and what is to be fetched
//! there.

use super::bar::usable;
use super::channel::{Ends, Gpu, Joined};
use crate::cuda::{self, CudaError, DeviceMemory, Driver, GpuAccess, GpuNumber, Mapping, Scope};
use crate::matching::Source;
use crate::tracer::Traffic;
use crate::verbs;

/// What is to be fetched, and where to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) operation: u64,
    pub(crate) bytes: u64,
    pub(crate) source: Source,
    pub(crate) word: Option<u16>,
    pub(crate) to: u64,
    /// Whether that was memory on a GPU when the receive was posted.
    pub(crate) to_gpu: bool,
    /// What the sender says of its traffic with this rank.
    pub(crate) traffic: Traffic,
}

/// Where the bytes go.
pub(crate) struct Destination {
    /// The device whose engine copies, if there is one.
    pub(crate) device: Option<(&'static Driver, i32)>,
    pub(crate) memory: Option<DeviceMemory>,
    /// What that device is to the peer's.
    pub(crate) access: GpuAccess,
}

impl Destination {
    /// An address to which bytes come from a peer's GPU with this number.
    pub(crate) fn at(address: u64, peer: GpuNumber) -> Self {
        let Some(driver) = Driver::loaded() else {
            return Self { device: None, memory: None, access: GpuAccess::Unseen };
        };
        let memory = DeviceMemory::at(driver, address);
        let device = memory.map(|memory| memory.device).or_else(|| cuda::current_device(driver));
        let access = device.map_or(GpuAccess::Unseen, |device| cuda::gpu_access(driver, device, peer));
        Self { device: device.map(|device| (driver, device)), memory, access }
    }

    /// Memory on a GPU that has been looked at.
    pub(crate) fn of(driver: &'static Driver, memory: DeviceMemory, peer: GpuNumber) -> Self {
        let access = cuda::gpu_access(driver, memory.device, peer);
        Self { device: Some((driver, memory.device)), memory: Some(memory), access }
    }

    /// The device for which a peer's memory is opened: the one that copies where it reaches that memory, else
    /// the peer's own.
    pub(crate) fn opener(&self) -> Option<(&'static Driver, i32)> {
        let (driver, device) = self.device?;
        Some((driver, if let GpuAccess::Seen(other) = self.access { other } else { device }))
    }

    /// The context in which it is opened.
    pub(crate) fn opening_scope(&self) -> Result<Option<Scope<'static>>, CudaError> {
        match (self.access, self.device) {
            (GpuAccess::Seen(other), Some((driver, _))) => Scope::of_device(driver, other).map(Some),
            _ => self.scope(),
        }
    }

    /// Lets the device use memory that may have been mapped for another one of this rank's.
    pub(crate) fn let_use(&self, mapping: &Mapping) -> Result<(), CudaError> {
        self.opener().map_or(Ok(()), |(_, device)| mapping.let_use(device))
    }

    /// The context in which copies are made; none where both ends are memory of the host.
    pub(crate) fn scope(&self) -> Result<Option<Scope<'static>>, CudaError> {
        match (self.device, self.memory) {
            (Some((driver, _)), Some(memory)) => Scope::of(driver, &memory).map(Some),
            (Some((driver, device)), None) => Scope::of_device(driver, device).map(Some),
            (None, _) => Ok(None),
        }
    }

    /// What this place and the sender's have, as channels ask for it.
    pub(crate) fn ends(&self, source: Source) -> Ends {
        let own_number = self.device.and_then(|(driver, device)| cuda::gpu_number(driver, device));
        let joined = match (own_number, self.access) {
            (Some(number), _) if number == source.gpu => Joined::SameGpu,
            (_, GpuAccess::Peer) => Joined::Peers,
            (_, GpuAccess::Seen(_)) => Joined::ByDriver,
            (_, GpuAccess::Unseen) => Joined::Apart,
        };
        let rdma = match (source.rdma, verbs::usable()) {
            (true, Ok(())) => Ok(()),
            (false, _) => Err("the sender has none".to_owned()),
            (true, Err(why)) => Err(why.clone()),
        };
        let is_gpudirect = |(driver, _), memory| rdma.is_ok() && verbs::is_gpudirect(driver, &memory);
        let gpudirect =
            self.device.zip(self.memory).is_some_and(|(device, memory)| is_gpudirect(device, memory));
        let own_bar = || match (self.device, &self.memory) {
            (Some((driver, _)), Some(memory)) => usable(driver, memory).map_err(str::to_owned),
            // Memory of the host needs none.
            _ => Ok(()),
        };
        let bar =
            source.bar.then(own_bar).unwrap_or_else(|| Err("the sender does not reach its own".to_owned()));
        Ends {
            own: self.device.map(|_| Gpu { ipc: true, export: true, gpudirect }),
            peer: Some(Gpu { ipc: source.ipc, export: source.export, gpudirect: source.gpudirect }),
            joined,
            bar,
            rdma,
        }
    }
}
