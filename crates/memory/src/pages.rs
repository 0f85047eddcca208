//! Makes the pages of memory before they are used, on several threads: one makes 4 KiB in 1 to 2 us (virtual
//! machines with an H100, 2026-11-24), and those who would pin the memory or copy there make them one by one.

use crate::copiers;

/// What a thread makes at a time.
const PART: usize = 4 << 20;
const MOST_THREADS: usize = 8;
const PAGE: usize = 4096;

/// What the pages are made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// To be read only.
    Read,
    /// To be written to, too.
    Write,
}

/// Has the system make the pages of the memory from `start` on. What lies there stays as it is. A system that
/// does not know the request (before Linux 5.14) refuses it, as it does for memory that is not there or only
/// readable; the pages are made when they are needed, then.
pub fn populate(start: usize, bytes: usize, access: Access) {
    let (start, end) = (start / PAGE * PAGE, start.saturating_add(bytes));
    let advice = match access {
        Access::Read => libc::MADV_POPULATE_READ,
        Access::Write => libc::MADV_POPULATE_WRITE,
    };
    copiers::share((end - start).div_ceil(PART), MOST_THREADS, start as *const u8, |number| {
        let part = start + number * PART;
        // SAFETY: the contents of the memory stay as they are, whoever it belongs to.
        unsafe { libc::madvise(part as *mut libc::c_void, PART.min(end - part), advice) };
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use memmap2::MmapMut;

    /// How many of the pages are there.
    fn present(memory: &MmapMut) -> usize {
        let mut pages = vec![0_u8; memory.len().div_ceil(PAGE)];
        // SAFETY: the mapping is alive, and the list has a byte for each of its pages.
        let asked = unsafe { libc::mincore(memory.as_ptr() as *mut _, memory.len(), pages.as_mut_ptr()) };
        assert_eq!(asked, 0);
        pages.iter().filter(|page| **page & 1 != 0).count()
    }

    #[test]
    fn all_pages_are_there_afterwards_and_hold_what_they_held() {
        let mut memory = MmapMut::map_anon(2 * PART + 3 * PAGE).unwrap();
        memory[PART + 5] = 7;
        populate(memory.as_ptr() as usize + 100, memory.len() - 200, Access::Write);
        assert_eq!(memory[PART + 5], 7);
        assert!(memory.iter().enumerate().all(|(at, byte)| *byte == 0 || at == PART + 5));
        assert_eq!(present(&memory), memory.len() / PAGE);
    }

    #[test]
    fn memory_that_is_not_there_is_left_alone() {
        populate(PAGE, 10 * PAGE, Access::Write);
        populate(PAGE, 0, Access::Read);
    }
}
