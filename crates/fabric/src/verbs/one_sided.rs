//! How do bytes move where cards know the memory at both ends?
//!
//! *To the peer's owner*, memory that is registered needs no copy into staging: it is written to the peer's arena from where
//! it is, or offered to the peer, which reads it into its arena ([`Preference`](super::settings::Preference) decides). *For
//! one copy* memory can be lent: to be written by the peer, which then says that a transfer is in place, or to be read by
//! the peer, which then gives it back. Whoever lends memory keeps it until then.
//!
//! An operation whose link ends fails; what was lent is not in use any more then, since the queue pairs have ended.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use causeway_verbs::{Access, MemoryRegion, RegisterError, RemoteMemory, Segment, Transport};
use causeway_wire::chunk::ChunkHeader;
use causeway_wire::lent::LentMemory;
use parking_lot::Mutex;

use super::look::Found;
use super::message::{Announcement, GivenBack, MOST_NUMBER, Offer};
use super::operation::{Awaited, Operation, Then};
use super::parts::{order, requests, split};
use super::path::{MOST_CARRIED, Part, Said, Work};
use super::state::State;
use crate::link::{Address, DeviceUse, Keeper, LinkError, Shared, count};
use crate::module::{Order, Sending};
use crate::shm::layout::SLOT;
use crate::staging::{Lease, Piece};

/// Longer transfers of registered memory go in pieces of this many bytes, so that the peer can go on with the first.
const LONG_STEP: usize = 4 << 20;

/// The first number of memory that is lent; smaller ones are slots.
const FIRST_NUMBER: u32 = 1 << 20;

/// Bytes in memory of this side that the card knows.
#[derive(Debug, Clone, Copy)]
pub struct Stretch {
    pub address: u64,
    pub key: u32,
    pub length: usize,
}

impl Stretch {
    /// Bytes of a region, by the address of the first one.
    pub fn of(region: &MemoryRegion, address: u64, length: usize) -> Self {
        Self { address, key: region.local_key(), length }
    }
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

/// Memory that is lent to the peer to be read: what keeps it, and its bytes, by number. That of an offer is its first slot.
#[derive(Default)]
pub struct Lendings {
    kept: HashMap<u32, (u64, Keeper)>,
    last: u32,
}

impl Lendings {
    /// Lends memory; its number.
    fn begin(&mut self, bytes: u64, keeper: Keeper) -> u32 {
        loop {
            self.last = if (FIRST_NUMBER..MOST_NUMBER - 1).contains(&self.last) {
                self.last + 1
            } else {
                FIRST_NUMBER
            };
            if let Entry::Vacant(place) = self.kept.entry(self.last) {
                place.insert((bytes, keeper));
                return self.last;
            }
        }
    }

    /// The memory of this number is given back.
    pub fn end(&mut self, number: u32) -> Option<(u64, Keeper)> {
        self.kept.remove(&number)
    }
}

/// Ends an operation when nothing holds it any more.
struct Ends(Arc<Operation>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.done();
    }
}

impl State {
    /// Moves bytes over all queue pairs. `said` is what the peer is told behind the last request of each of so many parts;
    /// `then` follows when all bytes have been moved.
    fn carry(&self, stretch: Stretch, work: Work, said: impl Fn(u32) -> Option<Said>, then: Option<Then>) {
        let Stretch { address, key, length } = stretch;
        let order = if length <= MOST_CARRIED && then.is_none() {
            // They go with their announcement, as a message of the first path.
            vec![0]
        } else {
            let backlogs: Vec<usize> = self.paths.iter().map(|path| path.backlog()).collect();
            order(&backlogs, self.turn.fetch_add(1, Ordering::Relaxed))
        };
        let parts: Vec<_> = split(length, self.paths.len()).collect();
        let all: usize = parts.iter().map(|(offset, part)| requests(*offset, *part).len()).sum();
        // Without bytes no request is posted whose end could be seen.
        let (then, at_once) = if length > 0 { (then, None) } else { (None, then) };
        let operation = then.map(|then| Operation::new(all as u32, then));
        for ((offset, part), path) in parts.iter().zip(order) {
            for (offset, length, is_last) in requests(*offset, *part) {
                self.paths[path].enqueue(Part {
                    segment: Segment { address: address + offset as u64, length: length as u32, key },
                    work: work.at(offset),
                    said: if is_last { said(parts.len() as u32) } else { None },
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

    /// Ends every operation, and lets go of all that is lent to the peer: the link has ended.
    pub(super) fn abandon(&self) {
        let cause = self.cause();
        for path in &self.paths {
            path.abandon().iter().for_each(|operation| operation.fail(&cause));
        }
        let keepers = core::mem::take(&mut self.lendings.lock().kept);
        drop(keepers);
    }

    /// Deals with what a look has found.
    pub(super) fn follow(&self, found: Found) {
        drop(found.keepers);
        found.operations.iter().for_each(|operation| operation.done());
        for (chunk, lease) in found.pieces {
            if let Err(error) = self.hand_over(chunk, lease) {
                self.fail(error);
            }
        }
        found.offers.into_iter().for_each(|(offer, lease)| self.fetch(&offer, lease));
        if found.placed.is_empty() && found.direct_bytes == 0 {
            return;
        }
        let Some(link) = self.link() else { return };
        count(&link.counters().direct_bytes_sent, found.direct_bytes as usize);
        for (chunk, is_direct) in found.placed {
            if let Err(error) = placed(&link, &chunk, is_direct) {
                self.fail(error);
            }
        }
    }

    /// A slot of this side's staging memory.
    pub(super) fn slot(&self, first: u32, length: usize) -> Stretch {
        let region = self.staging.region();
        Stretch::of(region, region.address() + first as u64 * SLOT as u64, length)
    }

    /// Writes `source` to the slots of a piece in the peer's arena; `then` follows when its bytes are there.
    pub fn write_piece(
        &self,
        link: &Shared,
        piece: Piece,
        source: Stretch,
        (transfer, offset, total): (u64, u64, u64),
        is_direct: bool,
        then: Option<Then>,
    ) {
        let (first, length) = (piece.first(), piece.len());
        let chunk = ChunkHeader { transfer, offset, total, length: length as u32 };
        let RemoteMemory { address, key } = self.peer_arena;
        let to = RemoteMemory { address: address + first as u64 * SLOT as u64, key };
        // From here on the peer gives the slots back.
        piece.sent();
        let said = |parts| Some(Said::Announcement(Announcement { chunk, first, parts, is_direct }));
        self.carry(source, Work::Write(to), said, then);
        count(&link.counters().transfer_bytes_sent, length);
        if is_direct {
            count(&link.counters().direct_bytes_sent, length);
        }
    }

    /// Offers registered memory to the peer, which reads it into the slots of a piece. `keeper` keeps it until it has been
    /// read.
    fn offer(&self, piece: Piece, source: RemoteMemory, chunk: ChunkHeader, keeper: Keeper) {
        let first = piece.first();
        piece.sent();
        self.lendings.lock().kept.insert(first, (chunk.length.into(), keeper));
        let announcement = Announcement { chunk, first, parts: 1, is_direct: false };
        let nothing = Stretch { address: 0, key: 0, length: 0 };
        self.carry(nothing, Work::None, |_| Some(Said::Offer(Offer { announcement, from: source })), None);
    }

    /// Reads an offer of the peer into the slots that it names.
    fn fetch(&self, offer: &Offer, lease: Lease) {
        let Offer { announcement: Announcement { chunk, first, .. }, from } = *offer;
        let region = self.arena.region();
        let address = region.address() + first as u64 * SLOT as u64;
        let into = Stretch::of(region, address, chunk.length as usize);
        let state = self.myself();
        let then: Then = Box::new(move |outcome| {
            if outcome.is_err() {
                return;
            }
            state.say_given_back(GivenBack::Lent { number: first, is_direct: false });
            if let Err(error) = state.hand_over(chunk, lease) {
                state.fail(error);
            }
        });
        self.carry(into, Work::Read(from), |_| None, Some(then));
    }

    /// The registration in which all of this memory lies.
    pub fn known(&self, start: *const u8, length: usize) -> Option<Arc<MemoryRegion>> {
        self.known.read().find(start as usize, length, false)
    }

    /// Sends a transfer of registered memory, without a copy of it. Waits for slots, not for the bytes.
    pub(super) fn send_from(
        &self,
        link: &Arc<Shared>,
        order: Order,
        region: &MemoryRegion,
    ) -> Result<Sending, LinkError> {
        let Order { transfer, start: Address(start), length, keeper, .. } = order;
        let reads = self.prefers.reads(length);
        count(&link.counters().registered_bytes_sent, length);
        let (keeper, sending) = match keeper {
            Some(keeper) => (keeper, Sending::done()),
            None => {
                let operation = Operation::new(1, Box::new(drop));
                let (link, state) = (Arc::clone(link), self.myself());
                let awaited = Awaited { link, state, operation: Arc::clone(&operation) };
                (Box::new(Ends(operation)) as Keeper, Sending::pending(awaited))
            }
        };
        let keeper = Arc::new(Mutex::new(keeper));
        let longest = self.longest_piece();
        let step = if length <= longest { length } else { LONG_STEP.min(longest) };
        for offset in (0..length).step_by(step) {
            link.check()?;
            let part = step.min(length - offset);
            let piece = self.wait_for(|| Ok(self.try_piece(part))).map_err(|error| link.lose(error))?;
            let address = start as u64 + offset as u64;
            let kept = Arc::clone(&keeper);
            let (offset, total) = (offset as u64, length as u64);
            if reads {
                let from = RemoteMemory { address, key: region.remote_key() };
                let chunk = ChunkHeader { transfer, offset, total, length: part as u32 };
                self.offer(piece, from, chunk, Box::new(kept));
                count(&link.counters().transfer_bytes_sent, part);
            } else {
                let source = Stretch::of(region, address, part);
                let then: Then = Box::new(move |_| drop(kept));
                self.write_piece(link, piece, source, (transfer, offset, total), false, Some(then));
            }
        }
        Ok(sending)
    }

    /// Writes a whole transfer to memory that the peer has lent for it; `then` follows when it is there.
    pub fn put(
        &self,
        link: &Shared,
        transfer: u64,
        source: Stretch,
        to: LentMemory,
        is_direct: bool,
        then: Then,
    ) {
        let length = source.length as u32;
        let chunk = ChunkHeader { transfer, offset: 0, total: length.into(), length };
        let to = RemoteMemory { address: to.address, key: to.key };
        let said = |parts| Some(Said::Placed(Announcement { chunk, first: 0, parts, is_direct }));
        self.carry(source, Work::Write(to), said, Some(then));
        count(&link.counters().transfer_bytes_sent, source.length);
        if is_direct {
            count(&link.counters().direct_bytes_sent, source.length);
        }
    }

    /// Writes a piece to memory that the peer has lent for its transfer.
    pub fn put_piece(&self, link: &Shared, transfer: u64, piece: Piece, to: LentMemory) {
        let source = self.slot(piece.first(), piece.len());
        self.put(link, transfer, source, to, false, Box::new(move |_| drop(piece)));
    }

    /// Reads memory that the peer has lent, and gives it back; `then` follows when it is there.
    pub fn read(&self, link: &Arc<Shared>, from: LentMemory, into: Stretch, is_direct: bool, then: Then) {
        let LentMemory { address, key, number } = from;
        let (state, link) = (self.myself(), Arc::clone(link));
        let then: Then = Box::new(move |outcome| {
            if outcome.is_ok() {
                count(&link.counters().transfer_bytes_received, into.length);
                if is_direct {
                    count(&link.counters().direct_bytes_received, into.length);
                }
                state.say_given_back(GivenBack::Lent { number, is_direct });
            }
            then(outcome);
        });
        self.carry(into, Work::Read(RemoteMemory { address, key }), |_| None, Some(then));
    }

    /// Reads memory that the peer has lent to where no card can write, by way of staging.
    ///
    /// # Safety
    /// `length` bytes must be writable at `into`.
    pub unsafe fn read_by_staging(
        &self,
        link: &Arc<Shared>,
        from: LentMemory,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError> {
        let step = LONG_STEP.min(self.longest_piece());
        for offset in (0..length).step_by(step) {
            let part = step.min(length - offset);
            let piece = self.wait_for(|| Ok(self.try_piece(part)))?;
            let operation = Operation::new(1, Box::new(drop));
            let ends = Ends(Arc::clone(&operation));
            let from = RemoteMemory { address: from.address.wrapping_add(offset as u64), key: from.key };
            let then: Then = Box::new(move |_| drop(ends));
            self.carry(self.slot(piece.first(), part), Work::Read(from), |_| None, Some(then));
            self.wait_for(|| Ok(operation.is_over().then_some(())))?;
            // SAFETY: the caller vouches for the place; the card has written the slots, which are ours.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), into.wrapping_add(offset), part) };
        }
        count(&link.counters().transfer_bytes_received, length);
        Ok(())
    }

    /// Gives memory back that the peer has lent to be read.
    pub fn decline(&self, memory: LentMemory) {
        self.say_given_back(GivenBack::Lent { number: memory.number, is_direct: false });
    }

    /// Registers memory of this side's owner. What may not be written is registered for being read.
    ///
    /// # Safety
    /// The memory must stay mapped until it has been [forgotten](Self::forget), and nobody may rely on its bytes while it
    /// is lent to the peer to be written.
    pub unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), RegisterError> {
        let read = Access::REMOTE_READ;
        // SAFETY: as this function demands.
        let made = |access| unsafe { MemoryRegion::register(&self.domain, start, length, access) };
        let (region, is_writable) = match made(read | Access::REMOTE_WRITE) {
            Ok(region) => (region, true),
            Err(refused) => (made(read).map_err(|_| refused)?, false),
        };
        // What overlaps with known memory is left to staging.
        self.known.write().enter(start as usize, length, is_writable, Arc::new(region));
        Ok(())
    }

    /// Takes the registration of memory back: no card reaches it any more.
    pub fn forget(&self, start: *mut u8) {
        let region = self.known.write().remove(start as usize);
        drop(region);
    }

    /// Registers device memory.
    ///
    /// # Safety
    /// The memory must stay allocated as long as the result lives.
    pub unsafe fn register_device(
        &self,
        buffer: Option<(BorrowedFd<'_>, u64)>,
        address: u64,
        length: usize,
        usage: DeviceUse,
    ) -> Result<MemoryRegion, RegisterError> {
        let access = match (usage, self.domain.device().transport()) {
            (DeviceUse::LentToRead, _) => Access::REMOTE_READ,
            // iWARP brings the bytes of a read as a write of the peer.
            (DeviceUse::Own, Transport::Iwarp) => Access::REMOTE_WRITE,
            (DeviceUse::Own, _) => Access::LOCAL_WRITE,
        };
        // SAFETY: as this function demands.
        unsafe {
            match buffer {
                Some((descriptor, offset)) => {
                    MemoryRegion::register_dma_buf(&self.domain, descriptor, offset, length, address, access)
                }
                None => MemoryRegion::register(&self.domain, address as *mut u8, length, access),
            }
        }
    }

    /// Registered memory, for the peer to write to.
    pub fn lend(&self, start: *const u8, length: usize) -> Option<LentMemory> {
        let region = self.known.read().find(start as usize, length, true)?;
        Some(LentMemory { address: start as u64, key: region.remote_key(), number: 0 })
    }

    /// Registered memory, for the peer to read; `keeper` keeps it until the peer gives it back.
    pub fn lend_to_read(&self, start: *const u8, length: usize, keeper: Keeper) -> Option<LentMemory> {
        let region = self.known(start, length)?;
        let key = region.remote_key();
        Some(self.lend_for_reading(start as u64, key, length, keeper))
    }

    /// A filled piece, for the peer to read where it lies; it is free again when the peer has.
    pub fn lend_piece(&self, piece: Piece) -> LentMemory {
        let (address, length) = (piece.as_ptr() as u64, piece.len());
        self.lend_for_reading(address, self.staging.region().remote_key(), length, Box::new(piece))
    }

    /// Takes memory back that was lent to be read.
    pub fn recall(&self, memory: LentMemory) {
        let kept = self.lendings.lock().end(memory.number);
        drop(kept);
    }

    /// Lends memory by the key of its registration; `keeper` keeps it until the peer gives it back.
    pub fn lend_for_reading(&self, address: u64, key: u32, length: usize, keeper: Keeper) -> LentMemory {
        let number = self.lendings.lock().begin(length as u64, keeper);
        if self.is_over() {
            self.abandon();
        }
        LentMemory { address, key, number }
    }
}

/// A transfer lies where it belongs. One that nobody waits for any more is of no interest.
fn placed(link: &Arc<Shared>, chunk: &ChunkHeader, is_direct: bool) -> Result<(), LinkError> {
    if !link.transfers().knows(chunk.transfer) {
        return Ok(());
    }
    link.transfers().claim(chunk, None)?;
    let length = chunk.length as usize;
    count(&link.counters().transfer_bytes_received, length);
    let counters = link.counters();
    count(
        if is_direct { &counters.direct_bytes_received } else { &counters.registered_bytes_received },
        length,
    );
    link.transfers().landed(chunk, None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lent_memory_are_no_slots_and_are_used_by_one_at_a_time() {
        let mut lendings = Lendings::default();
        let first = lendings.begin(7, Box::new(()));
        assert!(first >= FIRST_NUMBER);
        lendings.last = MOST_NUMBER - 1;
        assert_eq!(lendings.begin(8, Box::new(())), first + 1, "the first one is in use");
        assert_eq!(lendings.end(first).map(|(bytes, _)| bytes), Some(7));
        assert!(lendings.end(first).is_none());
    }
}
