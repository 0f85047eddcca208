//! Receiver's reads: a payload that this rank's card reads out of the sender's memory or slots.

use std::collections::VecDeque;

use causeway_ibverbs::{RemoteMemory, Segment};

use super::path::{RdmaReader, RdmaStaging, Regions};
use crate::channels::channel::Channel;
use crate::channels::protocol::{Message, TransferError};
use crate::channels::receiver::{Destination, FetchRequest, Receiver};
use crate::channels::staging::{HOST_SLOTS, PendingCopies, Ring};
use crate::cuda::{self, CudaError, PendingCopy, Scope};
use crate::verbs::{NicSelector, RdmaError, Reader, Use};

/// Reads under way of a payload that passes through slots: while one piece is read the sender fills the next.
const MAX_READS_OF_SLOTS: usize = 2;

/// What a read brings at most that goes straight into a GPU's memory, and at least: each queue pair has a part of a message
/// that is longer.
const MAX_DIRECT_BYTES: u64 = 4 << 20;
const MIN_DIRECT_BYTES: u64 = 64 << 10;

/// The pieces of a payload that goes straight into a GPU's memory over so many queue pairs.
fn direct_ring(bytes: u64, queue_pairs: usize) -> Ring {
    let share = bytes.div_ceil(queue_pairs as u64).next_multiple_of(4096);
    // At most MAX_DIRECT_BYTES.
    let piece = share.clamp(MIN_DIRECT_BYTES, MAX_DIRECT_BYTES) as u32;
    // No slots: how many are under way is the path's business.
    Ring { count: u16::MAX, bytes: piece, first: piece }
}

/// Where the payload lies at the sender.
#[derive(Debug, Clone, Copy)]
enum From {
    /// At an address that the card may read.
    Exposed(RemoteMemory),
    /// It comes through the sender's slots.
    Slots,
}

/// A read that is under way.
#[derive(Debug)]
struct Read {
    number: u64,
    /// The sender's slot.
    slot: u16,
    /// This end's slot.
    to_slot: u16,
    at: u64,
    bytes: u32,
}

/// A payload that is being read.
struct Payload<'a> {
    receiver: &'a Receiver,
    reader: &'a mut RdmaReader,
    request: &'a FetchRequest,
    scope: Option<&'a Scope<'static>>,
    from: From,
    /// The key of the memory that the bytes go straight into; none where they go through slots.
    straight: Option<u32>,
    pieces: u64,
    reads: VecDeque<Read>,
    pending: PendingCopies<()>,
    /// What has gone wrong: then the sender's pieces are heard all the same, so that both ends stay in step.
    outcome: Result<(), CudaError>,
    failure: Option<RdmaError>,
}

/// Fetches a payload by RDMA read. The two cards are joined before the first one.
pub(in crate::channels) fn receive(
    receiver: &mut Receiver,
    channel: Channel,
    request: &FetchRequest,
    destination: &Destination,
) -> Result<(), TransferError> {
    let mut reader = match receiver.rdma.take() {
        Some(reader) => reader,
        None => {
            receiver.has_opened = true;
            connect(receiver, channel, destination)?
        }
    };
    let outcome = read_payload(receiver, &mut reader, channel, request, destination);
    if reader.path.is_idle() {
        receiver.rdma = Some(reader);
    }
    // Otherwise the path ends here, before anybody else uses the memory that it was to fill.
    receiver.used_gpudirect = outcome?;
    Ok(())
}

/// Joins a card near the destination with the sender's.
fn connect(
    receiver: &Receiver,
    channel: Channel,
    destination: &Destination,
) -> Result<RdmaReader, TransferError> {
    let connection = &receiver.connection;
    let failed = |cause| connection.rdma_failed(cause);
    let gpu = destination.device.and_then(|(driver, device)| cuda::pci_address(driver, device));
    let selector = NicSelector { local: connection.local_address(), gpu, ..NicSelector::default() };
    let joining = Reader::new(&selector).map_err(failed)?;
    let own = joining.ends();
    // At most MAX_QUEUE_PAIRS.
    connection.send_message(Message::Join { more: own.len() as u16 - 1 })?;
    own.iter().try_for_each(|end| connection.send_endpoint(end))?;
    let more = match receiver.receive_message(channel)?.0 {
        Message::Joined { more } if usize::from(more) < own.len() => more,
        _ => return Err(connection.wrong("another answer than to be joined")),
    };
    let end = connection.receive_endpoint()?;
    let others = (0..more).map(|_| connection.receive_endpoint()).collect::<Result<Vec<_>, _>>()?;
    let ring = Ring::checked(end.slots.count, end.slots.bytes);
    let ring = ring.filter(|ring| ring.bytes <= HOST_SLOTS.bytes);
    let ring = ring.ok_or_else(|| connection.wrong("slots of such a size"))?;
    let path = joining.join(&end, &others, connection.peer_address()).map_err(failed)?;
    let slots = RdmaStaging::new(path.domain(), Use::Filled).map_err(failed)?;
    Ok(RdmaReader { path, regions: Regions::new(), slots, peer: end.slots.memory, ring })
}

/// Says whether the bytes went straight from the sender's GPU to this rank's.
fn read_payload(
    receiver: &Receiver,
    reader: &mut RdmaReader,
    channel: Channel,
    request: &FetchRequest,
    destination: &Destination,
) -> Result<bool, TransferError> {
    let scope = destination.scope()?;
    if let Some(scope) = &scope {
        reader.slots.pin(scope);
    }
    let straight = match (&scope, &destination.memory) {
        (Some(scope), Some(memory)) if receiver.allows_gpudirect && memory.has(request.to, request.bytes) => {
            reader.regions.of(reader.path.domain(), scope, memory, Use::Filled)
        }
        _ => None,
    };
    receiver.connection.send_message(Message::Fetch { channel, operation: request.operation })?;
    let first = receiver.receive_message(channel)?.0;
    let from = match first {
        Message::Exposed { key, address } => From::Exposed(RemoteMemory { address, key }),
        Message::Piece { .. } => From::Slots,
        _ => return Err(receiver.connection.wrong("another answer than the channel has")),
    };
    let is_exposed = matches!(from, From::Exposed(_));
    let ring = match from {
        From::Slots => reader.ring,
        From::Exposed(_) if straight.is_some() => direct_ring(request.bytes, reader.path.queue_pairs()),
        From::Exposed(_) => HOST_SLOTS,
    };
    let payload = Payload {
        receiver,
        reader,
        request,
        scope: scope.as_ref(),
        from,
        straight: straight.as_ref().map(|region| region.local_key()),
        pieces: 0,
        reads: VecDeque::new(),
        pending: PendingCopies::default(),
        outcome: Ok(()),
        failure: None,
    };
    payload.read(channel, first, ring)?;
    if let (Some(_), Some(scope), Some(memory)) = (&straight, &scope, &destination.memory) {
        cuda::flush_writes(scope, memory)?;
    }
    Ok(is_exposed && straight.is_some())
}

impl Payload<'_> {
    fn read(mut self, channel: Channel, first: Message, ring: Ring) -> Result<(), TransferError> {
        let mut first = Some(first);
        for (slot, at, bytes) in ring.pieces(self.request.bytes) {
            if let From::Slots = self.from {
                let message = match first.take() {
                    Some(message) => message,
                    None => self.receiver.receive_message(channel)?.0,
                };
                if message != (Message::Piece { slot, bytes }) {
                    return Err(self.receiver.connection.wrong("another piece than the next"));
                }
            } else if self.has_failed() {
                break;
            }
            self.wait_for_slot()?;
            if self.has_failed() {
                self.free(slot)?;
            } else {
                self.begin(ring, slot, at, bytes)?;
            }
        }
        while !self.reads.is_empty() {
            self.end_first()?;
        }
        while self.pending.len() > 0 {
            self.end_copy();
        }
        match self.failure {
            Some(cause) => Err(self.receiver.connection.rdma_failed(cause)),
            None => Ok(self.outcome?),
        }
    }

    fn has_failed(&self) -> bool {
        self.failure.is_some() || self.outcome.is_err()
    }

    /// Waits until one more piece has a place.
    fn wait_for_slot(&mut self) -> Result<(), TransferError> {
        let limit = match (self.from, self.straight) {
            (From::Slots, _) => MAX_READS_OF_SLOTS,
            (From::Exposed(_), None) => usize::from(HOST_SLOTS.count) - 1,
            (From::Exposed(_), Some(_)) => self.reader.path.max_reads(),
        };
        while self.reads.len() >= limit {
            self.end_first()?;
        }
        while self.straight.is_none()
            && self.reads.len() + self.pending.len() >= usize::from(HOST_SLOTS.count)
        {
            if self.pending.len() > 0 {
                self.end_copy();
            } else {
                self.end_first()?;
            }
        }
        Ok(())
    }

    /// Begins to read a piece.
    fn begin(&mut self, ring: Ring, slot: u16, at: u64, bytes: u32) -> Result<(), TransferError> {
        let to_slot = (self.pieces % u64::from(HOST_SLOTS.count)) as u16;
        let from = match self.from {
            // What the sender says may be anything: the card refuses what lies outside.
            From::Exposed(exposed) => RemoteMemory { address: exposed.address.wrapping_add(at), ..exposed },
            From::Slots => {
                let peer = self.reader.peer;
                RemoteMemory { address: peer.address.wrapping_add(ring.offset(slot)), ..peer }
            }
        };
        let into = match self.straight {
            Some(key) => Segment { address: self.request.to + at, length: bytes, key },
            None => self.reader.slots.segment(to_slot, bytes),
        };
        // SAFETY: the receive's memory is this function's until the receive ends, and a slot is not copied
        // from any more. Whoever called waits for the read, or ends the path.
        match unsafe { self.reader.path.read(from, into) } {
            Ok(number) => {
                self.reads.push_back(Read { number, slot, to_slot, at, bytes });
                self.pieces += 1;
            }
            Err(cause) => {
                self.failure = Some(cause);
                self.free(slot)?;
            }
        }
        // A sender whose slots are all in use waits until it hears of one.
        while matches!(self.from, From::Slots) && self.reads.len() >= usize::from(ring.count) {
            self.end_first()?;
        }
        Ok(())
    }

    /// Waits for the read that was begun first, and begins to copy what it has brought.
    fn end_first(&mut self) -> Result<(), TransferError> {
        let Some(Read { number, slot, to_slot, at, bytes }) = self.reads.pop_front() else { return Ok(()) };
        if self.failure.is_none()
            && let Err(cause) = self.reader.path.wait(number, self.receiver.connection.descriptor())
        {
            self.failure = Some(cause);
        }
        self.free(slot)?;
        if self.has_failed() || self.straight.is_some() {
            return Ok(());
        }
        let (to, from) = (self.request.to + at, self.reader.slots.address(to_slot));
        match self.scope {
            // SAFETY: the receive's memory is this function's until the receive ends, the slot is mapped and
            // holds these bytes, and the copy is waited for before this returns.
            Some(scope) => match unsafe { PendingCopy::begin(scope, to, from, bytes as usize) } {
                Ok(copy) => self.pending.push(Some(copy), ()),
                Err(error) => self.outcome = Err(error),
            },
            None => {
                // SAFETY: the receive's memory is this function's until the receive ends, the slot is mapped
                // and holds these bytes, and both are memory of the host, which do not overlap.
                unsafe {
                    core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize);
                }
            }
        }
        Ok(())
    }

    /// Waits for the copy that was begun first.
    fn end_copy(&mut self) {
        if let Err((error, ())) = self.pending.end_first()
            && self.outcome.is_ok()
        {
            self.outcome = Err(error);
        }
    }

    /// Tells the sender that a slot of its may be filled again.
    fn free(&self, slot: u16) -> Result<(), TransferError> {
        match self.from {
            From::Slots => self.receiver.connection.send_message(Message::Free { slot }),
            From::Exposed(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_pair_has_a_part_of_a_long_message() {
        for (bytes, queue_pairs, pieces) in [
            (1, 2, 1),
            (MIN_DIRECT_BYTES, 2, 1),
            (MIN_DIRECT_BYTES + 1, 2, 2),
            (1 << 20, 1, 1),
            (1 << 20, 2, 2),
            ((1 << 20) + 1, 4, 4),
            (8 << 20, 2, 2),
            (64 << 20, 2, 16),
        ] {
            let cut: Vec<_> = direct_ring(bytes, queue_pairs).pieces(bytes).collect();
            assert_eq!(cut.len(), pieces, "{bytes} over {queue_pairs}: {cut:?}");
            assert_eq!(cut.iter().map(|(_, _, bytes)| u64::from(*bytes)).sum::<u64>(), bytes);
        }
    }
}
