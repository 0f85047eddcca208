//! Pinned host memory (`cuMemHostAlloc`, `cuMemHostRegister`).

use crate::model::host_memory::{self, Range};
use crate::model::{context, device, host_window, transfers};
use crate::remote::mirrored::shared::window::{self, Window};
use crate::remote::{mirrored, registered, session};
use crate::submit::context::work;
use crate::submit::device_memory;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CU_MEMHOSTREGISTER_READ_ONLY, CUresult};
use causeway_memory::pages::{self, Access, page_size};
use core::ffi::c_void;

/// Allocates memory for `cuMemHostAlloc`: page-aligned and zeroed.
pub fn allocate(size: usize, flags: u32) -> Result<*mut c_void, CUresult> {
    let context = context::current()?;
    session::of(context)?.faults().check()?;
    let mapped = size.checked_next_multiple_of(page_size()).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    if size == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let address = match make(context, size) {
        Some(made) => made,
        None => map(mapped)?,
    };
    let (base, id) = (address as usize, device::of_memory());
    let (is_registered, is_pooled) = (false, false);
    host_memory::note(Range { base, size, capacity: size, flags, context, id, is_registered, is_pooled });
    Ok(address)
}

/// New zeroed memory in the host window, which the worker has, too, if it can; nothing where there is no room.
pub fn make(context: Handle<Context>, size: usize) -> Option<*mut c_void> {
    window::allocate(context, size, Window::Host).or_else(|| host_window::allocate(size, None))
}

/// Gives back memory of [`make`] that is not noted, after the copies that still write to it, once the device
/// is idle.
pub fn unmake(base: usize, size: usize) -> Result<(), CUresult> {
    transfers::wait_for_range(base, base + size);
    let forgotten = mirrored::forget(base);
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

/// Frees memory of [`allocate`], after all work of its context: programs count on that wait, as they do for a device's memory.
pub fn free(address: *mut c_void) -> Result<(), CUresult> {
    let range = host_memory::take(address as usize, false).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let closed = close(&range);
    unmap(&range);
    closed
}

/// Ends what the session has of memory that has been taken out of the table, once the work of its context is done. It ends even
/// when that work has failed.
fn close(range: &Range) -> Result<(), CUresult> {
    let waited = work::synchronize(range.context);
    transfers::wait_for_range(range.base, range.base + range.size);
    registered::forget(range);
    mirrored::forget(range.base).and(waited)
}

/// Unmaps memory of [`allocate`] that has been taken out of the table.
fn unmap(range: &Range) {
    if host_window::contains(range.base) {
        host_window::release(range.base, range.size);
    } else {
        // SAFETY: mapped by `allocate` with this size and taken out of the table, so it is unmapped once;
        // that nobody uses it any more is the program's promise.
        unsafe { libc::munmap(range.base as *mut c_void, range.size.next_multiple_of(page_size())) };
    }
}

/// Gives back memory of a context that has ended, which has been taken out of the table, after the copies that still
/// use it. What the program had registered it keeps.
pub fn end(range: &Range) {
    transfers::wait_for_range(range.base, range.base + range.size);
    registered::forget(range);
    if !range.is_registered {
        unmap(range);
    }
}

/// Notes memory of the program as pinned.
pub fn register(address: *mut c_void, size: usize, flags: u32) -> Result<(), CUresult> {
    let context = context::current()?;
    session::of(context)?.faults().check()?;
    let base = address as usize;
    if base == 0 || size == 0 || base.checked_add(size).is_none() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if device_memory::is_of_device(base) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if !pages::are_mapped(base, size) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let id = device::of_memory();
    let (is_registered, is_pooled) = (true, false);
    let range = Range { base, size, capacity: size, flags, context, id, is_registered, is_pooled };
    host_memory::note_registered(range)?;
    let is_only_read = flags & CU_MEMHOSTREGISTER_READ_ONLY != 0;
    // As pinning does: copies then do not make the pages one by one.
    pages::populate(base, size, if is_only_read { Access::Read } else { Access::Write });
    Ok(())
}

/// Undoes [`register`], after all work of the memory's context.
pub fn unregister(address: *mut c_void) -> Result<(), CUresult> {
    match host_memory::take(address as usize, true) {
        Some(range) => close(&range),
        // Within registered memory, or memory that was allocated.
        None if host_memory::find(address as usize).is_some() => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        None => Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_ranges_are_disjoint_and_found_by_address() {
        let context = Handle::new(3, 3);
        let base = 0x1000_usize;
        let (is_registered, is_pooled) = (true, false);
        let range =
            Range { base, size: 100, capacity: 100, flags: 0, context, id: 0, is_registered, is_pooled };
        host_memory::note(range);
        assert!(host_memory::is_pinned(base, base + 100) && host_memory::is_pinned(base + 99, base + 100));
        assert!(!host_memory::is_pinned(base, base + 101) && !host_memory::is_pinned(base - 1, base));
        assert_eq!(free(base as *mut c_void), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(unregister(base as *mut c_void), Ok(()));
        let again = unregister(base as *mut c_void);
        assert_eq!(again, Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
    }
}
