//! Completion queue, and the syndromes of failed completions, which `mlx5.h` names.

use core::ffi::CStr;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;

use causeway_ibverbs::mlx5::{CompletionQueueLayout, completion_queue_layout};

use crate::device::gpu::{Block, HostPages};
use crate::device::verbs::doorbell::Mapped;
use crate::device::verbs::error::VerbsError;
use crate::device::verbs::layout::{self, MAX_QUEUE_PAIRS, MAX_SLOTS, operation};
use crate::device::verbs::nic::Nic;
use crate::locks::{Mutex, MutexGuard, rank};

/// A queue pair whose completions come here.
#[derive(Clone, Copy)]
struct Attached {
    /// The address that kernels know it by.
    handle: u64,
    /// Completions that its requests can need.
    needed: u32,
}

pub(super) struct Inner {
    pub(super) queue: causeway_ibverbs::CompletionQueue,
    pub(super) nic: Nic,
    layout: CompletionQueueLayout,
    attached: Mutex<rank::Leaf, Vec<Attached>>,
    block: Block,
    /// What kernels use of the library's memory.
    _pages: [Arc<Mapped>; 2],
}

/// A completion queue that kernels poll. Its entries lie in memory of the host. Clones are the same one.
///
/// Queue pairs are added to it and taken from it while no kernel polls.
#[derive(Clone)]
pub struct CompletionQueue(pub(super) Arc<Inner>);

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("layout", &self.0.layout).finish_non_exhaustive()
    }
}

/// Bytes of what kernels and the host both know.
pub(super) fn bytes_of<T: Copy>(value: &T) -> &[u8] {
    // SAFETY: the layouts are numbers without padding between them, as their sizes in the tests say.
    unsafe { core::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }
}

/// The same, to be filled.
pub(super) fn bytes_of_mut<T: Copy>(value: &mut T) -> &mut [u8] {
    // SAFETY: the layouts are numbers without padding between them, and every value of such a number is one.
    unsafe { core::slice::from_raw_parts_mut((&raw mut *value).cast::<u8>(), size_of::<T>()) }
}

/// What has ended: the card's cause, 0 for none, and the slot in which the request begins.
pub(super) struct Completed {
    pub(super) syndrome: u8,
    pub(super) slot: u16,
}

/// Reads completions in place of kernels, none of which polls any more.
pub(super) struct Reader<'a> {
    queue: &'a Inner,
    consumed: u64,
}

impl Reader<'_> {
    /// The next completion, if there is one.
    pub(super) fn next(&mut self) -> Option<Completed> {
        let ring = self.queue.layout.entries;
        let index = self.consumed % u64::from(ring.count);
        let end = ring.address + (index + 1) * u64::from(ring.bytes);
        if !self.queue.is_written(self.consumed) {
            return None;
        }
        // SAFETY: bytes of an entry of the library's ring, which the card has written and does not write again before
        // the record says that they are read.
        let (syndrome, slot) =
            unsafe { (((end - 9) as *const u8).read_volatile(), ((end - 4) as *const u16).read_volatile()) };
        let code = {
            // SAFETY: a byte of the same entry, which the card does not write again before the record says
            // that it is read.
            unsafe { ((end - 1) as *const u8).read_volatile() >> 4 }
        };
        self.consumed += 1;
        self.queue.write_record(self.consumed);
        let is_error = matches!(code, 13 | 14);
        Some(Completed { syndrome: if is_error { syndrome } else { 0 }, slot: u16::from_be(slot) })
    }
}

impl Inner {
    /// Whether the card has written the entry with this number.
    fn is_written(&self, number: u64) -> bool {
        /// What the card has never written has this in its high four bits.
        const INVALID: u32 = 15;
        let ring = self.layout.entries;
        let end = ring.address + (number % u64::from(ring.count) + 1) * u64::from(ring.bytes);
        // SAFETY: the last four bytes of an entry of the library's ring, which the card may be writing.
        let tail = unsafe { &*((end - 4) as *const AtomicU32) }.load(Ordering::Acquire);
        let (code, owner) = (tail >> 28, u64::from(tail >> 24 & 1));
        code != INVALID && owner == number / u64::from(ring.count) % 2
    }

    /// Tells the card how far completions have been read.
    fn write_record(&self, consumed: u64) {
        // SAFETY: the record is memory of the library, 4 bytes at a multiple of 4.
        let record = unsafe { &*(self.layout.record as *const AtomicU32) };
        record.store((consumed as u32 & 0x00ff_ffff).to_be(), Ordering::Release);
    }
}

impl CompletionQueue {
    /// A queue with space for so many completions at least.
    ///
    /// # Errors
    /// When the card refuses, or kernels cannot use its memory.
    pub fn new(nic: &Nic, entries: u32) -> Result<Self, VerbsError> {
        /// Entries of the largest queue.
        const MAX_ENTRIES: u32 = 1 << 22;
        if entries == 0 || entries > MAX_ENTRIES {
            return Err(VerbsError::Size {
                what: "a completion queue",
                requested: entries,
                unit: "entries",
                max: MAX_ENTRIES,
            });
        }
        let inner = &nic.0;
        let device = inner.domain.device();
        let queue = causeway_ibverbs::CompletionQueue::new(device, entries)?;
        let found = completion_queue_layout(device, &queue)?;
        let (ring, record) = (found.entries, found.record);
        if !ring.count.is_power_of_two() || !matches!(ring.bytes, 64 | 128) {
            return Err(VerbsError::Ring { count: ring.count, bytes: ring.bytes });
        }
        let bytes = u64::from(ring.count) * u64::from(ring.bytes);
        let entries = inner.pages.map(ring.address, bytes, HostPages::Memory)?;
        let records = inner.pages.map(record, 8, HostPages::Memory)?;
        let on_gpu = layout::CompletionQueue {
            buffer: entries.on_gpu(ring.address),
            count: ring.count,
            entry_bytes: ring.bytes,
            doorbell_record: records.on_gpu(record),
            abort: inner.abort_word(),
            limit: inner.limit(),
            number: found.number,
            ..layout::CompletionQueue::default()
        };
        let block = inner.gpu.device_memory(size_of::<layout::CompletionQueue>() as u64)?;
        inner.gpu.write(block.address, bytes_of(&on_gpu))?;
        Ok(Self(Arc::new(Inner {
            queue,
            nic: nic.clone(),
            layout: found,
            attached: Mutex::default(),
            block,
            _pages: [entries, records],
        })))
    }

    /// The address of what a kernel is given: a `causeway::verbs::CompletionQueue`.
    pub fn handle(&self) -> u64 {
        self.0.block.address
    }

    fn attached(&self) -> MutexGuard<'_, rank::Leaf, Vec<Attached>> {
        self.0.attached.lock()
    }

    fn write_attached(&self, attached: &[Attached]) -> Result<(), VerbsError> {
        let mut handles = [0; MAX_QUEUE_PAIRS];
        handles.iter_mut().zip(attached).for_each(|(to, from)| *to = from.handle);
        let gpu = &self.0.nic.0.gpu;
        let at = |offset: usize| self.0.block.address + offset as u64;
        gpu.write(at(core::mem::offset_of!(layout::CompletionQueue, queue_pairs)), bytes_of(&handles))?;
        let count = attached.len() as u32;
        gpu.write(at(core::mem::offset_of!(layout::CompletionQueue, queue_pair_count)), bytes_of(&count))?;
        Ok(())
    }

    /// Has completions of a queue pair, which can need so many entries at a time.
    pub(super) fn attach(&self, handle: u64, needed: u32) -> Result<(), VerbsError> {
        let mut attached = self.attached();
        let all = attached.iter().map(|one| one.needed).sum::<u32>().saturating_add(needed);
        if all > self.0.layout.entries.count {
            return Err(VerbsError::Overrun { entries: self.0.layout.entries.count, needed: all });
        }
        if attached.len() == MAX_QUEUE_PAIRS {
            return Err(VerbsError::TooManyQueuePairs);
        }
        let mut with = attached.clone();
        with.push(Attached { handle, needed });
        self.write_attached(&with)?;
        *attached = with;
        Ok(())
    }

    /// Has none of it any more.
    pub(super) fn detach(&self, handle: u64) -> Result<(), VerbsError> {
        let mut attached = self.attached();
        attached.retain(|one| one.handle != handle);
        self.write_attached(&attached)
    }

    fn consumed(&self) -> Result<u64, VerbsError> {
        let mut word = [0; 8];
        let at = core::mem::offset_of!(layout::CompletionQueue, polling) as u64;
        self.0.nic.0.gpu.read(self.0.block.address + at, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }

    /// Whether there are completions that no kernel has polled.
    pub(super) fn has_unread(&self) -> Result<bool, VerbsError> {
        Ok(self.0.is_written(self.consumed()?))
    }

    /// Reads on where kernels have ended.
    pub(super) fn reader(&self) -> Result<Reader<'_>, VerbsError> {
        Ok(Reader { consumed: self.consumed()?, queue: &self.0 })
    }

    /// Tells the card once more how far kernels have read. libmlx5 knows nothing of that, and tells something else
    /// when a queue pair is reset or destroyed.
    pub(super) fn restore_record(&self) -> Result<(), VerbsError> {
        self.0.write_record(self.consumed()?);
        Ok(())
    }
}

/// The rule for rings of requests.
pub(super) fn check_ring(count: u32, bytes: u32) -> Result<(), VerbsError> {
    let is_known = count.is_power_of_two() && count <= MAX_SLOTS && bytes.is_power_of_two() && bytes >= 16;
    if is_known { Ok(()) } else { Err(VerbsError::Ring { count, bytes }) }
}

/// What a completion's syndrome says; 0 is no error.
pub fn text(syndrome: u32) -> &'static CStr {
    match syndrome {
        0 => c"success",
        0x01 => c"a message was longer than the memory that waited for it, or than the card allows",
        0x02 => c"the queue pair met an inconsistency in a request of its own",
        0x04 => c"a request named memory of this side that is not registered for it, or bytes beyond it",
        0x05 => c"an earlier request of the queue pair had failed, so this one was flushed",
        0x06 => c"a memory window could not be bound",
        0x10 => c"the peer answered something that does not belong here",
        0x11 => c"the peer's message could not be written to the memory that waited for it",
        0x12 => c"the peer cannot carry out such a request",
        0x13 => c"the peer does not allow access to the memory that was named",
        0x14 => c"the peer failed in carrying out a request",
        0x15 => c"the peer did not answer, however often it was asked: it or the path to it is down",
        0x16 => c"the peer took no message, however often it was asked: it had posted no receive",
        0x22 => c"the peer has aborted the request",
        _ => c"the card reports a failure",
    }
}

/// What an operation is called, by its number in requests and completions.
pub fn operation_name(number: u32) -> &'static str {
    match number {
        operation::RDMA_WRITE => "RDMA write",
        operation::RDMA_WRITE_WITH_IMM => "RDMA write with immediate data",
        operation::SEND => "send",
        operation::SEND_WITH_IMM => "send with immediate data",
        operation::RDMA_READ => "RDMA read",
        operation::COMPARE_AND_SWAP => "compare-and-swap",
        operation::FETCH_AND_ADD => "fetch-and-add",
        operation::RECEIVE | operation::RECEIVE_RDMA_WITH_IMM => "receive",
        _ => "an unknown operation",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_syndrome_of_the_header_has_a_text_of_its_own() {
        let header = include_str!("../../../../../device/include/causeway/mlx5.h");
        let (_, rest) = header.split_once("// Why a request has failed.").unwrap();
        let (list, _) = rest.split_once("};").unwrap();
        let numbers: Vec<u32> = list
            .lines()
            .filter_map(|line| line.split_once(" = 0x"))
            .map(|(_, rest)| u32::from_str_radix(rest.split(',').next().unwrap(), 16).unwrap())
            .collect();
        assert_eq!(numbers.len(), 12);
        let unknown = text(0xff);
        assert!(numbers.iter().all(|number| text(*number) != unknown));
    }
}
