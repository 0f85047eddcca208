//! Reductions, as exchanges and kernels.
//!
//! A reduction is cut into as many chunks as there are ranks. Each rank puts its chunk of all ranks together,
//! in the order of ranks, and gives the result to who needs it. Where all memory can be opened at all ranks,
//! a kernel reads it in place and writes the results where they belong (`shared`); else ranks fetch
//! (`chunks`).
//!
//! Each call gives `false` at all ranks, and has done nothing, where not all of them can: where memory is not
//! on a GPU, peers are not reached, or there is no memory for chunks.

use core::any::Any;

use super::captured::recording::{Move, Step};
use super::chunks::{self, Chunks, Reduction};
use super::group::{CollectiveError, Group};
use super::kernels::{Kernel, Makes};
use super::memory::{LocalBuffer, Range, Written};
use super::shared::{Shared, Sharing};
use crate::collective::memory::Temporary;
use crate::cuda::{self, CudaError};

/// Puts this rank's chunk of all ranks together at each of these targets, where its elements begin.
///
/// # Safety
/// The targets have room for the chunk and are not shared.
unsafe fn reduce_chunk(
    group: &mut Group<'_>,
    shared: &Shared<'_>,
    what: Reduction,
    chunks: &Chunks,
    targets: &[u64],
) -> Result<(), CudaError> {
    let me = group.me;
    let sources: Vec<u64> = shared.opened.from.iter().map(|from| chunks.of(me, *from).address).collect();
    let makes = Makes::Whole(targets.len());
    let kernel = Kernel { element: what.element, operation: what.operation, sources: sources.len(), makes };
    // SAFETY: no other rank's kernel touches anybody's elements of this chunk.
    unsafe { group.run(shared, &kernel, targets, &sources, chunks.elements(me)) }
}

/// Everybody gets the elements of all ranks put together. `from` and `to` may be the same.
///
/// # Safety
/// Both are valid for so many elements, and no other code uses `to`.
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
    let chunks = Chunks::cut(what, count, ranks);
    let own = LocalBuffer { from, to: Some(to), bytes: chunks.all() };
    let shared = match group.share(&own, Written::All, what.is_defined(), true)? {
        Sharing::Made(shared) => shared,
        // SAFETY: the caller has both valid for so many elements, and no other code uses `to`.
        Sharing::OnGpus => return unsafe { chunks::allreduce_fetched(group, what, &chunks, from, to) },
        Sharing::Elsewhere => return Ok(false),
    };
    let targets: Vec<u64> = shared.opened.to.iter().map(|to| chunks.of(me, *to).address).collect();
    // SAFETY: every rank's memory is mapped here and stays, since its caller waits in this call; each rank
    // writes the chunk that is its own.
    let made = unsafe { reduce_chunk(group, &shared, what, &chunks, &targets) };
    group.end_sharing(shared, chunks.of(me, 0).bytes, made).map(|()| true)
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
    let chunks = Chunks::cut(what, count, ranks);
    let own = LocalBuffer { from, to: (me == root).then_some(to), bytes: chunks.all() };
    let shared = match group.share(&own, Written::Of(root), what.is_defined(), true)? {
        Sharing::Made(shared) => shared,
        // SAFETY: the caller has both valid for so many elements, and no other code uses `to`.
        Sharing::OnGpus => return unsafe { chunks::reduce_fetched(group, what, &chunks, from, to, root) },
        Sharing::Elsewhere => return Ok(false),
    };
    let target = chunks.of(me, shared.opened.to[root]).address;
    // SAFETY: every rank's memory is mapped here and stays, since its caller waits in this call; each rank
    // writes the chunk that is its own.
    let made = unsafe { reduce_chunk(group, &shared, what, &chunks, &[target]) };
    group.end_sharing(shared, chunks.of(me, 0).bytes, made).map(|()| true)
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
    let me = group.me;
    let chunks = Chunks::follow(what, counts);
    let own = chunks.of(me, from);
    // In place a result may go over elements that others have still to read: then it is copied at the end.
    // Over this rank's own chunk each element goes where it has been read.
    let result = Range { address: to, bytes: own.bytes };
    let is_apart = to == own.address || !result.overlaps(&Range { address: from, bytes: chunks.all() });
    let spare = if is_apart { None } else { Temporary::for_address(to, own.bytes) };
    let target = spare.as_ref().map_or(to, Temporary::address);
    let has_space = is_apart || spare.is_some();
    let mine = LocalBuffer { from, to: Some(target), bytes: chunks.all() };
    let shared = match group.share(&mine, Written::NoRank, what.is_defined(), has_space)? {
        Sharing::Made(shared) => shared,
        // SAFETY: the caller has `from` valid for all elements and `to` for this rank's.
        Sharing::OnGpus => return unsafe { chunks::reduce_scatter_fetched(group, what, &chunks, from, to) },
        Sharing::Elsewhere => return Ok(false),
    };
    // SAFETY: every rank's memory is mapped here and stays, since its caller waits in this call; each rank
    // writes the chunk that is its own.
    let made = unsafe { reduce_chunk(group, &shared, what, &chunks, &[target]) };
    if let Some(recording) = group.recording.as_mut().filter(|_| target != to) {
        recording.last.extend(Step::copies(&[Move { to, from: target, bytes: own.bytes }]));
        recording.held.extend(spare.map(|spare| Box::new(spare) as Box<dyn Any + Send + Sync>));
        return group.end_sharing(shared, own.bytes, made).map(|()| true);
    }
    group.end_sharing(shared, own.bytes, made)?;
    if target != to {
        // SAFETY: the result has so many bytes, and nobody reads the caller's elements any more.
        unsafe { cuda::copy(to, target, own.bytes as usize) }?;
    }
    Ok(true)
}

/// Each rank gets the elements of all ranks up to it put together: with its own, or without them. Without,
/// the first one gets nothing. `from` and `to` may be the same.
///
/// # Safety
/// As [`allreduce`].
///
/// # Errors
/// As [`allreduce`].
pub unsafe fn scan(
    group: &mut Group<'_>,
    what: Reduction,
    from: u64,
    to: u64,
    count: u64,
    with_own: bool,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let chunks = Chunks::cut(what, count, ranks);
    let own = LocalBuffer { from, to: Some(to), bytes: chunks.all() };
    let Sharing::Made(shared) = group.share(&own, Written::All, what.is_defined(), true)? else {
        return Ok(false);
    };
    let of = |starts: &[u64]| starts.iter().map(|start| chunks.of(me, *start).address).collect::<Vec<u64>>();
    let makes = Makes::Prefixes { with_own };
    let kernel = Kernel { element: what.element, operation: what.operation, sources: ranks, makes };
    // SAFETY: every rank's memory is mapped here and stays, since its caller waits in this call; each rank
    // writes the chunk that is its own.
    let made = unsafe {
        group.run(&shared, &kernel, &of(&shared.opened.to), &of(&shared.opened.from), chunks.elements(me))
    };
    group.end_sharing(shared, chunks.of(me, 0).bytes, made).map(|()| true)
}
