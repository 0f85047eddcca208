//! What the system is asked about pages: reserving addresses, giving access and taking it away.

use std::io;

use super::sizes::GUARD;

/// Pages that may be read and written.
pub(super) const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Reserves `size` bytes (a power of two) at a multiple of `size`, so that compiled code can tell an address
/// of the range from any other by its upper bits alone, with [`GUARD`] bytes on both sides; at `base` if it is free.
pub(super) fn reserve(size: u64, base: u64) -> io::Result<u64> {
    let candidate = map_without_access(base - GUARD, size + 2 * GUARD)?;
    if (candidate + GUARD).is_multiple_of(size) {
        return Ok(candidate + GUARD);
    }
    // SAFETY: the range was mapped just now and nothing refers to it.
    unsafe { libc::munmap(candidate as *mut libc::c_void, (size + 2 * GUARD) as usize) };
    let start = map_without_access(base, 2 * size + 2 * GUARD)?;
    let base = (start + GUARD).next_multiple_of(size);
    let (used, used_end, end) = (base - GUARD, base + size + GUARD, start + 2 * size + 2 * GUARD);
    for (address, length) in [(start, used - start), (used_end, end - used_end)] {
        if length > 0 {
            // SAFETY: these are the ends of the range mapped above that stick out of the part that is kept.
            unsafe { libc::munmap(address as *mut libc::c_void, length as usize) };
        }
    }
    Ok(base)
}

fn map_without_access(candidate: u64, size: u64) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel never replaces a mapping; the address is only a wish.
    let address =
        unsafe { libc::mmap(candidate as *mut libc::c_void, size as usize, libc::PROT_NONE, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address as u64) }
}

/// Sets what may be done in whole pages of a reservation.
pub(super) fn protect(start: u64, size: u64, access: libc::c_int) -> io::Result<()> {
    // SAFETY: callers pass whole pages of a range that this module reserved and that nobody else uses.
    let status = unsafe { libc::mprotect(start as *mut libc::c_void, size as usize, access) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes access and contents away from a range, so that its pages are free again and read as zero when next
/// used.
pub(super) fn discard(start: u64, size: u64) {
    // SAFETY: callers pass a range of their own reservation that no live allocation uses; the new mapping
    // replaces it in place, without access.
    unsafe {
        let (start, size) = (start as *mut libc::c_void, size as usize);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        if libc::mmap(start, size, libc::PROT_NONE, flags, -1, 0) == libc::MAP_FAILED {
            // The process has as many mappings as it may. Whoever gets the pages next must still find zeros.
            libc::madvise(start, size, libc::MADV_DONTNEED);
            libc::mprotect(start, size, libc::PROT_NONE);
        }
    }
}
