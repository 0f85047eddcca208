//! Makes the pages of memory before they are used, on several threads: one makes 4 KiB in 1 to 2 us (virtual
//! machines with an H100, 2026-11-24), and those who would pin the memory or copy there make them one by one.

use crate::copy_threads;

/// What a thread makes at a time.
const PART: usize = 4 << 20;
const MAX_THREADS: usize = 8;

/// What the pages are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To be read only.
    Read,
    /// To be written to, too.
    Write,
}

/// Bytes of a page of this machine: 4 KiB on x86-64, up to 64 KiB on AArch64.
#[inline]
pub fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("the system knows the size of its pages")
}

/// Has the system make the pages of the memory from `start` on. What lies there stays as it is. A system that
/// does not know the request (before Linux 5.14) refuses it, as it does for memory that is not there or only
/// readable; the pages are made when they are needed, then.
pub fn populate(start: usize, bytes: usize, access: Access) {
    let page = page_size();
    let (start, end) = (start / page * page, start.saturating_add(bytes));
    let advice = match access {
        Access::Read => libc::MADV_POPULATE_READ,
        Access::Write => libc::MADV_POPULATE_WRITE,
    };
    copy_threads::share((end - start).div_ceil(PART), MAX_THREADS, start as *const u8, |number| {
        let part = start + number * PART;
        // SAFETY: the contents of the memory stay as they are, whoever it belongs to.
        unsafe { libc::madvise(part as *mut libc::c_void, PART.min(end - part), advice) };
    });
}

/// Whether the process has mapped every page of a range.
pub fn are_mapped(start: usize, bytes: usize) -> bool {
    let first = start / page_size() * page_size();
    // SAFETY: with this flag the call does nothing but look for pages that are not mapped.
    unsafe {
        libc::msync(first as *mut libc::c_void, start.saturating_add(bytes) - first, libc::MS_ASYNC) == 0
            || std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::MmapMut;

    /// How many of the pages are there.
    fn present(memory: &MmapMut) -> usize {
        let mut pages = vec![0_u8; memory.len().div_ceil(page_size())];
        // SAFETY: the mapping is alive, and the list has a byte for each of its pages.
        let asked = unsafe { libc::mincore(memory.as_ptr() as *mut _, memory.len(), pages.as_mut_ptr()) };
        assert_eq!(asked, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn unmapped_pages_are_found() {
        let page = page_size();
        let memory = MmapMut::map_anon(2 * page).unwrap();
        let start = memory.as_ptr() as usize;
        assert!(are_mapped(start, 2 * page) && are_mapped(start + 5, page));
        // Nothing is ever mapped so far down.
        assert!(!are_mapped(page, 1) && !are_mapped(page, start + page));
    }

    #[test]
    fn all_pages_are_there_afterwards_and_hold_what_they_held() {
        let mut memory = MmapMut::map_anon(2 * PART + 3 * page_size()).unwrap();
        memory[PART + 5] = 7;
        populate(memory.as_ptr() as usize + 100, memory.len() - 200, Access::Write);
        assert_eq!(memory[PART + 5], 7);
        assert!(memory.iter().enumerate().all(|(at, byte)| *byte == 0 || at == PART + 5));
        assert_eq!(present(&memory), memory.len() / page_size());
    }

    #[test]
    fn memory_that_is_not_there_is_left_alone() {
        populate(page_size(), 10 * page_size(), Access::Write);
        populate(page_size(), 0, Access::Read);
    }
}
