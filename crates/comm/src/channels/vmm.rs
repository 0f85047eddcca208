//! Channel `vmm`: the peer's memory, or a bounce buffer on its GPU, mapped from a descriptor
//! (`cuMemExportToShareableHandle`).
//!
//! It is the channel of isolated containers: between two H200 it kept 392 GB/s in namespaces of every kind
//! (driver 580.159.04, 2026-11-21), since a descriptor knows nothing of process ids.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use super::channel::{Channel, Ends, Missing};
use super::ops::{CHOOSE_OTHER_GPUS, ChannelOps, SHARE_A_FOLDER};
use super::peer_memory::{OpenMemory, PeerMemoryOps, copy_from_region, is_needed};
use super::protocol::{Message, Refusal, TransferError};
use super::receiver::{Destination, FetchRequest, Receiver};
use super::sender::{Payload, PayloadSender, SentBounce};
use super::staging::Ring;
use crate::cuda::{self, Bounce, DeviceMemory, Mapping, PendingCopy};
use crate::matching::Source;
use crate::pair::{Locality, Pair};

/// The channel.
pub(super) struct Vmm;

impl ChannelOps for Vmm {
    fn probe(&self, pair: &Pair, ends: &Ends) -> Result<(), Missing> {
        if pair.locality == Locality::OtherHost {
            return Err(Missing::OtherHost);
        }
        let gpus = ends.gpus()?;
        // Within a process nothing has to be exported.
        if pair.locality != Locality::SameProcess && gpus.iter().any(|gpu| !gpu.export) {
            return Err(Missing::NoExport);
        }
        ends.check_gpu_access()?;
        pair.descriptors.as_ref().map(drop).map_err(|why| Missing::NoDescriptors(why.clone()))
    }

    /// Copies within GPUs and between them have no bound here.
    fn max_rate(&self) -> f64 {
        f64::INFINITY
    }

    fn advice(&self, missing: &Missing) -> Option<&'static str> {
        match missing {
            Missing::NoDescriptors(_) => Some(SHARE_A_FOLDER),
            Missing::PeerAccess => Some(CHOOSE_OTHER_GPUS),
            Missing::NoExport => Some(
                "Where the GPU is a virtual one, its provider decides what can be exported; `staged` does \
                 without.",
            ),
            _ => None,
        }
    }

    fn accepts(&self, source: &Source) -> bool {
        source.export
    }

    fn peer_memory(&self) -> Option<&dyn PeerMemoryOps> {
        Some(self)
    }

    fn send(&self, sender: &mut PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError> {
        if payload.memory.exportable && payload.is_within() {
            send_export(sender, payload)
        } else if payload.memory.device_exports {
            send_bounced(sender, payload)
        } else {
            Err(sender.refused(Channel::Vmm, Refusal::Channel))
        }
    }

    fn receive(
        &self,
        receiver: &mut Receiver,
        request: &FetchRequest,
        destination: &Destination,
    ) -> Result<(), TransferError> {
        let scope = destination.scope();
        receiver.request(Channel::Vmm, request)?;
        let (message, descriptor) = receiver.receive_message(Channel::Vmm)?;
        match message {
            Message::Region { buffer } => {
                copy_from_region(self, receiver, buffer, request, destination, scope)
            }
            Message::Bounce { count, bytes, total, is_new } => {
                let ring =
                    Ring::checked(count, bytes).filter(|ring| ring.total() <= total).map(Ring::growing);
                let ring = ring.ok_or_else(|| receiver.connection.wrong("a bounce buffer of such a size"))?;
                let mapped = map_bounce(receiver, is_new, descriptor, total, destination);
                if is_new {
                    receiver.connection.send_message(Message::Need { needed: mapped.is_ok() })?;
                }
                let start = mapped?;
                receiver.pass(None, request, scope, ring, Channel::Vmm, |slot| start + ring.offset(slot))
            }
            _ => Err(receiver.connection.wrong("another answer than the channel has")),
        }
    }
}

/// Says where the payload lies, and sends its memory's descriptor where the peer has not mapped that yet.
fn send_export(sender: &PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError> {
    let descriptor = cuda::export(payload.scope.driver(), payload.memory)?;
    if is_needed(sender.connection, payload)? {
        let message = Message::Export { bytes: payload.memory.bytes };
        sender.connection.send_with_descriptor(message, Some(descriptor.as_fd()))?;
    }
    Ok(())
}

/// Passes the payload through memory on its GPU, which can be exported where the payload's own cannot.
fn send_bounced(sender: &mut PayloadSender<'_>, payload: &Payload<'_>) -> Result<(), TransferError> {
    let (scope, device) = (payload.scope, payload.memory.device);
    let needed = Ring::of_bounce(payload.bytes);
    let fits = |known: &SentBounce| known.device == device && known.ring.bytes >= needed.bytes;
    let (bounce, descriptor) = match sender.bounce.take().filter(fits) {
        Some(known) => (known, None),
        None => {
            let Bounce { mapping, descriptor, bytes } =
                Bounce::new(scope.driver(), device, needed.total() as usize)?;
            (SentBounce { device, ring: needed, mapping, bytes: bytes as u64 }, Some(descriptor))
        }
    };
    let Ring { count, bytes, .. } = bounce.ring;
    let is_new = descriptor.is_some();
    let message = Message::Bounce { count, bytes, total: bounce.bytes, is_new };
    sender.connection.send_with_descriptor(message, descriptor.as_ref().map(OwnedFd::as_fd))?;
    // The buffer is this peer's alone, which has its own descriptor of it: a rank with many peers would keep one open
    // for each of them.
    drop(descriptor);
    if is_new {
        // The peer may not be able to map it, and says so.
        match sender.connection.receive_message()?.0 {
            Message::Need { needed: true } => {}
            Message::Need { needed: false } => return Ok(()),
            _ => return Err(sender.connection.wrong("an answer to a bounce buffer")),
        }
    }
    let (start, ring) = (bounce.mapping.address, bounce.ring);
    let passed = sender.pass(payload.bytes, ring, |slot, at, bytes| {
        let (to, from) = (start + ring.offset(slot), payload.address + at);
        // SAFETY: the program leaves the range alone until the offer ends, and the slot, which is mapped for
        // as long as this runs, is used by no other now.
        Ok(Some(unsafe { PendingCopy::begin(scope, to, from, bytes) }?))
    });
    sender.bounce = Some(bounce);
    passed
}

/// Maps the bounce buffer that comes with a payload, if it is a new one. Says where it begins here.
fn map_bounce(
    receiver: &mut Receiver,
    is_new: bool,
    descriptor: Option<OwnedFd>,
    total: u64,
    destination: &Destination,
) -> Result<u64, TransferError> {
    let connection = &receiver.connection;
    if is_new {
        receiver.has_opened = true;
        receiver.bounce = None;
        let (driver, device) =
            destination.opener().ok_or_else(|| connection.wrong("a bounce buffer for no GPU"))?;
        let _scope = destination.opening_scope()?;
        let descriptor = descriptor.ok_or(TransferError::NoDescriptor(connection.peer))?;
        let bytes = usize::try_from(total).map_err(|_| connection.wrong("a bounce buffer of such a size"))?;
        receiver.bounce = Some(Mapping::import(driver, descriptor.as_fd(), bytes, device)?);
    }
    let mapping =
        receiver.bounce.as_ref().ok_or_else(|| connection.wrong("a bounce buffer that is not there"))?;
    destination.let_use(mapping)?;
    Ok(mapping.address)
}

impl PeerMemoryOps for Vmm {
    fn channel(&self) -> Channel {
        Channel::Vmm
    }

    fn opens(&self, source: &Source) -> bool {
        source.direct
    }

    fn exports(&self, memory: &DeviceMemory) -> bool {
        memory.exportable
    }

    fn find(&self, receiver: &mut Receiver, buffer: u64, destination: &Destination) -> Option<OpenMemory> {
        let mapping = receiver.mapped.get(buffer)?;
        destination.let_use(mapping).ok()?;
        Some(OpenMemory::Mapped(Arc::clone(mapping)))
    }

    fn open(
        &self,
        receiver: &mut Receiver,
        buffer: u64,
        destination: &Destination,
    ) -> Result<u64, TransferError> {
        let (message, descriptor) = receiver.receive_message(Channel::Vmm)?;
        let connection = &receiver.connection;
        let Message::Export { bytes } = message else {
            return Err(connection.wrong("a region without a way to it"));
        };
        // All that the peer sends has been received: what fails from here on leaves the connection in order.
        let _scope = destination.opening_scope()?;
        let (driver, device) = destination.opener().ok_or_else(|| connection.wrong("a region for no GPU"))?;
        let descriptor = descriptor.ok_or(TransferError::NoDescriptor(connection.peer))?;
        let bytes = usize::try_from(bytes).map_err(|_| connection.wrong("memory of such a size"))?;
        let import = || Mapping::import(driver, descriptor.as_fd(), bytes, device).map(Arc::new);
        let mapping = receiver.mapped.open(import)?;
        let start = mapping.address;
        receiver.mapped.insert(buffer, mapping);
        Ok(start)
    }

    fn forget(&self, receiver: &mut Receiver, buffer: u64) {
        receiver.mapped.remove(buffer);
    }
}
