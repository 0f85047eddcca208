//! The part of an address space for memory that the program on the host knows by the same addresses.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::pages::{READ_WRITE, protect};
use super::sizes::PAGE;
use super::{AddressSpace, Live, MemoryError};

impl AddressSpace {
    /// The part of the range that holds nothing but what [`Self::allocate_at`] puts there.
    pub fn host_window(&self) -> Range<u64> {
        self.base + self.reserved / 2..self.base + self.reserved / 4 * 3
    }

    /// Allocates `size` bytes, zeroed, at `start`, a page of the [host window](Self::host_window).
    ///
    /// # Errors
    /// [`MemoryError::NotFree`] when the pages lie elsewhere or not all of them are free, or the machine
    /// refuses them.
    pub fn allocate_at(&self, start: u64, size: u64) -> Result<(), MemoryError> {
        self.map_at(start, size, false, |pages| protect(start, pages, READ_WRITE))
    }

    /// Like [`Self::allocate_at`], for memory that another process has, too: `memory` is mapped at `start`,
    /// from `offset` on.
    ///
    /// # Safety
    /// `memory` must have `size` bytes there, in whole pages. Where somebody takes pages away, a kernel that
    /// uses them fails, and host code that does gets SIGBUS.
    ///
    /// # Errors
    /// As [`Self::allocate_at`].
    pub unsafe fn share_at(
        &self,
        start: u64,
        size: u64,
        memory: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<(), MemoryError> {
        let not_free = MemoryError::NotFree { address: start, size };
        let offset = libc::off_t::try_from(offset).map_err(|_| not_free)?;
        self.map_at(start, size, true, |pages| {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: the pages are a free part of this space's own reservation, as `map_at` has found.
            let mapped = unsafe {
                libc::mmap(start as *mut _, pages as usize, READ_WRITE, flags, memory.as_raw_fd(), offset)
            };
            if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
        })
    }

    /// Takes free pages of the window, which `make` makes usable.
    fn map_at(
        &self,
        start: u64,
        size: u64,
        is_shared: bool,
        make: impl FnOnce(u64) -> io::Result<()>,
    ) -> Result<(), MemoryError> {
        let not_free = MemoryError::NotFree { address: start, size };
        let mut allocations = self.allocations.write();
        let Some(pages) = size.max(1).checked_next_multiple_of(PAGE) else { return Err(not_free) };
        let Some(end) = start.checked_add(pages) else { return Err(not_free) };
        let window = self.host_window();
        let contains = start.is_multiple_of(PAGE) && window.start <= start && end <= window.end;
        let is_free =
            allocations.live.range(..end).next_back().is_none_or(|(other, live)| other + live.span <= start);
        if !contains
            || !is_free
            || pages > self.capacity.saturating_sub(allocations.allocated)
            || make(pages).is_err()
        {
            return Err(not_free);
        }
        let live = Live { size: size.max(1), pages, span: pages, by_kernel: false, is_shared };
        allocations.live.insert(start, live);
        allocations.allocated += pages;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_process_is_used_by_both_until_it_is_freed() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.host_window().start;
        let file = tempfile::tempfile().unwrap();
        file.set_len(2 * PAGE).unwrap();
        // SAFETY: the file is as long and this test's own.
        let share = || unsafe { space.share_at(start, PAGE, std::os::fd::AsFd::as_fd(&file), PAGE) };
        share().unwrap();
        assert_eq!(share(), Err(MemoryError::NotFree { address: start, size: PAGE }));
        space.write(start + 7, b"kernel").unwrap();
        let mut seen = [0; 6];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut seen, PAGE + 7).unwrap();
        assert_eq!(&seen, b"kernel");
        std::os::unix::fs::FileExt::write_all_at(&file, b"host", PAGE).unwrap();
        let mut seen = [0; 4];
        space.read(start, &mut seen).unwrap();
        assert_eq!(&seen, b"host");
        space.free(start).unwrap();
        assert!(space.read(start, &mut seen).is_err());
        space.allocate_at(start, PAGE).unwrap();
        space.read(start, &mut seen).unwrap();
        assert_eq!(seen, [0; 4]);
    }

    #[test]
    fn allocations_in_the_window_have_the_place_that_was_asked_for() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.host_window().start;
        assert_eq!(space.allocate_at(start, 5000), Ok(()));
        space.write(start + 4999, &[7]).unwrap();
        for taken in [start, start + PAGE, start + 1, start - PAGE, space.host_window().end, !(PAGE - 1)] {
            assert!(space.allocate_at(taken, PAGE).is_err(), "{taken:#x}");
        }
        assert_eq!(space.allocate_at(start + 2 * PAGE, 1), Ok(()));
        assert_eq!(space.allocated(), 3 * PAGE);
        space.free(start).unwrap();
        assert_eq!(space.allocate_at(start, 5000), Ok(()));
        let mut bytes = [1];
        space.read(start + 4999, &mut bytes).unwrap();
        assert_eq!(bytes, [0]);
        assert!(!space.host_window().contains(&space.allocate(PAGE, PAGE).unwrap()));
    }
}
