//! Pinned memory of the program: plain memory of its own that copies may use without staging.
//!
//! It lies in the host window while there is room, so that kernels can have its address; see
//! [`crate::remote::mirrored`].

use crate::locks::{RwLock, rank};
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::CUresult;
use std::collections::BTreeMap;

/// A range of pinned memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Its first address.
    pub base: usize,
    /// Its size in bytes.
    pub size: usize,
    /// The bytes that there are for it, of which the program has been given `size`.
    pub capacity: usize,
    /// The flags that the program gave.
    pub flags: u32,
    /// The context that was current.
    pub context: Handle<Context>,
    /// A number that no other piece of CUDA's memory has or had.
    pub id: u64,
    /// Whether the program brought the memory itself (`cuMemHostRegister`).
    pub is_registered: bool,
    /// Whether the memory is a pool's, which gives it back.
    pub is_pooled: bool,
}

static RANGES: RwLock<rank::HostMemory, BTreeMap<usize, Range>> = RwLock::new(BTreeMap::new());

/// Notes memory as pinned.
pub fn note(range: Range) {
    RANGES.write().insert(range.base, range);
}

/// Forgets that memory of a pool is pinned memory that the program has. It stays as it is.
pub fn withdraw(base: usize) {
    RANGES.write().remove(&base);
}

/// A context ends. Takes out what it owns, which is all but what is of pools.
pub fn context_ends(context: Handle<Context>) -> Vec<Range> {
    let is_owned = |range: &Range| range.context == context && !range.is_pooled;
    RANGES.write().extract_if(.., |_, range| is_owned(range)).map(|(_, range)| range).collect()
}

/// Whether a context owns any.
pub fn is_any_of(context: Handle<Context>) -> bool {
    RANGES.read().values().any(|range| range.context == context && !range.is_pooled)
}

/// Notes memory that the program registers.
///
/// # Errors
/// `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED` when some of it is pinned already.
pub fn note_registered(range: Range) -> Result<(), CUresult> {
    let mut ranges = RANGES.write();
    let end = range.base + range.size;
    if ranges.range(..end).next_back().is_some_and(|(_, known)| known.base + known.size > range.base) {
        return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    ranges.insert(range.base, range);
    Ok(())
}

/// Takes out what begins at an address: memory that the program has registered, or memory that it got here.
pub fn take(base: usize, is_registered: bool) -> Option<Range> {
    let mut ranges = RANGES.write();
    ranges.get(&base).filter(|range| range.is_registered == is_registered && !range.is_pooled)?;
    ranges.remove(&base)
}

/// The pinned range in which an address lies.
pub fn find(address: usize) -> Option<Range> {
    let ranges = RANGES.read();
    let (_, range) = ranges.range(..=address).next_back()?;
    (address - range.base < range.size).then_some(*range)
}

/// Whether a whole range of addresses is pinned.
pub fn is_pinned(start: usize, end: usize) -> bool {
    find(start).is_some_and(|range| end <= range.base + range.size)
}
