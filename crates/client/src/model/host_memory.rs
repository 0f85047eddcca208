//! Pinned memory of the program: plain memory of its own that copies may use without staging.
//!
//! It lies in the host window while there is room, so that kernels can have its address; see [`crate::remote::visible`].

use crate::locks::{RwLock, rank};
use crate::model::context;
use crate::model::host_window;
use crate::model::memory;
use crate::model::transfers;
use crate::remote::registered;
use crate::remote::visible;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CU_MEMHOSTREGISTER_READ_ONLY, CUresult};
use causeway_memory::pages::{self, Access};
use core::ffi::c_void;
use std::collections::BTreeMap;

/// A range of pinned memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// Its first address.
    pub base: usize,
    /// Its size in bytes.
    pub size: usize,
    /// The bytes that there are for it, of which the program has been given `size`.
    pub room: usize,
    /// The flags that the program gave.
    pub flags: u32,
    /// The context that was current.
    pub context: Handle<Context>,
    /// A number that no other piece of CUDA's memory has or had.
    pub id: u64,
    /// Whether the program brought the memory itself (`cuMemHostRegister`).
    pub is_registered: bool,
    /// Whether the worker has the same memory; see [`visible::shared`].
    pub is_shared: bool,
    /// Whether it is a pool's, which gives it back.
    pub is_pooled: bool,
}

static RANGES: RwLock<rank::HostMemory, BTreeMap<usize, Range>> = RwLock::new(BTreeMap::new());
const PAGE: usize = 4096;

/// Allocates memory for `cuMemHostAlloc`: page-aligned and zeroed.
pub fn allocate(size: usize, flags: u32) -> Result<*mut c_void, CUresult> {
    let context = context::current()?;
    let mapped = size.checked_next_multiple_of(PAGE).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if size == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (address, is_shared) = match make(context, size) {
        Some(made) => made,
        None => (map(mapped)?, false),
    };
    let (base, id) = (address as usize, memory::next_id());
    let (is_registered, is_pooled) = (false, false);
    note(Range { base, size, room: size, flags, context, id, is_registered, is_shared, is_pooled });
    Ok(address)
}

/// New zeroed memory in the host window, and whether the worker has the same; nothing where there is no room.
pub fn make(context: Handle<Context>, size: usize) -> Option<(*mut c_void, bool)> {
    match visible::shared::allocate(context, size) {
        Some(address) => Some((address, true)),
        None => Some((host_window::allocate(size, None)?, false)),
    }
}

/// Notes memory as pinned.
pub fn note(range: Range) {
    RANGES.write().insert(range.base, range);
}

/// Forgets that memory of a pool is pinned memory that the program has. It stays as it is.
pub fn withdraw(base: usize) {
    RANGES.write().remove(&base);
}

/// Gives back memory of [`make`] that is not noted, after the copies that still write to it, once the device is idle.
/// `is_shared` says that the worker has it, too.
pub fn unmake(base: usize, size: usize, context: Handle<Context>, is_shared: bool) -> Result<(), CUresult> {
    transfers::wait_for_range(base, base + size);
    let forgotten = if is_shared { visible::shared::forget(context, base) } else { visible::forget(base) };
    host_window::release(base, size);
    forgotten
}

/// New zeroed memory where the system likes.
fn map(mapped: usize) -> Result<*mut c_void, CUresult> {
    // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
    let address = unsafe {
        libc::mmap(
            core::ptr::null_mut(),
            mapped,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED { Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY) } else { Ok(address) }
}

/// Frees memory of [`allocate`], after the copies that still write to it.
pub fn free(address: *mut c_void) -> Result<(), CUresult> {
    let base = address as usize;
    let range = take(base, false).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    transfers::wait_for_range(base, base + range.size);
    registered::forget(&range);
    let forgotten =
        if range.is_shared { visible::shared::forget(range.context, base) } else { visible::forget(base) };
    if host_window::contains(base) {
        host_window::release(base, range.size);
    } else {
        // SAFETY: mapped by `allocate` with this size and taken out of the table, so it is unmapped once; that nobody
        // uses it any more is the program's promise.
        unsafe { libc::munmap(address, range.size.next_multiple_of(PAGE)) };
    }
    forgotten
}

/// Notes memory of the program as pinned.
pub fn register(address: *mut c_void, size: usize, flags: u32) -> Result<(), CUresult> {
    let context = context::current()?;
    let base = address as usize;
    let end = base.checked_add(size).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if base == 0 || size == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut ranges = RANGES.write();
    if ranges.range(..end).next_back().is_some_and(|(_, range)| range.base + range.size > base) {
        return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    let id = memory::next_id();
    let (is_registered, is_shared, is_pooled) = (true, false, false);
    let range = Range { base, size, room: size, flags, context, id, is_registered, is_shared, is_pooled };
    ranges.insert(base, range);
    drop(ranges);
    let is_only_read = flags & CU_MEMHOSTREGISTER_READ_ONLY != 0;
    // As pinning does: copies then do not make the pages one by one.
    pages::populate(base, size, if is_only_read { Access::Read } else { Access::Write });
    Ok(())
}

/// Undoes [`register`], after the copies that still write to the memory.
pub fn unregister(address: *mut c_void) -> Result<(), CUresult> {
    let base = address as usize;
    let range = take(base, true).ok_or(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    transfers::wait_for_range(base, base + range.size);
    registered::forget(&range);
    visible::forget(base)
}

/// A context ends, and the worker's part of the memory in it with it.
pub fn context_ends(context: Handle<Context>) {
    let mut ranges = RANGES.write();
    ranges.values_mut().filter(|range| range.context == context).for_each(|range| range.is_shared = false);
}

fn take(base: usize, is_registered: bool) -> Option<Range> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_are_found_by_any_address_inside() {
        let context = Handle::new(3, 3);
        let base = 0x1000_usize;
        let (is_registered, is_shared, is_pooled) = (true, false, false);
        let range = Range {
            base,
            size: 100,
            room: 100,
            flags: 0,
            context,
            id: 0,
            is_registered,
            is_shared,
            is_pooled,
        };
        RANGES.write().insert(base, range);
        assert!(is_pinned(base, base + 100) && is_pinned(base + 99, base + 100));
        assert!(!is_pinned(base, base + 101) && !is_pinned(base - 1, base));
        assert_eq!(free(base as *mut c_void), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(unregister(base as *mut c_void), Ok(()));
        let again = unregister(base as *mut c_void);
        assert_eq!(again, Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
    }
}
