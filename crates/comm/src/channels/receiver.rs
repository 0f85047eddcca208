//! Receiver's state of a peer, whatever the channel, and payloads that come through slots.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::bar::Windows;
use super::cache::Cache;
use super::channel::Channel;
use super::destination::Order;
use super::exchange::TransferError;
use super::protocol::Message;
use super::rdma::RdmaReader;
use super::staging::{HOST_SLOTS, HostSlots, PendingCopies, Ring};
use crate::bootstrap::Connection;
use crate::cuda::{CudaError, Mapping, Opened, PendingCopy, Scope};

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
        }
    }

    /// Asks for the payload of an operation.
    pub(super) fn request(&self, channel: Channel, order: &Order) -> Result<(), TransferError> {
        self.connection.send_message(Message::Fetch { channel, operation: order.operation })
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
        order: &Order,
        scope: Result<Option<Scope<'static>>, CudaError>,
        ring: Ring,
        channel: Channel,
        address: impl Fn(u16) -> u64,
    ) -> Result<(), TransferError> {
        let mut outcome = scope.as_ref().map(drop).map_err(|error| *error);
        let mut first = first;
        let mut pending = PendingCopies::default();
        for (slot, at, bytes) in ring.pieces(order.bytes) {
            let message = match first.take() {
                Some(message) => message,
                None => self.receive_message(channel)?.0,
            };
            if message != (Message::Piece { slot, bytes }) {
                return Err(self.connection.wrong("another piece than the next"));
            }
            let (to, from, bytes) = (order.to + at, address(slot), bytes as usize);
            let copy = match (&scope, &outcome) {
                // SAFETY: the slot is mapped and holds these bytes, and the receive's memory is this
                // function's until the receive ends. The copy is waited for before this returns.
                (Ok(Some(scope)), Ok(())) => unsafe { PendingCopy::begin(scope, to, from, bytes) }.map(Some),
                (Ok(None), Ok(())) => {
                    // SAFETY: as above; both are memory of the host, which do not overlap.
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
