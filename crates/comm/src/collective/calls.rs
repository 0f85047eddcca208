//! Of which exchanges and kernels is each collective call made?
//!
//! A reduction is cut into as many chunks as there are ranks. Each rank takes its chunk from all others, puts
//! them together in the order of ranks, and gives the result to who needs it.
//!
//! Each call first has the ranks agree. It gives `false` at all ranks, and has done nothing, where not all of
//! them can: where memory is not on a GPU, peers are not reached, or there is no memory for chunks.

use super::element::{Element, Operation};
use super::group::{CollectiveError, Group, Range};
use super::launch::{self, memory_at};
use super::temporary::Temporary;
use crate::cuda::{self, DeviceMemory, Driver, Scope};

/// Chunks begin at multiples of so many elements.
const CHUNK_ELEMENTS: u64 = 64;

/// What is reduced.
#[derive(Debug, Clone, Copy)]
pub struct Reduction {
    /// The elements.
    pub element: Element,
    /// What is done with them.
    pub operation: Operation,
}

/// Cuts elements into a chunk for each rank: where each begins, and at last where all end.
fn cut(count: u64, ranks: usize) -> Vec<u64> {
    let each = count.div_ceil(ranks as u64).next_multiple_of(CHUNK_ELEMENTS);
    (0..=ranks as u64).map(|rank| count.min(rank.saturating_mul(each))).collect()
}

/// Chunks that are as long as the caller says.
fn follow(counts: &[u64]) -> Vec<u64> {
    let ends = counts.iter().scan(0_u64, |end, count| {
        *end = end.saturating_add(*count);
        Some(*end)
    });
    core::iter::once(0).chain(ends).collect()
}

/// The chunks of a call at one rank: bounds in elements.
struct Chunks {
    bounds: Vec<u64>,
    bytes: u64,
}

impl Chunks {
    fn elements(&self, rank: usize) -> u64 {
        self.bounds[rank + 1] - self.bounds[rank]
    }

    fn of(&self, rank: usize, start: u64) -> Range {
        Range { address: start + self.bounds[rank] * self.bytes, bytes: self.elements(rank) * self.bytes }
    }
}

fn is_on_gpu(address: u64) -> bool {
    Driver::loaded().is_some_and(|driver| DeviceMemory::is_at(driver, address))
}

/// Memory for the chunks of the other ranks, and for a result. None where it cannot be had.
fn temporary(near: u64, bytes: u64) -> Option<Temporary> {
    let (driver, memory) = memory_at(near)?;
    let _scope = Scope::of(driver, &memory).ok()?;
    Temporary::new(driver, memory.device, bytes).ok()
}

/// Takes this rank's chunk from all ranks, and puts it together at `target`.
///
/// # Safety
/// As the calls.
unsafe fn reduce_own(
    group: &mut Group<'_>,
    what: Reduction,
    chunks: &Chunks,
    from: u64,
    spare: u64,
    target: u64,
) -> Result<(), CollectiveError> {
    let me = group.me;
    let own = chunks.of(me, 0).bytes;
    let mut slots = 0;
    let mut gives = vec![Range::default(); group.ranks()];
    let mut takes = gives.clone();
    let mut sources = Vec::new();
    for rank in 0..group.ranks() {
        if rank == me {
            sources.push(chunks.of(me, from).address);
            continue;
        }
        gives[rank] = chunks.of(rank, from);
        takes[rank] = Range { address: spare + slots * own, bytes: own };
        sources.push(takes[rank].address);
        slots += 1;
    }
    // SAFETY: as promised by the caller.
    unsafe { group.round(&gives, &takes) }?;
    if own == 0 {
        return Ok(());
    }
    let reduced =
        memory_at(target).ok_or(cuda::CudaError::UNKNOWN_MEMORY).and_then(|(driver, memory)| {
            let scope = Scope::of(driver, &memory)?;
            // In place the target is one of the sources, maybe a late one: what is not complete goes over
            // another rank's chunk, which has been read by then.
            let partial = takes.iter().find(|taken| taken.bytes > 0).map_or(target, |taken| taken.address);
            let ends = (target, partial);
            // SAFETY: the sources have been taken, and the target is this rank's.
            unsafe {
                launch::reduce(&scope, what.element, what.operation, ends, chunks.elements(me), &sources)
            }
        });
    Ok(reduced?)
}

/// Everybody gets the elements of all ranks put together. `from` and `to` may be the same.
///
/// # Safety
/// Both are valid for so many elements, and nobody else uses `to`.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
pub unsafe fn allreduce(
    group: &mut Group<'_>,
    what: Reduction,
    from: u64,
    to: u64,
    count: u64,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let chunks = Chunks { bounds: cut(count, ranks), bytes: what.element.bytes() };
    let own = chunks.of(me, to);
    let fits = what.element.takes(what.operation) && is_on_gpu(from) && is_on_gpu(to);
    let spare = if fits { temporary(to, own.bytes * (ranks as u64 - 1)) } else { None };
    if !group.agree(spare.is_some(), count * chunks.bytes)? {
        return Ok(false);
    }
    let spare_start = spare.as_ref().map_or(0, Temporary::address);
    // SAFETY: as promised by the caller.
    let reduced = unsafe { reduce_own(group, what, &chunks, from, spare_start, own.address) };
    group.has_failed(reduced.is_err());
    let gives = vec![own; ranks];
    let mut takes: Vec<Range> = (0..ranks).map(|rank| chunks.of(rank, to)).collect();
    takes[me] = Range::default();
    // SAFETY: as promised by the caller; nobody reads the other chunks any more, since all have been fetched.
    let spread = unsafe { group.round(&gives, &takes) };
    reduced.and(spread).map(|()| true)
}

/// The root gets the elements of all ranks put together. Others give no `to`.
///
/// # Safety
/// As [`allreduce`].
///
/// # Errors
/// As [`allreduce`].
pub unsafe fn reduce(
    group: &mut Group<'_>,
    what: Reduction,
    from: u64,
    to: u64,
    count: u64,
    root: usize,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let chunks = Chunks { bounds: cut(count, ranks), bytes: what.element.bytes() };
    let own = chunks.of(me, 0).bytes;
    let fits = what.element.takes(what.operation) && is_on_gpu(from) && (me != root || is_on_gpu(to));
    let spare = if fits { temporary(from, own * ranks as u64) } else { None };
    if !group.agree(spare.is_some(), count * chunks.bytes)? {
        return Ok(false);
    }
    let spare_start = spare.as_ref().map_or(0, Temporary::address);
    let result = if me == root { chunks.of(me, to).address } else { spare_start + own * (ranks as u64 - 1) };
    // SAFETY: as promised by the caller.
    let reduced = unsafe { reduce_own(group, what, &chunks, from, spare_start, result) };
    group.has_failed(reduced.is_err());
    let (mut gives, mut takes) = (vec![Range::default(); ranks], vec![Range::default(); ranks]);
    if me == root {
        takes = (0..ranks).map(|rank| chunks.of(rank, to)).collect();
        takes[me] = Range::default();
    } else {
        gives[root] = Range { address: result, bytes: own };
    }
    // SAFETY: as promised by the caller.
    let gathered = unsafe { group.round(&gives, &takes) };
    reduced.and(gathered).map(|()| true)
}

/// Each rank gets its part of the elements of all ranks put together: `counts` says how many each.
///
/// # Safety
/// `from` is valid for all elements, `to` for this rank's. They may overlap.
///
/// # Errors
/// As [`allreduce`].
pub unsafe fn reduce_scatter(
    group: &mut Group<'_>,
    what: Reduction,
    from: u64,
    to: u64,
    counts: &[u64],
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let chunks = Chunks { bounds: follow(counts), bytes: what.element.bytes() };
    let own = chunks.of(me, 0).bytes;
    let fits = what.element.takes(what.operation) && is_on_gpu(from) && is_on_gpu(to);
    // The blocks of a kernel run in any order. In place, one could write a result over elements of this rank's
    // chunk that another one has still to read.
    let is_apart = to == chunks.of(me, from).address || !overlap(to, chunks.of(me, from).address, own);
    let slots = ranks as u64 - u64::from(is_apart);
    let spare = if fits { temporary(to, own * slots) } else { None };
    if !group.agree(spare.is_some(), chunks.bounds[ranks] * chunks.bytes)? {
        return Ok(false);
    }
    let spare_start = spare.as_ref().map_or(0, Temporary::address);
    let result = if is_apart { to } else { spare_start + own * (ranks as u64 - 1) };
    // SAFETY: as promised by the caller.
    unsafe { reduce_own(group, what, &chunks, from, spare_start, result) }?;
    if !is_apart {
        // SAFETY: the result has so many bytes, and nobody reads the caller's elements any more.
        unsafe { cuda::copy(to, result, own as usize) }?;
    }
    Ok(true)
}

/// Whether two ranges of so many bytes share some.
fn overlap(one: u64, other: u64, bytes: u64) -> bool {
    one.abs_diff(other) < bytes
}

/// Each rank gives each one a range, and takes one from each; a range of no bytes where there is nothing. All
/// ranks give the same `bytes`, of which the caller says what they are.
///
/// # Safety
/// The ranges are valid, nobody else uses those that are taken, and no range overlaps one that is taken, but for
/// a rank's own, which may be the same.
///
/// # Errors
/// As [`allreduce`].
pub unsafe fn exchange(
    group: &mut Group<'_>,
    gives: &[Range],
    takes: &[Range],
    bytes: u64,
) -> Result<bool, CollectiveError> {
    let fits = gives.iter().chain(takes).all(|range| range.bytes == 0 || is_on_gpu(range.address));
    if !group.agree(fits, bytes)? {
        return Ok(false);
    }
    // SAFETY: as promised by the caller.
    unsafe { group.round(gives, takes) }.map(|()| true)
}

/// Everybody gets what the root has.
///
/// # Safety
/// The memory has so many bytes, and nobody else uses it.
///
/// # Errors
/// As [`allreduce`].
pub unsafe fn broadcast(
    group: &mut Group<'_>,
    buffer: u64,
    bytes: u64,
    root: usize,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let whole = Range { address: buffer, bytes };
    let (mut gives, mut takes) = (vec![Range::default(); ranks], vec![Range::default(); ranks]);
    if me == root {
        gives = vec![whole; ranks];
        takes[me] = whole;
    } else {
        takes[root] = whole;
    }
    // SAFETY: as promised by the caller.
    unsafe { exchange(group, &gives, &takes, bytes) }
}

/// A block of so many bytes for each rank, one behind the other.
fn blocks(start: u64, bytes: u64, ranks: usize) -> Vec<Range> {
    (0..ranks as u64).map(|rank| Range { address: start + rank * bytes, bytes }).collect()
}

/// Everybody gets the blocks of all ranks, of so many bytes each. `from` may be this rank's block of `to`.
///
/// # Safety
/// `from` is valid for a block, and `to` for one of each rank, and nobody else uses it.
///
/// # Errors
/// As [`allreduce`].
pub unsafe fn allgather(
    group: &mut Group<'_>,
    from: u64,
    to: u64,
    bytes: u64,
) -> Result<bool, CollectiveError> {
    let ranks = group.ranks();
    let gives = vec![Range { address: from, bytes }; ranks];
    // SAFETY: as promised by the caller.
    unsafe { exchange(group, &gives, &blocks(to, bytes, ranks), bytes) }
}

/// Each rank gives each one a block of so many bytes. `from` and `to` are apart; where they are the same, the
/// call cannot be made.
///
/// # Safety
/// Both are valid for a block of each rank, and nobody else uses `to`.
///
/// # Errors
/// As [`allreduce`].
pub unsafe fn alltoall(
    group: &mut Group<'_>,
    from: u64,
    to: u64,
    bytes: u64,
) -> Result<bool, CollectiveError> {
    let ranks = group.ranks();
    // Null is on no GPU, and so all ranks hear that this one cannot.
    let from = if from == to { 0 } else { from };
    // SAFETY: as promised by the caller.
    unsafe { exchange(group, &blocks(from, bytes, ranks), &blocks(to, bytes, ranks), bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_elements_once() {
        for ranks in 1..9 {
            for count in [0, 1, 63, 64, 65, 1000, 4096, 100_003] {
                let bounds = cut(count, ranks);
                assert_eq!(bounds.len(), ranks + 1);
                assert_eq!((bounds[0], bounds[ranks]), (0, count));
                assert!(bounds.is_sorted());
                let inner = bounds.iter().filter(|bound| **bound < count);
                assert!(inner.into_iter().all(|bound| bound % CHUNK_ELEMENTS == 0));
            }
        }
        assert_eq!(follow(&[3, 0, 5]), [0, 3, 3, 8]);
    }
}
