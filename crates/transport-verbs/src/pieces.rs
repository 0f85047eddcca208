//! Staging slots: leases, and delivery of received pieces.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_wire::chunk::ChunkHeader;

use super::failure::{Failure, Violation};
use super::message::Released;
use super::poll_state::RETURNS_WAIT;
use super::state::{Owner, State};
use causeway_transport::delivery::deliver;
use causeway_transport::slots::{MAX_PIECE_BYTES, SLOT};
use causeway_transport::staging::{Lease, Owns, Piece, SlotOwner};
use causeway_transport::{LinkError, Shared};

/// How many slots hold `bytes`; one for none, so that there are never more pieces than slots.
pub fn slots_for(bytes: usize) -> u32 {
    bytes.div_ceil(SLOT).max(1) as u32
}

impl State {
    /// A piece of `length` bytes, if there is one now.
    pub fn try_piece(&self, length: usize) -> Option<Piece> {
        if length > self.max_piece() {
            return None;
        }
        let first = self.slots.lock().lease(slots_for(length))?;
        let address = self.staging.as_ptr().wrapping_add(first as usize * SLOT);
        Some(Piece::new(self.myself(), first, address, length))
    }

    /// The longest piece there is: two fit into the peer's arena.
    pub fn max_piece(&self) -> usize {
        MAX_PIECE_BYTES.min(self.staging_slots as usize / 2 * SLOT).max(SLOT)
    }

    /// One more piece of the peer is here.
    pub(super) fn count_lease(&self) -> Result<(), LinkError> {
        if self.leases.fetch_add(1, Ordering::Relaxed) >= self.arena_slots {
            self.leases.fetch_sub(1, Ordering::Relaxed);
            return Err(Failure::Violation(Violation::TooManyPieces).into());
        }
        Ok(())
    }

    pub(super) fn lease(&self, first: u32, length: u32) -> Result<Lease, LinkError> {
        self.count_lease()?;
        let address = self.arena.as_ptr().wrapping_add(first as usize * SLOT);
        Ok(Lease::new(self.myself(), first, address, length as usize))
    }

    /// Gives a piece to the link's owner, once there is one.
    pub(super) fn hand_over(&self, chunk: ChunkHeader, lease: Lease) -> Result<(), LinkError> {
        let link = match &mut *self.owner.lock() {
            Owner::Pending(pending) => {
                pending.push((chunk, lease));
                return Ok(());
            }
            Owner::Known(link) => link.upgrade(),
        };
        let Some(link) = link else { return Ok(()) };
        deliver(&link, chunk, lease, self.queue.copies())
    }

    /// The link, once its owner can be told of what comes.
    pub(super) fn link(&self) -> Option<Arc<Shared>> {
        match &*self.owner.lock() {
            Owner::Pending(_) => None,
            Owner::Known(link) => link.upgrade(),
        }
    }

    /// The link's owner can be told of pieces from now on.
    pub fn start(&self, link: &Arc<Shared>) {
        let before = core::mem::replace(&mut *self.owner.lock(), Owner::Known(Arc::downgrade(link)));
        if let Owner::Pending(pending) = before {
            for (chunk, lease) in pending {
                if let Err(error) = self.hand_over(chunk, lease) {
                    self.fail(error);
                }
            }
        }
    }
}

impl SlotOwner for State {
    fn give_up(&self, first: u32) {
        let cancelled = self.slots.lock().give_up(first);
        debug_assert!(cancelled.is_ok(), "a piece holds slots that are leased");
    }
}

impl Owns for State {
    fn release(&self, first: u32) {
        self.leases.fetch_sub(1, Ordering::Relaxed);
        self.send_released(Released::Slots(first));
    }
}

impl State {
    /// Tells the peer that something of its own is not used any more.
    pub(super) fn send_released(&self, back: Released) {
        self.returns.lock().push(back);
        if self.is_over() || RETURNS_WAIT.get() {
            return;
        }
        if let Err(failure) = self.pump_first() {
            self.fail(failure.into());
        }
    }

    /// Sends what was given back while this thread looked, if nothing else has taken it along.
    pub fn release_pending(&self) {
        if !self.returns.lock().is_empty() {
            self.pump();
        }
    }
}
