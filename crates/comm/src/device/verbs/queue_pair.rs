//! Queue pair: creation, connection, reset after an error, and its address of 32 bytes, which the program
//! brings to the peer.

use core::fmt;
use core::hash::{BuildHasher as _, Hasher as _};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::hash::RandomState;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_ibverbs::mlx5::{QueuePairLayout, Slots, new_queue_pair, queue_pair_layout};
use causeway_ibverbs::{Access, Capacity, Gid, PathMtu, RemoteEnd, Settings};

use crate::device::gpu::{Block, HostPages};
use crate::device::verbs::completion::{Completed, CompletionQueue, bytes_of, bytes_of_mut, check_ring};
use crate::device::verbs::doorbell::{Doorbell, Mapped};
use crate::device::verbs::error::VerbsError;
use crate::device::verbs::layout::{self, MAX_SLOTS, SEND_SLOT_BYTES};
use crate::device::verbs::nic::Nic;

/// How much a queue pair holds.
#[derive(Debug, Clone, Copy)]
pub struct QueuePairOptions {
    /// Requests in the send queue, at least.
    pub sends: u32,
    /// Requests in the receive queue, at least.
    pub receives: u32,
    /// Bytes of an inline request, at least.
    pub inline: u32,
}

impl Default for QueuePairOptions {
    fn default() -> Self {
        Self { sends: 256, receives: 256, inline: 60 }
    }
}

/// What kernels write to ring the doorbell.
enum Bell {
    /// The card's register.
    Register(Arc<Mapped>),
    /// A word that a thread of the host forwards.
    Word(Block),
}

/// A queue pair that kernels post to, whose rings lie in memory of the host.
pub struct QueuePair {
    queue_pair: Option<causeway_ibverbs::QueuePair>,
    number: u32,
    layout: QueuePairLayout,
    inline: u32,
    /// The number of the first packet.
    packet: u32,
    bell: Bell,
    block: Block,
    slots: [Block; 2],
    completions: [CompletionQueue; 2],
    nic: Nic,
    rings: Arc<Mapped>,
    records: Arc<Mapped>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair").field("number", &self.number).finish_non_exhaustive()
    }
}

fn check_size(requested: u32, what: &'static str) -> Result<(), VerbsError> {
    if (1..=MAX_SLOTS).contains(&requested) {
        return Ok(());
    }
    Err(VerbsError::Size { what, requested, unit: "requests", max: MAX_SLOTS })
}

/// What a peer may do.
fn access() -> Access {
    Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

fn bytes(slots: Slots) -> u64 {
    u64::from(slots.count) * u64::from(slots.bytes)
}

impl QueuePair {
    /// A queue pair whose sends and receives complete in these queues, and which takes receives from now on.
    ///
    /// # Errors
    /// When the card refuses, kernels cannot use its memory, or the queues are too small for it.
    pub fn new(
        nic: &Nic,
        sends: &CompletionQueue,
        receives: &CompletionQueue,
        options: QueuePairOptions,
    ) -> Result<Self, VerbsError> {
        check_size(options.sends, "a send queue")?;
        check_size(options.receives, "a receive queue")?;
        let inner = &nic.0;
        if [sends, receives].iter().any(|queue| !Arc::ptr_eq(&queue.0.nic.0, inner)) {
            return Err(VerbsError::OtherNic);
        }
        let capacity = Capacity { sends: options.sends, receives: options.receives, inline: options.inline };
        let queue_pair = new_queue_pair(&inner.domain, &sends.0.queue, &receives.0.queue, capacity)?;
        let found = queue_pair_layout(&queue_pair)?;
        check_ring(found.sends.count, found.sends.bytes)?;
        check_ring(found.receives.count, found.receives.bytes)?;
        if found.sends.bytes != SEND_SLOT_BYTES {
            return Err(VerbsError::Ring { count: found.sends.count, bytes: found.sends.bytes });
        }
        // Both rings lie in one piece of memory, in which they may share a page.
        let start = found.sends.address.min(found.receives.address);
        let end =
            (found.sends.address + bytes(found.sends)).max(found.receives.address + bytes(found.receives));
        let rings = inner.pages.map(start, end - start, HostPages::Memory)?;
        let records = inner.pages.map(found.record, 8, HostPages::Memory)?;
        let bell = Self::bell(nic, found.doorbell)?;
        let memory =
            |count: u32| inner.gpu.device_memory(u64::from(count) * size_of::<layout::Slot>() as u64);
        let made = Self {
            number: queue_pair.number(),
            inline: queue_pair.capacity().inline,
            queue_pair: Some(queue_pair),
            layout: found,
            packet: (RandomState::new().build_hasher().finish() & 0x00ff_ffff) as u32,
            bell,
            block: inner.gpu.device_memory(size_of::<layout::QueuePair>() as u64)?,
            slots: [memory(found.sends.count)?, memory(found.receives.count)?],
            completions: [sends.clone(), receives.clone()],
            nic: nic.clone(),
            rings,
            records,
        };
        made.write_state()?;
        made.library().initialise_for(inner.port.number, access())?;
        // A queue pair that fails here is destroyed, which takes it from both queues.
        if Arc::ptr_eq(&sends.0, &receives.0) {
            sends.attach(made.handle(), found.sends.count + found.receives.count)?;
        } else {
            sends.attach(made.handle(), found.sends.count)?;
            receives.attach(made.handle(), found.receives.count)?;
        }
        Ok(made)
    }

    fn bell(nic: &Nic, register: u64) -> Result<Bell, VerbsError> {
        let inner = &nic.0;
        let requested = inner.options.doorbell;
        if requested != Doorbell::Assisted {
            let page = inner.pages.map(register, 8, HostPages::Registers);
            // What stands in for a card in tests has its registers in memory.
            let page =
                page.or_else(|cause| inner.pages.map(register, 8, HostPages::Memory).map_err(|_| cause));
            match page {
                Ok(page) => return Ok(Bell::Register(page)),
                Err(cause) if requested == Doorbell::Direct => {
                    return Err(VerbsError::Doorbell { device: nic.name().to_owned(), cause });
                }
                Err(_) => {}
            }
        }
        let word = inner.gpu.host_memory(64)?;
        inner.forwarder.add(word.address, register)?;
        Ok(Bell::Word(word))
    }

    fn library(&self) -> &causeway_ibverbs::QueuePair {
        self.queue_pair.as_ref().expect("it is there from the beginning to the end")
    }

    /// The address of what a kernel is given: a `causeway::verbs::QueuePair`.
    pub fn handle(&self) -> u64 {
        self.block.address
    }

    /// Its number, as completions name it.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Who rings its doorbell: [`Doorbell::Direct`] or [`Doorbell::Assisted`].
    pub fn doorbell(&self) -> Doorbell {
        match self.bell {
            Bell::Register(_) => Doorbell::Direct,
            Bell::Word(_) => Doorbell::Assisted,
        }
    }

    /// Slots of the send queue; a request takes one, or more with many inline bytes.
    pub fn send_slots(&self) -> u32 {
        self.layout.sends.count
    }

    /// Slots of the receive queue.
    pub fn receive_slots(&self) -> u32 {
        self.layout.receives.count
    }

    /// Empties the rings, as kernels and the card see them.
    fn write_state(&self) -> Result<(), VerbsError> {
        let inner = &self.nic.0;
        let ring = |slots: Slots, memory: &Block, record: u64, doorbell: u64| layout::Ring {
            buffer: self.rings.on_gpu(slots.address),
            count: slots.count,
            slot_bytes: slots.bytes,
            doorbell_record: self.records.on_gpu(record),
            doorbell,
            slots: memory.address,
            ..layout::Ring::default()
        };
        let record = self.layout.record;
        let doorbell = match &self.bell {
            Bell::Register(page) => page.on_gpu(self.layout.doorbell),
            Bell::Word(word) => word.address,
        };
        // Kernels use the second half of a record for sends, and begin at the first one.
        let state = layout::QueuePair {
            number: self.number,
            max_inline: self.inline,
            abort: inner.abort_word(),
            limit: inner.limit(),
            send: ring(self.layout.sends, &self.slots[0], record, doorbell),
            receive: ring(self.layout.receives, &self.slots[1], record, 0),
            ..layout::QueuePair::default()
        };
        for memory in &self.slots {
            inner.gpu.write(memory.address, &vec![0; memory.bytes as usize])?;
        }
        if let Bell::Word(word) = &self.bell {
            // SAFETY: pinned memory of this queue pair, which no kernel uses now.
            unsafe { &*(word.address as *const AtomicU64) }.store(0, Ordering::Release);
            inner.forwarder.restart(word.address);
        }
        // SAFETY: the record is memory of the library, 8 bytes at a multiple of 8, and no kernel uses it now.
        unsafe { &*(record as *const AtomicU64) }.store(0, Ordering::Release);
        inner.gpu.write(self.block.address, bytes_of(&state))?;
        Ok(())
    }

    /// What the peer is to get, to connect its own queue pair.
    pub fn address(&self) -> [u8; ADDRESS_BYTES] {
        let inner = &self.nic.0;
        let end = RemoteEnd {
            queue_pair: self.number,
            packet: self.packet,
            lid: inner.port.lid,
            gid: inner.gid.gid,
        };
        Address { end, mtu: inner.port.mtu }.to_bytes()
    }

    /// Joins it with the peer's queue pair. A message for which the peer has posted no receive waits for it.
    ///
    /// # Errors
    /// When the bytes are no address, or the card refuses.
    pub fn connect(&self, peer: &[u8; ADDRESS_BYTES]) -> Result<(), VerbsError> {
        /// Of a peer that has no receive: without end.
        const WITHOUT_END: u8 = 7;
        let peer = Address::from_bytes(peer).ok_or(VerbsError::Address)?;
        let inner = &self.nic.0;
        let limits = inner.domain.device().limits()?;
        let mtu: PathMtu = peer.mtu.min(inner.port.mtu);
        let defaults = Settings::new(mtu);
        let at_most = |requested: u8, limit: u32| u32::from(requested).min(limit) as u8;
        let settings = Settings {
            rnr_retries: WITHOUT_END,
            reads: at_most(defaults.reads, limits.reads),
            answered_reads: at_most(defaults.answered_reads, limits.answered_reads),
            ..defaults
        };
        self.library().receive_from(&inner.port, inner.gid.index, &peer.end, &settings)?;
        self.library().send_from(self.packet, &settings)?;
        Ok(())
    }

    /// Has all requests that are in it come back as *flushed*, also receives.
    ///
    /// # Errors
    /// When the card refuses.
    pub fn flush(&self) -> Result<(), VerbsError> {
        Ok(self.library().end()?)
    }

    /// Empties it, also after an error, for [`connect`](Self::connect) to join it again. No kernel uses it, and all
    /// its completions have been polled.
    ///
    /// # Errors
    /// When some have not, or the card refuses.
    pub fn reset(&self) -> Result<(), VerbsError> {
        self.must_be_drained()?;
        self.library().reset()?;
        // What came meanwhile is of requests before; none comes any more.
        self.must_be_drained()?;
        self.write_state()?;
        for queue in &self.completions {
            queue.restore_record()?;
        }
        self.library().initialise_for(self.nic.0.port.number, access())?;
        Ok(())
    }

    /// Has the card end all that kernels have posted, which none of them does any more: a last request, a write of no
    /// bytes to this address of the peer's, is posted behind it, and its completion is waited for. Afterwards the queue
    /// pair is of no use but to be destroyed. Whether all was done, which it is not if a request has failed.
    ///
    /// # Errors
    /// What the GPU's driver says.
    pub fn drain(&self, sink: (u64, u32), limit: Duration) -> Result<bool, VerbsError> {
        let gpu = &self.nic.0.gpu;
        let mut state = layout::QueuePair::default();
        gpu.read(self.block.address, bytes_of_mut(&mut state))?;
        let (reserved, mut done) = (state.send.reserved.slots, state.send.completed.slots);
        if state.failure != 0 || done >= reserved {
            return Ok(state.failure == 0);
        }
        let count = u64::from(self.layout.sends.count);
        let mut slots = vec![layout::Slot::default(); count as usize];
        // SAFETY: slots are numbers without padding, and every value of such a number is one.
        let bytes = unsafe {
            core::slice::from_raw_parts_mut(slots.as_mut_ptr().cast::<u8>(), size_of_val(slots.as_slice()))
        };
        gpu.read(self.slots[0].address, bytes)?;
        let mut completions = self.completions[0].reader()?;
        let until = Instant::now() + limit;
        let mut is_marked = false;
        while done <= reserved {
            if !is_marked && reserved - done < count {
                self.post_mark(reserved, sink);
                is_marked = true;
            }
            match completions.next() {
                Some(Completed { syndrome: 0, slot }) if is_marked && slot == reserved as u16 => {
                    return Ok(true);
                }
                Some(Completed { syndrome: 0, slot }) => {
                    done = done.max(slots[usize::from(slot) & (slots.len() - 1)].end);
                }
                Some(_) => return Ok(false),
                None if Instant::now() > until => return Ok(false),
                None => std::thread::yield_now(),
            }
        }
        Ok(true)
    }

    /// Writes a request of no bytes into a slot, as kernels do, and tells the card.
    fn post_mark(&self, slot: u64, (address, key): (u64, u32)) {
        /// Behind reads and atomic operations, with a completion.
        const FLAGS: u32 = 4 << 5 | 2 << 2;
        let control = (slot as u32 & 0xffff) << 8 | layout::operation::RDMA_WRITE;
        let segment = [control.to_be(), (self.number << 8 | 2).to_be(), FLAGS << 24, 0];
        let remote = [(address >> 32) as u32, address as u32, key, 0].map(u32::to_be);
        let at = self.layout.sends.address
            + (slot & u64::from(self.layout.sends.count - 1)) * u64::from(SEND_SLOT_BYTES);
        for (index, value) in (0..).zip(segment.into_iter().chain(remote)) {
            // SAFETY: a slot of the library's ring of 64 bytes, which the card has done and no kernel writes.
            unsafe { ((at + 4 * index) as *mut u32).write_volatile(value) };
        }
        fence(Ordering::SeqCst);
        // SAFETY: the second half of the record, which is memory of the library.
        let record = unsafe { &*((self.layout.record + 4) as *const AtomicU32) };
        record.store((slot.wrapping_add(1) as u32 & 0xffff).to_be(), Ordering::Release);
        fence(Ordering::SeqCst);
        let doorbell = u64::from(segment[0]) | u64::from(segment[1]) << 32;
        // SAFETY: the card's register, as the library has mapped it, which takes 8 bytes at once.
        unsafe { (self.layout.doorbell as *mut u64).write_volatile(doorbell) };
        fence(Ordering::SeqCst);
    }

    fn must_be_drained(&self) -> Result<(), VerbsError> {
        for queue in &self.completions {
            if queue.has_unread()? {
                return Err(VerbsError::NotDrained(self.number));
            }
        }
        Ok(())
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if let Bell::Word(word) = &self.bell {
            self.nic.0.forwarder.remove(word.address);
        }
        // Destroyed first: the card writes no completion any more.
        self.queue_pair = None;
        for queue in &self.completions {
            // Only a GPU that has failed refuses, which then runs no kernel that would look there.
            let _ = queue.detach(self.block.address);
            let _ = queue.restore_record();
        }
    }
}

/// Bytes of an address.
pub const ADDRESS_BYTES: usize = 32;

/// What they begin with; the last one is the version.
const MAGIC: [u8; 5] = *b"CWqp\x01";

/// Where a queue pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// The queue pair and its port.
    pub end: RemoteEnd,
    /// Bytes of a packet that its port takes.
    pub mtu: PathMtu,
}

impl Address {
    /// As the peer gets it.
    pub fn to_bytes(self) -> [u8; ADDRESS_BYTES] {
        let mut bytes = [0; ADDRESS_BYTES];
        bytes[..5].copy_from_slice(&MAGIC);
        bytes[5] = self.mtu as u8;
        bytes[6..8].copy_from_slice(&self.end.lid.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.end.queue_pair.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.end.packet.to_le_bytes());
        bytes[16..].copy_from_slice(&self.end.gid.0);
        bytes
    }

    /// From a peer's bytes; `None` where they are something else.
    pub fn from_bytes(bytes: &[u8; ADDRESS_BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mtu = PathMtu::ALL.into_iter().find(|mtu| *mtu as u8 == bytes[5])?;
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[16..]);
        let (queue_pair, packet) = (number(8), number(12));
        if bytes[..5] != MAGIC || queue_pair > 0x00ff_ffff || packet > 0x00ff_ffff {
            return None;
        }
        let lid = u16::from_le_bytes([bytes[6], bytes[7]]);
        Some(Self { end: RemoteEnd { queue_pair, packet, lid, gid: Gid(gid) }, mtu })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_comes_back_and_other_bytes_are_refused() {
        let end = RemoteEnd { queue_pair: 0xabcdef, packet: 0x123456, lid: 7, gid: Gid([9; 16]) };
        let bytes = Address { end, mtu: PathMtu::Mtu4096 }.to_bytes();
        assert_eq!(Address::from_bytes(&bytes), Some(Address { end, mtu: PathMtu::Mtu4096 }));
        for at in [0, 4, 5, 11, 15] {
            let mut wrong = bytes;
            wrong[at] = 0xee;
            assert_eq!(Address::from_bytes(&wrong), None, "byte {at}");
        }
    }
}
