//! Collective calls that only move data, as exchanges.
//!
//! Each call first has the ranks agree. It gives `false` at all ranks, and has done nothing, where not all of
//! them can: where memory is not on a GPU, or peers are not reached.

use super::error::CollectiveError;
use super::group::Group;
use super::launch::is_on_gpu;
use super::range::Range;

/// Each rank gives each one a range, and takes one from each; a range of no bytes where there is nothing. All
/// ranks give the same `bytes`, of which the caller says what they are.
///
/// # Safety
/// The ranges are valid, no other code uses those that are taken, and no range overlaps one that is taken,
/// but for a rank's own, which may be the same.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
pub unsafe fn exchange(
    group: &mut Group<'_>,
    sends: &[Range],
    receives: &[Range],
    bytes: u64,
) -> Result<bool, CollectiveError> {
    let fits = sends.iter().chain(receives).all(|range| range.bytes == 0 || is_on_gpu(range.address));
    if !group.agree(fits, bytes)? {
        return Ok(false);
    }
    if group.recording.is_some() {
        // SAFETY: as promised by the caller, for each launch.
        return unsafe { group.record_round(sends, receives) }.map(|()| true);
    }
    // SAFETY: as promised by the caller.
    unsafe { group.round(sends, receives) }.map(|()| true)
}

/// Everybody gets what the root has.
///
/// # Safety
/// The memory has so many bytes, and no other code uses it.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
pub unsafe fn broadcast(
    group: &mut Group<'_>,
    buffer: u64,
    bytes: u64,
    root: usize,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let whole = Range { address: buffer, bytes };
    let (mut sends, mut receives) = (vec![Range::default(); ranks], vec![Range::default(); ranks]);
    if me == root {
        sends = vec![whole; ranks];
        receives[me] = whole;
    } else {
        receives[root] = whole;
    }
    // SAFETY: as promised by the caller.
    unsafe { exchange(group, &sends, &receives, bytes) }
}

/// A block of so many bytes for each rank, one behind the other.
fn blocks(start: u64, bytes: u64, ranks: usize) -> Vec<Range> {
    (0..ranks as u64).map(|rank| Range { address: start + rank * bytes, bytes }).collect()
}

/// Everybody gets the blocks of all ranks, of so many bytes each. `from` may be this rank's block of `to`.
///
/// # Safety
/// `from` is valid for a block, and `to` for one of each rank, and no other code uses it.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
pub unsafe fn allgather(
    group: &mut Group<'_>,
    from: u64,
    to: u64,
    bytes: u64,
) -> Result<bool, CollectiveError> {
    let ranks = group.ranks();
    let sends = vec![Range { address: from, bytes }; ranks];
    // SAFETY: as promised by the caller.
    unsafe { exchange(group, &sends, &blocks(to, bytes, ranks), bytes) }
}

/// Each rank gives each one a block of so many bytes. `from` and `to` are apart; where they are the same, the
/// call cannot be made.
///
/// # Safety
/// Both are valid for a block of each rank, and no other code uses `to`.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
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
