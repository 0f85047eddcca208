//! Receiver: the destination of a fetch, what channels keep of a peer that sends, and payloads that come
//! through slots.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::bar::{Windows, usable};
use super::cache::Cache;
use super::channel::{Channel, Ends, Gpu, Joined};
use super::protocol::{Message, TransferError};
use super::rdma::RdmaReader;
use super::staging::{HOST_SLOTS, HostSlots, PendingCopies, Ring};
use crate::bootstrap::Connection;
use crate::cuda::{
    self, CudaError, DeviceMemory, Driver, GpuAccess, GpuNumber, Mapping, Opened, PendingCopy, Scope,
};
use crate::matching::Source;
use crate::tracer::Traffic;
use crate::verbs;

/// Request of a fetch: what is to be fetched, and where to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchRequest {
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

/// Buffers of a peer that stay open, of each kind.
const MAX_OPEN_MAPPINGS: usize = 32;

/// What channels keep of a peer that sends, from one payload to the next.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) connection: Connection,
    /// Memory of the host that both ends map; over a network, this end's.
    pub(super) slots: Option<HostSlots>,
    /// The bounce buffer on the peer's GPU.
    pub(super) bounce: Option<Mapping>,
    /// The path to the peer's card.
    pub(super) rdma: Option<RdmaReader>,
    /// Memory of the GPUs here that the processor writes.
    pub(super) windows: Windows,
    /// Buffers of the peer by handles of cudaIPC.
    pub(super) opened: Cache<Arc<Opened>>,
    /// Buffers of the peer by descriptors.
    pub(super) mapped: Cache<Arc<Mapping>>,
    /// Whether the fetch that is being made has opened something that stays open.
    pub(crate) has_opened: bool,
    /// Whether RDMA devices may write to the memory of this rank's GPUs.
    pub(crate) allows_gpudirect: bool,
    /// Whether they have moved the last payload straight between the memory of two GPUs.
    pub(crate) used_gpudirect: bool,
}

impl Receiver {
    /// For a peer of which nothing is known.
    pub(crate) fn new(connection: Connection) -> Self {
        Self {
            connection,
            slots: None,
            bounce: None,
            rdma: None,
            windows: Windows::default(),
            opened: Cache::new(MAX_OPEN_MAPPINGS),
            mapped: Cache::new(MAX_OPEN_MAPPINGS),
            has_opened: false,
            allows_gpudirect: true,
            used_gpudirect: false,
        }
    }

    /// Asks for the payload of an operation.
    pub(super) fn request(&self, channel: Channel, request: &FetchRequest) -> Result<(), TransferError> {
        self.connection.send_message(Message::Fetch { channel, operation: request.operation })
    }

    /// The sender's next message. That it refuses is an error, which names the channel.
    pub(crate) fn receive_message(
        &self,
        channel: Channel,
    ) -> Result<(Message, Option<OwnedFd>), TransferError> {
        match self.connection.receive_message()? {
            (Message::Refused(refusal), _) => {
                Err(TransferError::Refused { peer: self.connection.peer, channel, refusal })
            }
            heard => Ok(heard),
        }
    }

    /// Hands slots in memory of the host over to the peer, if it has none of this end's.
    pub(super) fn send_slots(&mut self) -> Result<(), TransferError> {
        if self.slots.is_none() {
            let (slots, memory) = HostSlots::new(HOST_SLOTS).map_err(TransferError::Memory)?;
            let Ring { count, bytes, .. } = slots.ring;
            self.connection
                .send_with_descriptor(Message::Slots { count, bytes }, Some(memory.descriptor()))?;
            self.slots = Some(slots);
            self.has_opened = true;
        }
        Ok(())
    }

    /// The slots in memory of the host.
    pub(super) fn slots(&self) -> Result<&HostSlots, TransferError> {
        self.slots.as_ref().ok_or_else(|| self.connection.wrong("slots"))
    }

    /// The peer has not got the slots: they are handed over again before the next payload through them.
    pub(crate) fn forget_slots(&mut self) {
        self.slots = None;
    }

    /// Receives a payload through slots; while one is copied out the next one is heard of. Where a copy fails
    /// the rest is heard all the same, so that the peer and this end stay in step.
    pub(super) fn pass(
        &self,
        first: Option<Message>,
        request: &FetchRequest,
        scope: Result<Option<Scope<'static>>, CudaError>,
        ring: Ring,
        channel: Channel,
        address: impl Fn(u16) -> u64,
    ) -> Result<(), TransferError> {
        let mut outcome = scope.as_ref().map(drop).map_err(|error| *error);
        let mut first = first;
        let mut pending = PendingCopies::default();
        for (slot, at, bytes) in ring.pieces(request.bytes) {
            let message = match first.take() {
                Some(message) => message,
                None => self.receive_message(channel)?.0,
            };
            if message != (Message::Piece { slot, bytes }) {
                return Err(self.connection.wrong("another piece than the next"));
            }
            let (to, from, bytes) = (request.to + at, address(slot), bytes as usize);
            let copy = match (&scope, &outcome) {
                // SAFETY: the slot is mapped and holds these bytes, and the receive's memory is this
                // function's until the receive ends. The copy is waited for before this returns.
                (Ok(Some(scope)), Ok(())) => unsafe { PendingCopy::begin(scope, to, from, bytes) }.map(Some),
                (Ok(None), Ok(())) => {
                    // SAFETY: the slot is mapped and holds these bytes, the receive's memory is this
                    // function's until the receive ends, and both are memory of the host, which do not
                    // overlap.
                    unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
                    Ok(None)
                }
                // There is nothing to be copied any more.
                _ => Ok(None),
            };
            pending.push(copy.unwrap_or_else(|error| keep(&mut outcome, error)), slot);
            if pending.len() >= usize::from(ring.count.div_ceil(2)) {
                self.free_first(&mut pending, &mut outcome)?;
            }
        }
        while pending.len() > 0 {
            self.free_first(&mut pending, &mut outcome)?;
        }
        Ok(outcome?)
    }

    /// Tells the sender of the slot that has been read first.
    fn free_first(
        &self,
        pending: &mut PendingCopies<u16>,
        outcome: &mut Result<(), CudaError>,
    ) -> Result<(), TransferError> {
        let slot = match pending.end_first() {
            Ok(Some(slot)) => slot,
            Ok(None) => return Ok(()),
            Err((error, slot)) => keep(outcome, error).unwrap_or(slot),
        };
        self.connection.send_message(Message::Free { slot })
    }
}

/// Keeps the first error of several.
fn keep<T>(outcome: &mut Result<(), CudaError>, error: CudaError) -> Option<T> {
    if outcome.is_ok() {
        *outcome = Err(error);
    }
    None
}
