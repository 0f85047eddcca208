//! Host memory that devices reach: pinned memory of the program, and what `cuMemMap` has put at addresses
//! that the program chose.
//!
//! It lies in the host window while there is room, so that kernels can have its address; see
//! [`crate::remote::mirrored`].
//!
//! Program and device have such memory at one address. What a mapping is made of, and how the server gets it,
//! is said in [`crate::submit::virtual_memory`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUmemAccess_flags, CUresult};

use crate::locks::{RwLock, rank};

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
    /// Whether the memory is a pool's, which returns it.
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
    match ranges.range(..end).next_back().filter(|(_, known)| known.base + known.size > range.base) {
        Some((_, known)) if known.is_registered => {
            return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        }
        Some(_) => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        None => {}
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

/// A mapping of memory of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostMapping {
    /// Its size in bytes.
    pub size: usize,
    /// The server whose devices have it.
    pub server: usize,
    /// What the program may do with it: `CUmemAccess_flags`.
    pub host_access: u32,
    /// What a device of the server may do with it at most.
    pub device_access: u32,
}

/// Host memory that is mapped for devices at addresses of the program's.
struct Mappings {
    /// By first address.
    by_address: RwLock<rank::HostMappings, BTreeMap<usize, HostMapping>>,
    /// Whether there ever was one, so that programs without pay one load.
    any: AtomicBool,
}

static MAPPINGS: Mappings =
    Mappings { by_address: RwLock::new(BTreeMap::new()), any: AtomicBool::new(false) };

const READ_AND_WRITE: u32 = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0;

/// Notes a mapping, or what has changed about it.
pub fn note_mapping(base: usize, mapping: HostMapping) {
    MAPPINGS.any.store(true, Ordering::Relaxed);
    MAPPINGS.by_address.write().insert(base, mapping);
}

/// Forgets the mapping that begins at an address.
pub fn forget_mapping(base: usize) {
    MAPPINGS.by_address.write().remove(&base);
}

/// The mapping in which an address lies.
#[inline]
pub fn find_mapping(address: usize) -> Option<HostMapping> {
    if !MAPPINGS.any.load(Ordering::Relaxed) {
        return None;
    }
    let mappings = MAPPINGS.by_address.read();
    let (base, mapping) = mappings.range(..=address).next_back()?;
    (address - base < mapping.size).then_some(*mapping)
}

/// Whether devices of a server may read and write all addresses from `start` to before `end`: mappings
/// without a gap.
pub fn is_devices(server: usize, start: usize, end: usize) -> bool {
    if !MAPPINGS.any.load(Ordering::Relaxed) {
        return false;
    }
    let mappings = MAPPINGS.by_address.read();
    let mut next = start;
    while let Some((base, mapping)) = mappings.range(..=next).next_back() {
        let is_open = mapping.device_access == READ_AND_WRITE && mapping.server == server;
        if !is_open || next - base >= mapping.size {
            return false;
        }
        next = base + mapping.size;
        if next >= end {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_mappings_with_access_are_one_range() {
        const BASE: usize = 0x7300_0000_0000;
        const SIZE: usize = 0x1000;
        let open = HostMapping { size: SIZE, server: 0, host_access: 0, device_access: READ_AND_WRITE };
        note_mapping(BASE, open);
        note_mapping(BASE + SIZE, open);
        note_mapping(BASE + 2 * SIZE, HostMapping { device_access: 0, ..open });
        assert!(is_devices(0, BASE, BASE + 2 * SIZE) && is_devices(0, BASE + SIZE - 1, BASE + SIZE + 1));
        assert!(!is_devices(0, BASE, BASE + 2 * SIZE + 1) && !is_devices(1, BASE, BASE + 1));
        assert!(!is_devices(0, BASE - 1, BASE + 1));
        forget_mapping(BASE + SIZE);
        assert!(!is_devices(0, BASE, BASE + SIZE + 1));
        assert_eq!(find_mapping(BASE + SIZE - 1), Some(open));
        assert_eq!(find_mapping(BASE + SIZE), None);
        forget_mapping(BASE);
        forget_mapping(BASE + 2 * SIZE);
    }
}
