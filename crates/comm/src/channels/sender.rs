//! Payload sender: what a sender has of a peer, and how a payload passes through slots.

use std::os::fd::OwnedFd;

use super::bar::Windows;
use super::channel::Channel;
use super::protocol::{Message, Refusal, TransferError};
use super::rdma::{RdmaStaging, RdmaTarget};
use super::staging::{HostSlots, PendingCopies, Ring};
use crate::bootstrap::Connection;
use crate::cuda::{DeviceMemory, Mapping, PendingCopy, Scope};

/// A payload on a GPU that a peer has asked for.
pub(crate) struct Payload<'a> {
    /// The context in which it is copied.
    pub(crate) scope: &'a Scope<'static>,
    /// The allocation in which it begins.
    pub(crate) memory: &'a DeviceMemory,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

impl Payload<'_> {
    /// Whether all of it lies in the allocation, as one that a program has mapped from several may not.
    pub(crate) fn is_within(&self) -> bool {
        self.memory.has(self.address, self.bytes)
    }
}

/// Memory on a GPU through which payloads pass to one peer, which has mapped it.
#[derive(Debug)]
pub(super) struct SentBounce {
    /// The GPU's number.
    pub(super) device: i32,
    pub(super) ring: Ring,
    pub(super) mapping: Mapping,
    pub(super) bytes: u64,
}

/// What payloads of a peer go through, from one to the next.
#[derive(Debug)]
pub(crate) struct PayloadSender<'a> {
    pub(super) connection: &'a Connection,
    /// The peer's memory; over a network, this end's.
    pub(super) slots: Option<HostSlots>,
    /// Memory on one of the GPUs here.
    pub(super) bounce: Option<SentBounce>,
    /// The path to the peer's card.
    pub(super) rdma: Option<RdmaTarget>,
    /// Memory of the GPUs here that is mapped.
    pub(super) windows: Windows,
    /// Whether RDMA devices may read the memory of this rank's GPUs.
    pub(crate) allows_gpudirect: bool,
}

impl<'a> PayloadSender<'a> {
    /// For a peer that has got nothing yet.
    pub(crate) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            slots: None,
            bounce: None,
            rdma: None,
            windows: Windows::default(),
            allows_gpudirect: true,
        }
    }
}

impl PayloadSender<'_> {
    /// The peer hands over memory of the host, through which it asks for payloads from now on.
    pub(crate) fn accept_slots(
        &mut self,
        count: u16,
        bytes: u32,
        descriptor: Option<OwnedFd>,
    ) -> Result<(), TransferError> {
        let ring =
            Ring::checked(count, bytes).ok_or_else(|| self.connection.wrong("slots of such a size"))?;
        // Where the descriptor is lost for lack of room, what passes through the slots is refused.
        let slots = descriptor.map(|descriptor| HostSlots::of_peer(descriptor, ring));
        self.slots = slots.transpose().map_err(TransferError::Memory)?;
        Ok(())
    }

    /// The peer asks to have its card joined with one here.
    pub(crate) fn join_rdma(&mut self, more: u16) -> Result<(), TransferError> {
        // One that is joined anew has lost its path.
        self.rdma = None;
        self.rdma = RdmaTarget::join(self.connection, more)?;
        Ok(())
    }

    /// The error for what this end does not give by a channel.
    pub(crate) fn refused(&self, channel: Channel, refusal: Refusal) -> TransferError {
        TransferError::Refused { peer: self.connection.peer, channel, refusal }
    }

    /// Passes a copy in memory of the host through slots.
    pub(super) fn pass_copy(
        &self,
        copy: &[u8],
        ring: Ring,
        address: impl Fn(u16) -> u64,
    ) -> Result<(), TransferError> {
        self.pass(copy.len() as u64, ring, |slot, at, bytes| {
            let from = &copy[at as usize..][..bytes];
            // SAFETY: the slot is mapped for as long as this runs, as long as that, and nobody's now.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), address(slot) as *mut u8, bytes) };
            Ok(None)
        })
    }

    /// The slots that the peer's card reads, which has been joined before it fetches anything by it.
    pub(super) fn rdma_slots(&self, channel: Channel) -> Result<&RdmaStaging, TransferError> {
        let slots = self.rdma.as_ref().map(|target| &target.slots);
        slots.ok_or_else(|| self.refused(channel, Refusal::Rdma))
    }

    /// The peer's slots, which it hands over before it fetches anything through them.
    pub(super) fn slots(&self) -> Result<&HostSlots, TransferError> {
        self.slots.as_ref().ok_or_else(|| self.refused(Channel::Staged, Refusal::Slots))
    }

    /// Passes a payload through slots, which `begin` begins to fill. All that are free are begun at once, so
    /// that the copies follow each other, and the peer hears of each as soon as it is seen to be full.
    pub(super) fn pass(
        &self,
        payload: u64,
        ring: Ring,
        mut begin: impl FnMut(u16, u64, usize) -> Result<Option<PendingCopy>, TransferError>,
    ) -> Result<(), TransferError> {
        let mut pending = PendingCopies::default();
        for (number, (slot, at, bytes)) in ring.pieces(payload).enumerate() {
            if number >= usize::from(ring.count) {
                // The peer waits for all of them before this end waits for the peer.
                while pending.len() > 0 {
                    self.send_oldest_piece(&mut pending)?;
                }
                self.await_free(slot)?;
            }
            pending.push(begin(slot, at, bytes as usize)?, (slot, bytes));
            while pending.is_first_done() {
                self.send_oldest_piece(&mut pending)?;
            }
        }
        while pending.len() > 0 {
            self.send_oldest_piece(&mut pending)?;
        }
        Ok(())
    }

    /// Tells the peer of the slot that is full first.
    fn send_oldest_piece(&self, pending: &mut PendingCopies<(u16, u32)>) -> Result<(), TransferError> {
        match pending.end_first().map_err(|(error, _)| error)? {
            Some((slot, bytes)) => self.connection.send_message(Message::Piece { slot, bytes }),
            None => Ok(()),
        }
    }

    fn await_free(&self, expected: u16) -> Result<(), TransferError> {
        match self.connection.receive_message()?.0 {
            Message::Free { slot } if slot == expected => Ok(()),
            _ => Err(self.connection.wrong("another slot than the next")),
        }
    }
}
