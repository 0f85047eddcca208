//! Staging ring: host memory that two ranks map, in slots that one fills and the other reads in turn.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use causeway_memory::{SealedMemory, SealedMemoryError, numa};
use memmap2::{MmapOptions, MmapRaw};

use crate::cuda::{self, CudaError, Driver, PendingCopy, Pinned, Scope};

/// Slots of `staged`: four of 512 KiB.
pub(crate) const HOST_SLOTS: Ring = Ring { count: 4, bytes: 512 << 10, first: 512 << 10 };

/// The shortest and the longest slots of a bounce buffer on a GPU, and how many there are.
const MIN_BOUNCE_BYTES: u64 = 2 << 20;
const MAX_BOUNCE_BYTES: u64 = 8 << 20;
const BOUNCE_SLOTS: u16 = 6;

/// The most bytes of the first piece through a bounce buffer, and how many times as many the next one has at
/// the most. Both ends say that a piece is there or read in some 7 us, in which NVLink carries 2.6 MB. So a
/// shorter first piece would begin no sooner; and as memory within a GPU is copied three to four times as
/// fast as NVLink carries it, one that is four times as long is there when the one before it has been read.
const FIRST_BOUNCE_BYTES: u32 = 1 << 20;
const GROWTH: u64 = 4;

/// The most bytes of slots that a peer may ask this process to map.
const MAX_RING_BYTES: u64 = 64 << 20;

/// How many slots there are, and how long each is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ring {
    pub(crate) count: u16,
    pub(crate) bytes: u32,
    /// The most bytes of the first piece: from there pieces grow until they fill a slot.
    pub(crate) first: u32,
}

impl Ring {
    /// A ring as a peer says it, if it makes sense.
    pub(crate) fn checked(count: u16, bytes: u32) -> Option<Self> {
        let ring = Self { count, bytes, first: bytes };
        (count > 0 && bytes > 0 && ring.total() <= MAX_RING_BYTES).then_some(ring)
    }

    /// The slots of a bounce buffer on a GPU for a payload: a quarter of it each at the most, so that both
    /// ends are busy for most of the time. While NVLink carries 4 MiB, 11 us, both ends can say that the last
    /// slot is full or free; 8 MiB leave room for what else the processors do.
    pub(crate) fn of_bounce(payload: u64) -> Self {
        let bytes = (payload / 4).min(MAX_BOUNCE_BYTES).next_power_of_two().max(MIN_BOUNCE_BYTES);
        // At most MAX_BOUNCE_BYTES.
        Self { count: BOUNCE_SLOTS, bytes: bytes as u32, first: bytes as u32 }.growing()
    }

    /// The same slots for pieces that grow, as they pass through a bounce buffer.
    pub(crate) fn growing(self) -> Self {
        Self { first: self.bytes.min(FIRST_BOUNCE_BYTES), ..self }
    }

    /// Bytes of all slots.
    pub(crate) fn total(self) -> u64 {
        u64::from(self.count) * u64::from(self.bytes)
    }

    /// Where a slot begins.
    pub(crate) fn offset(self, slot: u16) -> u64 {
        u64::from(slot) * u64::from(self.bytes)
    }

    /// The pieces of a payload: the slot, the place in the payload, and the bytes of each.
    pub(crate) fn pieces(self, payload: u64) -> impl Iterator<Item = (u16, u64, u32)> {
        let (count, max_piece) = (u64::from(self.count), u64::from(self.bytes));
        let (mut at, mut limit) = (0, u64::from(self.first));
        (0..).map_while(move |number: u64| {
            let (start, bytes) = (at, limit.min(payload - at));
            at += bytes;
            limit = (limit * GROWTH).min(max_piece);
            // Both are below what they are made of.
            (bytes > 0).then_some(((number % count) as u16, start, bytes as u32))
        })
    }
}

/// Slots in memory of the host.
#[derive(Debug)]
pub(crate) struct HostSlots {
    /// In front of the mapping, so that it goes first. None where the driver refuses, or has not been asked.
    pinned: Option<Pinned>,
    is_tried: bool,
    /// It stays without the descriptor by which it was made.
    mapping: MmapRaw,
    pub(crate) ring: Ring,
}

impl HostSlots {
    /// New ones, and what the peer maps, whose length nobody can change.
    pub(crate) fn new(ring: Ring) -> Result<(Self, SealedMemory), SealedMemoryError> {
        let memory = SealedMemory::new("causeway-comm-slots", ring.total())?;
        Ok((Self::map(&memory, ring)?, memory))
    }

    /// Those of a peer. Memory that could become shorter is refused: to touch what is gone ends a process.
    pub(crate) fn of_peer(descriptor: OwnedFd, ring: Ring) -> Result<Self, SealedMemoryError> {
        Self::map(&SealedMemory::check(descriptor, ring.total())?, ring)
    }

    fn map(memory: &SealedMemory, ring: Ring) -> Result<Self, SealedMemoryError> {
        let bytes = memory.bytes();
        // At most MAX_RING_BYTES.
        let mapping = MmapOptions::new().len(bytes as usize).map_raw(&memory.descriptor());
        let mapping = mapping.map_err(|cause| SealedMemoryError::System { bytes, cause })?;
        Ok(Self { pinned: None, is_tried: false, mapping, ring })
    }

    /// Registers them with the driver here, so that the GPU's engine copies without a detour. Where it
    /// refuses they are used all the same. Pages that were not used yet lie near the GPU from then on.
    pub(crate) fn pin(&mut self, scope: &Scope<'static>) {
        if self.is_tried || Driver::is_remote() {
            return;
        }
        self.is_tried = true;
        let (address, bytes) = (self.mapping.as_mut_ptr() as u64, self.ring.total() as usize);
        self.prefer_node(cuda::current_node(scope.driver()));
        // SAFETY: the mapping goes after what is registered.
        self.pinned = unsafe { Pinned::new(scope, address, bytes) }.ok();
    }

    /// Has pages that were not used yet lie on a NUMA node.
    pub(crate) fn prefer_node(&self, node: Option<usize>) {
        if let Some(node) = node {
            let (address, bytes) = (self.mapping.as_mut_ptr(), self.ring.total() as usize);
            // SAFETY: so many bytes are mapped, from a page on.
            unsafe { numa::prefer(address, bytes, node) };
        }
    }

    /// The address of a slot.
    pub(crate) fn address(&self, slot: u16) -> u64 {
        self.mapping.as_mut_ptr() as u64 + self.ring.offset(slot % self.ring.count)
    }
}

/// Slots that are being copied into or out of, the oldest first. Whoever gives up in the middle waits for
/// them.
#[derive(Debug)]
pub(crate) struct PendingCopies<T>(VecDeque<(Option<PendingCopy>, T)>);

impl<T> Default for PendingCopies<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> PendingCopies<T> {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A copy of a slot was begun, or made, where there is nothing to wait for.
    pub(crate) fn push(&mut self, copy: Option<PendingCopy>, slot: T) {
        self.0.push_back((copy, slot));
    }

    /// Whether the oldest is over, well or not. Does not wait.
    pub(crate) fn is_first_done(&self) -> bool {
        self.0.front().is_some_and(|(copy, _)| copy.as_ref().is_none_or(|copy| copy.is_done() != Ok(false)))
    }

    /// Waits for the oldest; none where there is none. The slot comes with an error, too.
    pub(crate) fn end_first(&mut self) -> Result<Option<T>, (CudaError, T)> {
        let Some((copy, slot)) = self.0.pop_front() else { return Ok(None) };
        match copy.map_or(Ok(()), PendingCopy::wait) {
            Ok(()) => Ok(Some(slot)),
            Err(error) => Err((error, slot)),
        }
    }
}

impl<T> Drop for PendingCopies<T> {
    fn drop(&mut self) {
        while !self.0.is_empty() {
            // What is wrong has been told already.
            let _ = self.end_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn both_ends_see_the_same_bytes() {
        let ring = Ring { count: 2, bytes: 4096, first: 4096 };
        let (own, memory) = HostSlots::new(ring).unwrap();
        let peer = HostSlots::of_peer(memory.descriptor().try_clone_to_owned().unwrap(), ring).unwrap();
        // SAFETY: both are mapped, and nobody else uses them.
        unsafe { (own.address(1) as *mut u8).write(7) };
        // SAFETY: both are mapped, and nobody else uses them.
        assert_eq!(unsafe { (peer.address(1) as *const u8).read() }, 7);
        let longer = Ring { count: 3, ..ring };
        assert!(HostSlots::of_peer(memory.descriptor().try_clone_to_owned().unwrap(), longer).is_err());
    }

    #[test]
    fn memory_that_may_become_shorter_is_refused() {
        let descriptor = memfd_create(c"open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&descriptor, 8192).unwrap();
        assert!(HostSlots::of_peer(descriptor, Ring { count: 2, bytes: 4096, first: 4096 }).is_err());
    }

    #[test]
    fn bounce_buffers_fit_the_payload() {
        for (payload, bytes) in
            [(1, 2 << 20), (9 << 20, 4 << 20), (16 << 20, 4 << 20), (64 << 20, 8 << 20), (u64::MAX, 8 << 20)]
        {
            let ring = Ring::of_bounce(payload);
            assert_eq!(ring, Ring { count: 6, bytes, first: 1 << 20 });
            let taken = Ring::checked(ring.count, ring.bytes).map(Ring::growing);
            assert_eq!(taken, Some(ring), "a peer takes it");
        }
    }

    #[test]
    fn rings_of_peers_are_bounded() {
        assert_eq!(Ring::checked(0, 1), None);
        assert_eq!(Ring::checked(1, 0), None);
        assert_eq!(Ring::checked(u16::MAX, u32::MAX), None);
        assert_eq!(Ring::checked(4, 512 << 10), Some(HOST_SLOTS));
    }

    proptest! {
        #[test]
        fn pieces_are_the_payload(
            payload in 0_u64..100_000,
            count in 1_u16..5,
            first in 1_u32..5000,
            more in 0_u32..5000,
        ) {
            let ring = Ring { count, bytes: first + more, first };
            let (mut at, mut limit) = (0, first);
            for (number, (slot, start, length)) in ring.pieces(payload).enumerate() {
                prop_assert_eq!((u64::from(slot), start), (number as u64 % u64::from(count), at));
                prop_assert!(length > 0 && length <= limit);
                at += u64::from(length);
                prop_assert!(length == limit || at == payload, "only the last one is shorter");
                limit = (limit * 4).min(ring.bytes);
            }
            prop_assert_eq!(at, payload);
        }
    }
}
