//! One-sided operations: RDMA between registered memory at both ends.
//!
//! *To the peer's owner*, memory that is registered needs no copy into staging: it is written to the peer's
//! arena from where it is, or offered to the peer, which reads it into its arena
//! ([`Preference`](super::settings::Preference) decides). *For one copy* memory can be exposed: to be written
//! by the peer, which then says that a transfer is in place, or to be read by the peer, which then gives it
//! back. Whoever exposes memory keeps it until then.
//!
//! An operation whose link ends fails; what was exposed is not in use any more then, since the queue pairs
//! have ended.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use causeway_ibverbs::{Access, MemoryRegion, RegisterError, RemoteMemory, Transport};
use causeway_transport::slots::SLOT;
use causeway_transport::staging::Piece;
use causeway_transport::{
    Address, BufferGuard, DeviceMemory, DeviceUse, LinkError, NotRegistered, OnComplete, OneSided,
    OutgoingTransfer, Pending, RegionSlice, Sending, Shared, count,
};
use causeway_wire::chunk::ChunkHeader;
use causeway_wire::remote_region::RemoteRegion;
use parking_lot::Mutex;

use crate::message::{Announcement, Offer, Released};
use crate::pieces::slice_of;
use crate::queue::Operation;
use crate::state::State;
use crate::stripe::{Notice, Work};

impl OneSided for State {
    unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), NotRegistered> {
        // SAFETY: the caller keeps the memory mapped until it is forgotten.
        unsafe { self.register(start, length) }.map_err(NotRegistered::refused)
    }

    fn forget(&self, start: *mut u8) {
        self.forget(start);
    }

    fn knows(&self, start: *const u8, length: usize) -> bool {
        self.registered(start, length).is_some()
    }

    unsafe fn register_device(
        &self,
        buffer: Option<(BorrowedFd<'_>, u64)>,
        address: u64,
        length: usize,
        usage: DeviceUse,
    ) -> Result<DeviceMemory, NotRegistered> {
        // SAFETY: the caller keeps the memory allocated as long as the result lives.
        let region = unsafe { self.register_device(buffer, address, length, usage) };
        let region = region.map_err(NotRegistered::refused)?;
        let keys = (region.local_key(), region.remote_key());
        Ok(DeviceMemory::new(region.address(), region.len() as u64, keys, region))
    }

    fn shortage(&self) -> Option<&str> {
        self.shortage.as_deref()
    }

    fn expose_for_write(&self, start: *const u8, length: usize) -> Option<RemoteRegion> {
        self.expose_for_write(start, length)
    }

    fn expose_for_read(&self, start: *const u8, length: usize, guard: BufferGuard) -> Option<RemoteRegion> {
        self.expose_for_read(start, length, guard)
    }

    fn expose_device(
        &self,
        memory: &DeviceMemory,
        address: u64,
        length: usize,
        guard: BufferGuard,
    ) -> RemoteRegion {
        let (key, guard) = (memory.remote_key(), (memory.clone(), guard));
        self.expose_by_key(address, key, length, Box::new(guard))
    }

    fn expose_piece(&self, piece: Piece) -> RemoteRegion {
        self.expose_piece(piece)
    }

    fn recall(&self, memory: RemoteRegion) {
        self.recall(memory);
    }

    fn read_to_device(&self, link: &Arc<Shared>, from: RemoteRegion, into: RegionSlice, then: OnComplete) {
        self.read(link, from, into, true, then);
    }

    unsafe fn read_to_host(
        &self,
        link: &Arc<Shared>,
        from: RemoteRegion,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError> {
        // SAFETY: the caller has `length` bytes writable at `into`.
        unsafe { self.read_by_staging(link, from, into, length) }
    }

    fn decline(&self, memory: RemoteRegion) {
        self.decline(memory);
    }

    fn put_from_device(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        from: RegionSlice,
        to: RemoteRegion,
        then: OnComplete,
    ) {
        self.put(link, transfer, from, to, true, then);
    }

    fn send_from_device(
        &self,
        link: &Arc<Shared>,
        transfer: u64,
        from: RegionSlice,
        piece: Piece,
        then: OnComplete,
    ) {
        let whole = (transfer, 0, piece.len() as u64);
        self.write_piece(link, piece, from, whole, true, Some(then));
    }

    fn put_piece(&self, link: &Arc<Shared>, transfer: u64, piece: Piece, to: RemoteRegion) {
        self.put_piece(link, transfer, piece, to);
    }
}

impl State {
    /// Registers memory of this side's owner. What may not be written is registered for being read.
    ///
    /// # Safety
    /// The memory must stay mapped until it has been [forgotten](Self::forget), and nobody may rely on its
    /// bytes while it is exposed to the peer for writing.
    pub unsafe fn register(&self, start: *mut u8, length: usize) -> Result<(), RegisterError> {
        let read = Access::REMOTE_READ;
        // SAFETY: the caller keeps the memory mapped until it is forgotten.
        let made = |access| unsafe { MemoryRegion::register(&self.domain, start, length, access) };
        let (region, is_writable) = match made(read | Access::REMOTE_WRITE) {
            Ok(region) => (region, true),
            Err(refused) => (made(read).map_err(|_| refused)?, false),
        };
        // What overlaps with known memory is left to staging.
        self.registrations.write().enter(start as usize, length, is_writable, Arc::new(region));
        Ok(())
    }

    /// Takes the registration of memory back: no card reaches it any more.
    pub fn forget(&self, start: *mut u8) {
        let region = self.registrations.write().remove(start as usize);
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
            (DeviceUse::ExposedForRead, _) => Access::REMOTE_READ,
            // iWARP brings the bytes of a read as a write of the peer.
            (DeviceUse::Own, Transport::Iwarp) => Access::REMOTE_WRITE,
            (DeviceUse::Own, _) => Access::LOCAL_WRITE,
        };
        // SAFETY: the caller keeps the memory allocated as long as the result lives.
        unsafe {
            match buffer {
                Some((descriptor, offset)) => {
                    MemoryRegion::register_dma_buf(&self.domain, descriptor, offset, length, address, access)
                }
                None => MemoryRegion::register(&self.domain, address as *mut u8, length, access),
            }
        }
    }

    /// The registration in which all of this memory lies.
    pub fn registered(&self, start: *const u8, length: usize) -> Option<Arc<MemoryRegion>> {
        self.registrations.read().find(start as usize, length, false)
    }
}

impl State {
    /// Writes `source` to the slots of a piece in the peer's arena; `then` follows when its bytes are there.
    pub fn write_piece(
        &self,
        link: &Shared,
        piece: Piece,
        source: RegionSlice,
        (transfer, offset, total): (u64, u64, u64),
        is_direct: bool,
        then: Option<OnComplete>,
    ) {
        let (first, length) = (piece.first(), piece.len());
        let chunk = ChunkHeader { transfer, offset, total, length: length as u32 };
        let RemoteMemory { address, key } = self.peer_arena;
        let to = RemoteMemory { address: address + first as u64 * SLOT as u64, key };
        // From here on the peer gives the slots back.
        self.slots.lock().send(first);
        piece.sent();
        let notice = |stripes| Some(Notice::Announcement(Announcement { chunk, first, stripes, is_direct }));
        self.carry(source, Work::Write(to), notice, then);
        count(&link.counters().transfer_bytes_sent, length);
        if is_direct {
            count(&link.counters().direct_bytes_sent, length);
        }
    }

    /// Offers registered memory to the peer, which reads it into the slots of a piece. `guard` keeps it
    /// until it has been read.
    fn offer(&self, piece: Piece, source: RemoteMemory, chunk: ChunkHeader, guard: BufferGuard) {
        let first = piece.first();
        self.slots.lock().send(first);
        piece.sent();
        self.exposed_regions.lock().begin_offer(first, chunk.length.into(), guard);
        let announcement = Announcement { chunk, first, stripes: 1, is_direct: false };
        let nothing = RegionSlice { address: 0, key: 0, length: 0 };
        self.carry(nothing, Work::None, |_| Some(Notice::Offer(Offer { announcement, from: source })), None);
    }

    /// Sends a transfer of registered memory, without a copy of it. Waits for slots, not for the bytes.
    pub(crate) fn send_from(
        &self,
        link: &Arc<Shared>,
        order: OutgoingTransfer,
        region: &MemoryRegion,
    ) -> Result<Sending, LinkError> {
        let OutgoingTransfer { transfer, start: Address(start), length, guard, .. } = order;
        let reads = self.prefers.reads(length);
        count(&link.counters().registered_bytes_sent, length);
        let (guard, sending) = match guard {
            Some(guard) => (guard, Sending::done()),
            None => {
                let operation = Operation::new(1, Box::new(drop));
                let (link, state) = (Arc::clone(link), self.myself());
                let pending = PendingOperation { link, state, operation: Arc::clone(&operation) };
                (Box::new(Ends(operation)) as BufferGuard, Sending::pending(pending))
            }
        };
        let guard = Arc::new(Mutex::new(guard));
        let max_piece = self.max_piece();
        let step = if length <= max_piece { length } else { LONG_STEP.min(max_piece) };
        for offset in (0..length).step_by(step) {
            link.check()?;
            let part = step.min(length - offset);
            let piece = self.wait_for(|| Ok(self.try_piece(part))).map_err(|error| link.lose(error))?;
            let address = start as u64 + offset as u64;
            let held = Arc::clone(&guard);
            let (offset, total) = (offset as u64, length as u64);
            if reads {
                let from = RemoteMemory { address, key: region.remote_key() };
                let chunk = ChunkHeader { transfer, offset, total, length: part as u32 };
                self.offer(piece, from, chunk, Box::new(held));
                count(&link.counters().transfer_bytes_sent, part);
            } else {
                let source = slice_of(region, address, part);
                let then: OnComplete = Box::new(move |_| drop(held));
                self.write_piece(link, piece, source, (transfer, offset, total), false, Some(then));
            }
        }
        Ok(sending)
    }
}

impl State {
    /// Registered memory, for the peer to write to.
    pub fn expose_for_write(&self, start: *const u8, length: usize) -> Option<RemoteRegion> {
        let region = self.registrations.read().find(start as usize, length, true)?;
        Some(RemoteRegion { address: start as u64, key: region.remote_key(), number: 0 })
    }

    /// Registered memory, for the peer to read; `guard` keeps it until the peer returns it.
    pub fn expose_for_read(
        &self,
        start: *const u8,
        length: usize,
        guard: BufferGuard,
    ) -> Option<RemoteRegion> {
        let region = self.registered(start, length)?;
        let key = region.remote_key();
        Some(self.expose_by_key(start as u64, key, length, guard))
    }

    /// A filled piece, for the peer to read in place; it is free again when the peer has.
    pub fn expose_piece(&self, piece: Piece) -> RemoteRegion {
        let (address, length) = (piece.as_ptr() as u64, piece.len());
        self.expose_by_key(address, self.staging.region().remote_key(), length, Box::new(piece))
    }

    /// Takes memory back that was exposed for reading.
    pub fn recall(&self, memory: RemoteRegion) {
        let held = self.exposed_regions.lock().end(memory.number);
        drop(held);
    }

    /// Exposes memory by the key of its registration; `guard` keeps it until the peer returns it.
    fn expose_by_key(&self, address: u64, key: u32, length: usize, guard: BufferGuard) -> RemoteRegion {
        let number = self.exposed_regions.lock().begin(length as u64, guard);
        if self.is_over() {
            self.abandon();
        }
        RemoteRegion { address, key, number }
    }
}

impl State {
    /// Writes a whole transfer to memory that the peer has exposed for it; `then` follows when it is there.
    fn put(
        &self,
        link: &Shared,
        transfer: u64,
        source: RegionSlice,
        to: RemoteRegion,
        is_direct: bool,
        then: OnComplete,
    ) {
        let length = source.length as u32;
        let chunk = ChunkHeader { transfer, offset: 0, total: length.into(), length };
        let to = RemoteMemory { address: to.address, key: to.key };
        let notice = |stripes| Some(Notice::Placed(Announcement { chunk, first: 0, stripes, is_direct }));
        self.carry(source, Work::Write(to), notice, Some(then));
        count(&link.counters().transfer_bytes_sent, source.length);
        if is_direct {
            count(&link.counters().direct_bytes_sent, source.length);
        }
    }

    /// Writes a piece to memory that the peer has exposed for its transfer.
    pub fn put_piece(&self, link: &Shared, transfer: u64, piece: Piece, to: RemoteRegion) {
        let source = self.slot(piece.first(), piece.len());
        self.put(link, transfer, source, to, false, Box::new(move |_| drop(piece)));
    }

    /// Reads memory that the peer has exposed, and returns it; `then` follows when it is there.
    pub fn read(
        &self,
        link: &Arc<Shared>,
        from: RemoteRegion,
        into: RegionSlice,
        is_direct: bool,
        then: OnComplete,
    ) {
        let RemoteRegion { address, key, number } = from;
        let (state, link) = (self.myself(), Arc::clone(link));
        let then: OnComplete = Box::new(move |outcome| {
            if outcome.is_ok() {
                count(&link.counters().transfer_bytes_received, into.length);
                if is_direct {
                    count(&link.counters().direct_bytes_received, into.length);
                }
                state.send_released(Released::Region { number, is_direct });
            }
            then(outcome);
        });
        self.carry(into, Work::Read(RemoteMemory { address, key }), |_| None, Some(then));
    }

    /// Reads memory that the peer has exposed to where no card can write, through staging.
    ///
    /// # Safety
    /// `length` bytes must be writable at `into`.
    unsafe fn read_by_staging(
        &self,
        link: &Arc<Shared>,
        from: RemoteRegion,
        into: *mut u8,
        length: usize,
    ) -> Result<(), LinkError> {
        let step = LONG_STEP.min(self.max_piece());
        for offset in (0..length).step_by(step) {
            let part = step.min(length - offset);
            let piece = self.wait_for(|| Ok(self.try_piece(part)))?;
            let operation = Operation::new(1, Box::new(drop));
            let ends = Ends(Arc::clone(&operation));
            let from = RemoteMemory { address: from.address.wrapping_add(offset as u64), key: from.key };
            let then: OnComplete = Box::new(move |_| drop(ends));
            self.carry(self.slot(piece.first(), part), Work::Read(from), |_| None, Some(then));
            self.wait_for(|| Ok(operation.is_over().then_some(())))?;
            // SAFETY: the caller has `length` bytes writable, among which the part is; the card has written
            // the slots, which are ours.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), into.wrapping_add(offset), part) };
        }
        count(&link.counters().transfer_bytes_received, length);
        Ok(())
    }

    /// Gives memory back that the peer has exposed for reading.
    pub fn decline(&self, memory: RemoteRegion) {
        self.send_released(Released::Region { number: memory.number, is_direct: false });
    }
}

/// Longer transfers of registered memory go in pieces of this many bytes, so that the peer can go on with the
/// first.
const LONG_STEP: usize = 4 << 20;

/// Ends an operation when nothing holds it any more.
struct Ends(pub Arc<Operation>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.done();
    }
}

/// An operation that reads memory of somebody who waits for its end.
struct PendingOperation {
    pub link: Arc<Shared>,
    pub state: Arc<State>,
    pub operation: Arc<Operation>,
}

impl Pending for PendingOperation {
    fn wait(&self) -> Result<(), LinkError> {
        let waited = self.state.wait_for(|| Ok(self.operation.is_over().then_some(())));
        // Whoever waits hears of the loss of the link after its owner has.
        waited.map_err(|error| self.link.lose(error))
    }

    fn release(&self) {
        // After the end of the link nothing reads the memory any more.
        let _ = self.wait();
    }
}
