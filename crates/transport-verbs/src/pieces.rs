//! Pieces of transfers: leases of staging slots, striping over all queue pairs, and delivery.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_ibverbs::{MemoryRegion, RemoteMemory, Segment};
use causeway_transport::delivery::deliver;
use causeway_transport::slots::{MAX_PIECE_BYTES, SLOT};
use causeway_transport::staging::{Lease, Owns, Piece, SlotOwner};
use causeway_transport::{LinkError, OnComplete, RegionSlice, Shared};
use causeway_wire::chunk::ChunkHeader;

use crate::error::{Failure, Violation};
use crate::message::Released;
use crate::poll_state::RETURNS_WAIT;
use crate::queue::Operation;
use crate::state::{Owner, State};
use crate::stripe::{MAX_EAGER_BYTES, Notice, Stripe, Work, order, requests, split};

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

    /// The link, once its owner can be notified of what comes.
    pub(super) fn link(&self) -> Option<Arc<Shared>> {
        match &*self.owner.lock() {
            Owner::Pending(_) => None,
            Owner::Known(link) => link.upgrade(),
        }
    }

    /// The link's owner can be notified of pieces from now on.
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

    /// Sends what was released while this thread looked, if nothing else has taken it along.
    pub fn release_pending(&self) {
        if !self.returns.lock().is_empty() {
            self.pump();
        }
    }
}

/// Bytes of a region, by the address of the first one.
pub fn slice_of(region: &MemoryRegion, address: u64, length: usize) -> RegionSlice {
    RegionSlice { address, key: region.local_key(), length }
}

impl Work {
    /// The same for what lies `offset` bytes behind.
    fn at(self, offset: usize) -> Self {
        let behind = |RemoteMemory { address, key }| RemoteMemory {
            address: address.wrapping_add(offset as u64),
            key,
        };
        match self {
            Self::Write(to) => Self::Write(behind(to)),
            Self::Read(from) => Self::Read(behind(from)),
            Self::None => Self::None,
        }
    }
}

impl State {
    /// Moves bytes over all queue pairs. `notice` is what is sent to the peer behind the last request of each of
    /// so many stripes; `then` follows when all bytes have been moved.
    pub fn carry(
        &self,
        range: RegionSlice,
        work: Work,
        notice: impl Fn(u32) -> Option<Notice>,
        then: Option<OnComplete>,
    ) {
        let RegionSlice { address, key, length } = range;
        let order = if length <= MAX_EAGER_BYTES && then.is_none() {
            // They go with their announcement, as a message of the first path.
            vec![0]
        } else {
            let backlogs: Vec<usize> = self.paths.iter().map(|path| path.backlog()).collect();
            order(&backlogs, self.next_path.fetch_add(1, Ordering::Relaxed))
        };
        let stripes: Vec<_> = split(length, self.paths.len()).collect();
        let all: usize = stripes.iter().map(|(offset, stripe)| requests(*offset, *stripe).len()).sum();
        // Without bytes no request is posted whose end could be seen.
        let (then, at_once) = if length > 0 { (then, None) } else { (None, then) };
        let operation = then.map(|then| Operation::new(all as u32, then));
        for ((offset, stripe), path) in stripes.iter().zip(order) {
            for (offset, length, is_last) in requests(*offset, *stripe) {
                self.paths[path].enqueue(Stripe {
                    segment: Segment { address: address + offset as u64, length: length as u32, key },
                    work: work.at(offset),
                    notice: if is_last { notice(stripes.len() as u32) } else { None },
                    operation: operation.clone(),
                });
            }
        }
        if self.is_over() {
            self.abandon();
        }
        self.pump();
        if let Some(then) = at_once {
            then(Ok(()));
        }
    }

    /// A slot of this side's staging memory.
    pub fn slot(&self, first: u32, length: usize) -> RegionSlice {
        let region = self.staging.region();
        slice_of(region, region.address() + first as u64 * SLOT as u64, length)
    }
}
