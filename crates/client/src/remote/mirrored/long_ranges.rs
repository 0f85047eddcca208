//! Long stretches of memory with a mirror: read from the server as transfers, and compared and put in place
//! by several threads.

use core::ops::Range;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_api::calls;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use causeway_api::types::MemoryRange;
use causeway_memory::copy_threads;
use causeway_memory::mirror::merge_changes;
use parking_lot::Mutex;

use crate::model::host_window::HUGE_PAGE;
use crate::model::transfers::{self, Transfer};
use crate::remote::session;
use crate::remote::transfers::expect;
use crate::remote::transfers::receive_buffer::ReceiveBuffer;

/// What is asked for at a time; the server gives no more.
const READ: usize = 4 << 20;
/// So many parts are asked for before the first has come.
const MAX_IN_FLIGHT: usize = 8;
/// What carries a part, as copies of this length are carried.
const LANES: u32 = 8;
const THREADS: usize = 8;
/// The parts of a stretch that threads work on, each about 20 us of work.
pub const PART: usize = 128 << 10;

/// Stands for the stream of transfers that belong to none.
const FLOW: u64 = u64::MAX;

/// Zeros, in huge pages where the system gives them: they are made when they are first used.
pub fn zeroed(size: usize) -> Vec<u8> {
    let zeros = vec![0; size];
    let start = zeros.as_ptr().wrapping_add(zeros.as_ptr().align_offset(HUGE_PAGE));
    let huge_bytes = (zeros.as_ptr() as usize + size).saturating_sub(start as usize) / HUGE_PAGE * HUGE_PAGE;
    if huge_bytes > 0 {
        // SAFETY: whole pages inside the vector. Advice that the system does not take changes nothing.
        unsafe { libc::madvise(start.cast_mut().cast(), huge_bytes, libc::MADV_HUGEPAGE) };
    }
    zeros
}

/// Whether the memory at `host` differs from `base` in a part of both.
pub fn differs(host: usize, base: &[u8], part: Range<usize>) -> bool {
    // SAFETY: the memory has as many bytes as the diff base, and is mapped until the program frees it, which
    // takes it out of the table first. What another thread writes at this moment is compared as it comes.
    let memory = unsafe { core::slice::from_raw_parts((host + part.start) as *const u8, part.len()) };
    memory != &base[part]
}

/// From the first to the last byte of a part in which the memory at `host` differs from `base`.
pub fn changed(host: usize, base: &[u8], part: Range<usize>) -> Option<Range<usize>> {
    const STEP: usize = 4096;
    let unequal = |start: &usize| differs(host, base, *start..(start + STEP).min(part.end));
    let steps = || part.clone().step_by(STEP);
    let (first, last) = (steps().find(unequal)?, steps().rfind(unequal)?);
    let end = (last + STEP).min(part.end);
    let byte_differs = |at: &usize| differs(host, base, *at..at + 1);
    let (first, last) = ((first..end).find(byte_differs)?, (first..end).rfind(byte_differs)?);
    Some(first..last + 1)
}

/// The parts of `found` in which the memory at `host` differs from `base`; a short one is not looked at.
pub fn unequal_parts(host: usize, base: &[u8], found: Range<usize>) -> Vec<Range<usize>> {
    let count = found.len().div_ceil(PART);
    let part = |number: usize| {
        let start = found.start + number * PART;
        start..(start + PART).min(found.end)
    };
    if count < 2 {
        return vec![found];
    }
    let unequal: Vec<AtomicBool> = (0..count).map(|_| AtomicBool::new(false)).collect();
    copy_threads::share(count, THREADS, host as *const u8, |number| {
        unequal[number].store(differs(host, base, part(number)), Ordering::Relaxed);
    });
    (0..count).filter(|number| unequal[*number].load(Ordering::Relaxed)).map(part).collect()
}

/// Puts those bytes of `new` into the memory at `host` that differ from `base`, and brings `base` up to
/// date.
///
/// # Safety
/// The memory must be writable for as many bytes as `new` has. Others may write to other bytes of it
/// meanwhile.
pub unsafe fn merge(host: usize, base: &mut [u8], new: &[u8]) {
    let parts: Vec<_> = base.chunks_mut(PART).zip(new.chunks(PART)).map(Mutex::new).collect();
    copy_threads::share(parts.len(), THREADS, host as *const u8, |number| {
        let (base, new) = &mut *parts[number].lock();
        // SAFETY: the caller has the memory writable for as many bytes as `new` has; each thread has parts of
        // its own.
        unsafe { merge_changes((host + number * PART) as *mut u8, base, new) };
    });
}

/// Memory that stretches are read into, kept for the next.
#[derive(Default)]
pub struct Scratch {
    free: Vec<Vec<u8>>,
}

/// A part that has been asked for.
struct Read {
    transfer: Arc<Transfer>,
    address: u64,
    length: usize,
    /// Belongs to the transfer until that is done.
    buffer: Vec<u8>,
}

impl Scratch {
    /// Reads stretches of a server's mirrors, and calls `put` with each part and its address.
    pub fn read(
        &mut self,
        server: usize,
        ranges: &[MemoryRange],
        mut put: impl FnMut(u64, &[u8]),
    ) -> Result<(), CUresult> {
        if ranges.is_empty() {
            return Ok(());
        }
        let session = session::with(server)?;
        let context = Handle::null_of(server);
        let mut in_flight = VecDeque::new();
        let mut outcome = Ok(());
        for (address, length) in ranges.iter().flat_map(parts) {
            if in_flight.len() >= MAX_IN_FLIGHT {
                outcome = session.flush().and_then(|()| self.take(&mut in_flight, &mut put));
            }
            if outcome.is_ok() {
                outcome = self.request(context, address, length).map(|read| in_flight.push_back(read));
            }
            if outcome.is_err() {
                break;
            }
        }
        outcome = outcome.and(session.flush());
        // Each is waited for, whatever became of the one before: its buffer is this one's again afterwards.
        while !in_flight.is_empty() {
            outcome = outcome.and(self.take(&mut in_flight, &mut put));
        }
        outcome
    }

    /// Asks for a part.
    fn request(&mut self, context: Handle<Context>, address: u64, length: usize) -> Result<Read, CUresult> {
        let mut buffer = self.free.pop().unwrap_or_else(|| zeroed(READ));
        let destination = ReceiveBuffer::Direct(buffer.as_mut_ptr(), length);
        // SAFETY: the buffer has as many bytes, and is kept until the transfer is done.
        let transfer = unsafe { expect::expect_apart(context, FLOW, destination, THREADS) }?;
        let (number, size) = (transfer.number(), length);
        let request = calls::mirror_read { address, size, transfer: number, flow: FLOW, lanes: LANES };
        let posted = session::post_in(context, &request);
        let read = Read { transfer, address, length, buffer };
        if let Err(status) = posted {
            transfers::failed(number, status);
            let _ = read.transfer.wait();
            self.free.push(read.buffer);
            return Err(status);
        }
        Ok(read)
    }

    /// Waits for the part that was asked for first.
    fn take(
        &mut self,
        in_flight: &mut VecDeque<Read>,
        put: &mut impl FnMut(u64, &[u8]),
    ) -> Result<(), CUresult> {
        let Some(read) = in_flight.pop_front() else { return Ok(()) };
        let outcome = read.transfer.wait();
        if outcome.is_ok() {
            put(read.address, &read.buffer[..read.length]);
        }
        self.free.push(read.buffer);
        outcome
    }
}

/// The parts of a stretch: addresses and lengths.
fn parts(found: &MemoryRange) -> impl Iterator<Item = (u64, usize)> + use<> {
    let (address, end) = (found.address, found.address.saturating_add(found.bytes));
    (address..end).step_by(READ).map(move |start| (start, (end - start).min(READ as u64) as usize))
}

/// A set of bytes, as ranges.
#[derive(Debug, Default, Clone)]
pub struct Ranges {
    /// From the first byte to the one behind the last.
    ends: BTreeMap<usize, usize>,
}

impl Ranges {
    /// Adds the bytes of a range.
    pub fn add(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&other, &other_end)) = self.ends.range(..=end).next_back()
            && other_end >= start
        {
            self.ends.remove(&other);
            (start, end) = (start.min(other), end.max(other_end));
        }
        self.ends.insert(start, end);
    }

    /// Adds the bytes of all ranges of another set.
    pub fn add_all(&mut self, other: &Self) {
        other.iter().for_each(|range| self.add(range));
    }

    /// Whether any byte of a range is there.
    pub fn overlaps(&self, range: &Range<usize>) -> bool {
        self.ends.range(..range.end).next_back().is_some_and(|(_, end)| *end > range.start)
    }

    /// How many ranges there are.
    pub fn count(&self) -> usize {
        self.ends.len()
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        self.ends.iter().map(|(start, end)| *start..*end)
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Takes all bytes out.
    pub fn clear(&mut self) {
        self.ends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_read_in_parts_that_cover_them() {
        let whole = MemoryRange { address: 100, bytes: 2 * READ as u64 + 7 };
        let expected = [(100, READ), (100 + READ as u64, READ), (100 + 2 * READ as u64, 7)];
        assert_eq!(parts(&whole).collect::<Vec<_>>(), expected);
        assert_eq!(parts(&MemoryRange::default()).count(), 0);
        // A server that makes no sense ends nothing here.
        assert!(parts(&MemoryRange { address: u64::MAX - 1, bytes: u64::MAX }).count() <= 1);
    }

    #[test]
    fn only_parts_that_differ_are_found() {
        let memory: Vec<u8> = (0..5 * PART + 30).map(|at| (at * 7) as u8).collect();
        let mut base = memory.clone();
        for at in [PART + 1, 3 * PART, 5 * PART + 2] {
            base[at] ^= 1;
        }
        let found = unequal_parts(memory.as_ptr() as usize, &base, 5..memory.len());
        assert_eq!(found, [5..5 + PART, 5 + 2 * PART..5 + 3 * PART, 5 + 4 * PART..5 + 5 * PART]);
    }

    #[test]
    fn merging_in_parts_keeps_what_others_wrote() {
        let size = 3 * PART + 11;
        let mut memory: Vec<u8> = vec![0; size];
        let mut base = zeroed(size);
        let mut new = vec![0; size];
        (0..size).step_by(2).for_each(|at| memory[at] = 1);
        (1..size).step_by(2).for_each(|at| new[at] = 2);
        // SAFETY: the memory has as many bytes.
        unsafe { merge(memory.as_mut_ptr() as usize, &mut base, &new) };
        assert!((0..size).all(|at| memory[at] == [1, 2][at % 2]));
        assert_eq!(base, new);
    }

    #[test]
    fn ranges_that_touch_are_one() {
        let mut ranges = Ranges::default();
        for range in [10..20, 40..50, 30..30, 20..22, 5..6, 45..60] {
            ranges.add(range);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [5..6, 10..22, 40..60]);
        assert!(ranges.overlaps(&(0..6)) && ranges.overlaps(&(21..30)) && ranges.overlaps(&(0..100)));
        assert!(!ranges.overlaps(&(0..5)) && !ranges.overlaps(&(22..40)) && !ranges.overlaps(&(60..70)));
        ranges.add(6..41);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [5..60]);
        let mut others = Ranges::default();
        others.add(0..1);
        others.add_all(&ranges);
        assert_eq!(others.iter().collect::<Vec<_>>(), [0..1, 5..60]);
        others.clear();
        assert!(others.is_empty());
    }
}
