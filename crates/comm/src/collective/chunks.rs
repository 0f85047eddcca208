//! Chunks of a reduction, one for each rank, and reductions whose chunks are fetched, where not all memory of
//! the others can be opened: each rank takes its chunk from all others, reduces them, and gives the result to
//! who needs it.

use super::element::{Element, Operation};
use super::group::{CollectiveError, Group};
use super::memory::Range;
use crate::collective::kernels::{self, memory_at, share_context};
use crate::collective::memory::Temporary;
use crate::cuda::{self, Scope};

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

impl Reduction {
    /// Whether the operation is defined for the elements.
    pub fn is_defined(&self) -> bool {
        self.element.supports(self.operation)
    }
}

/// The chunks of a call: a rank each.
#[derive(Debug)]
pub struct Chunks {
    /// Where each begins, and at last where all end, in elements.
    bounds: Vec<u64>,
    /// Bytes of an element.
    bytes: u64,
}

impl Chunks {
    /// Chunks that are as long as each other, as far as there are so many elements.
    pub fn cut(what: Reduction, count: u64, ranks: usize) -> Self {
        let each = count.div_ceil(ranks as u64).next_multiple_of(CHUNK_ELEMENTS);
        let bounds = (0..=ranks as u64).map(|rank| count.min(rank.saturating_mul(each))).collect();
        Self { bounds, bytes: what.element.bytes() }
    }

    /// Chunks that are as long as the caller says.
    pub fn follow(what: Reduction, counts: &[u64]) -> Self {
        let ends = counts.iter().scan(0_u64, |end, count| {
            *end = end.saturating_add(*count);
            Some(*end)
        });
        Self { bounds: core::iter::once(0).chain(ends).collect(), bytes: what.element.bytes() }
    }

    /// The elements of a rank's chunk.
    pub fn elements(&self, rank: usize) -> u64 {
        self.bounds[rank + 1] - self.bounds[rank]
    }

    /// A rank's chunk of elements that begin there.
    pub fn of(&self, rank: usize, start: u64) -> Range {
        let address = start.wrapping_add(self.bounds[rank].wrapping_mul(self.bytes));
        Range { address, bytes: self.elements(rank).saturating_mul(self.bytes) }
    }

    /// Bytes of all chunks.
    pub fn all(&self) -> u64 {
        self.bounds.last().map_or(0, |count| count.saturating_mul(self.bytes))
    }
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
    let mut sends = vec![Range::default(); group.ranks()];
    let mut receives = sends.clone();
    let mut sources = Vec::new();
    for rank in 0..group.ranks() {
        if rank == me {
            sources.push(chunks.of(me, from).address);
            continue;
        }
        sends[rank] = chunks.of(rank, from);
        receives[rank] = Range { address: spare + slots * own, bytes: own };
        sources.push(receives[rank].address);
        slots += 1;
    }
    // SAFETY: the sent chunks are the caller's elements; the received ones lie in spare memory, which has a
    // chunk for each rank.
    unsafe { group.round(&sends, &receives) }?;
    if own == 0 {
        return Ok(());
    }
    let reduced = memory_at(target).ok_or(cuda::CudaError::UNKNOWN_MEMORY).and_then(|(driver, memory)| {
        let scope = Scope::of(driver, &memory)?;
        // In place the target is one of the sources, maybe a late one: what is not complete goes over
        // another rank's chunk, which has been read by then.
        let partial = receives.iter().find(|taken| taken.bytes > 0).map_or(target, |taken| taken.address);
        let ends = (target, partial);
        // SAFETY: the sources have been taken, and the target is this rank's.
        unsafe { kernels::reduce(&scope, what.element, what.operation, ends, chunks.elements(me), &sources) }
    });
    Ok(reduced?)
}

/// [`reductions::allreduce`](super::reductions::allreduce), of elements that are cut so.
///
/// # Safety
/// As there.
///
/// # Errors
/// As there.
pub(super) unsafe fn allreduce_fetched(
    group: &mut Group<'_>,
    what: Reduction,
    chunks: &Chunks,
    from: u64,
    to: u64,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let own = chunks.of(me, to);
    let fits = what.is_defined() && share_context(from, to) && group.can_send(from) && group.can_send(to);
    let spare = if fits { Temporary::for_address(to, own.bytes * (ranks as u64 - 1)) } else { None };
    if !group.agree(spare.is_some(), chunks.all())? {
        return Ok(false);
    }
    let spare_start = spare.as_ref().map_or(0, Temporary::address);
    // SAFETY: the caller's elements are valid, and spare memory, like the chunk that is the result, is not
    // shared.
    let reduced = unsafe { reduce_own(group, what, chunks, from, spare_start, own.address) };
    group.has_failed(reduced.is_err());
    let sends = vec![own; ranks];
    let mut receives: Vec<Range> = (0..ranks).map(|rank| chunks.of(rank, to)).collect();
    receives[me] = Range::default();
    // SAFETY: the caller has `to` valid for all elements, and nobody reads the other chunks any more, since
    // all have been fetched.
    let spread = unsafe { group.round(&sends, &receives) };
    reduced.and(spread).map(|()| true)
}

/// [`reductions::reduce`](super::reductions::reduce), of elements that are cut so.
///
/// # Safety
/// As there.
///
/// # Errors
/// As there.
pub(super) unsafe fn reduce_fetched(
    group: &mut Group<'_>,
    what: Reduction,
    chunks: &Chunks,
    from: u64,
    to: u64,
    root: usize,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let own = chunks.of(me, 0).bytes;
    let fits = what.is_defined() && share_context(from, if me == root { to } else { from });
    let spare = if fits { Temporary::for_address(from, own * ranks as u64) } else { None };
    // What has been put together in it goes to the root.
    let spare = spare
        .filter(|spare| group.can_send(from) && (me == root || own == 0 || group.can_send(spare.address())));
    if !group.agree(spare.is_some(), chunks.all())? {
        return Ok(false);
    }
    let spare_start = spare.as_ref().map_or(0, Temporary::address);
    let result = if me == root { chunks.of(me, to).address } else { spare_start + own * (ranks as u64 - 1) };
    // SAFETY: the caller's elements are valid, and spare memory, like the chunk that is the result, is not
    // shared.
    let reduced = unsafe { reduce_own(group, what, chunks, from, spare_start, result) };
    group.has_failed(reduced.is_err());
    let (mut sends, mut receives) = (vec![Range::default(); ranks], vec![Range::default(); ranks]);
    if me == root {
        receives = (0..ranks).map(|rank| chunks.of(rank, to)).collect();
        receives[me] = Range::default();
    } else {
        sends[root] = Range { address: result, bytes: own };
    }
    // SAFETY: the caller has `to` valid for all elements at the root, and each rank sends its chunk, which
    // nothing writes any more.
    let gathered = unsafe { group.round(&sends, &receives) };
    reduced.and(gathered).map(|()| true)
}

/// [`reductions::reduce_scatter`](super::reductions::reduce_scatter), of elements that are cut so.
///
/// # Safety
/// As there.
///
/// # Errors
/// As there.
pub(super) unsafe fn reduce_scatter_fetched(
    group: &mut Group<'_>,
    what: Reduction,
    chunks: &Chunks,
    from: u64,
    to: u64,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let own = chunks.of(me, 0).bytes;
    let fits = what.is_defined() && share_context(from, to) && group.can_send(from);
    // The blocks of a kernel run in any order. In place, one could write a result over elements of this
    // rank's chunk that another one has still to read.
    let own_chunk = chunks.of(me, from);
    let is_apart =
        to == own_chunk.address || !own_chunk.overlaps(&Range { address: to, bytes: own_chunk.bytes });
    let slots = ranks as u64 - u64::from(is_apart);
    let spare = if fits { Temporary::for_address(to, own * slots) } else { None };
    if !group.agree(spare.is_some(), chunks.all())? {
        return Ok(false);
    }
    let spare_start = spare.as_ref().map_or(0, Temporary::address);
    let result = if is_apart { to } else { spare_start + own * (ranks as u64 - 1) };
    // SAFETY: the caller's elements are valid, and spare memory, like the chunk that is the result, is not
    // shared.
    unsafe { reduce_own(group, what, chunks, from, spare_start, result) }?;
    if !is_apart {
        // SAFETY: the result has so many bytes, and nobody reads the caller's elements any more.
        unsafe { cuda::copy(to, result, own as usize) }?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::element::Number;

    const SUMS: Reduction = Reduction { element: Element::One(Number::Single), operation: Operation::Sum };

    #[test]
    fn chunks_cover_all_elements_once() {
        for ranks in 1..9 {
            for count in [0, 1, 63, 64, 65, 1000, 4096, 100_003] {
                let Chunks { bounds, .. } = Chunks::cut(SUMS, count, ranks);
                assert_eq!(bounds.len(), ranks + 1);
                assert_eq!((bounds[0], bounds[ranks]), (0, count));
                assert!(bounds.is_sorted());
                let inner = bounds.iter().filter(|bound| **bound < count);
                assert!(inner.into_iter().all(|bound| bound % CHUNK_ELEMENTS == 0));
            }
        }
        let followed = Chunks::follow(SUMS, &[3, 0, 5]);
        assert_eq!((followed.bounds.as_slice(), followed.all()), ([0, 3, 3, 8].as_slice(), 32));
        assert_eq!(followed.of(2, 1000), Range { address: 1012, bytes: 20 });
    }
}
