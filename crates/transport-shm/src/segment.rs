//! Shared segment: creation, hand-over, checks and mapping.

use core::sync::atomic::{AtomicU32, AtomicU64};
use std::io;
use std::os::fd::AsRawFd as _;

use causeway_memory::pages::page_size;
use causeway_memory::sealed::{SealedMemory, SealedMemoryError};
use thiserror::Error;

use super::layout::{BadLayout, Direction, LINE, Layout, Parts, Word};

/// Why memory of another process is not mapped.
#[derive(Debug, Error)]
pub enum SegmentError {
    /// It is none that can be taken, or cannot be had.
    #[error(transparent)]
    Memory(#[from] SealedMemoryError),
    /// The parts are of no possible size.
    #[error(transparent)]
    Layout(#[from] BadLayout),
    /// It is too large to be charged to this process.
    #[error("{0}")]
    NotAllowed(String),
}

/// The mapped memory of a link. It goes when nobody uses any part of it any more.
#[derive(Debug)]
pub(super) struct Segment {
    start: *mut u8,
    bytes: usize,
    layout: Layout,
    /// Of both directions, as the layout has them.
    parts: [Parts; 2],
}

// SAFETY: the mapping is owned, and what is in it is reached by atomic words and by raw copies of bytes that
// the protocol gives to one side at a time.
unsafe impl Send for Segment {}
// SAFETY: the mapping is owned, and what is in it is reached by atomic words and by raw copies of bytes that
// the protocol gives to one side at a time.
unsafe impl Sync for Segment {}

/// Maps `bytes` of shared memory at a multiple of the size of a huge page, without which the system gives
/// small ones: these cost about 1 us each when they are first used or registered (a virtual machine with an
/// H100, 2026-11-24).
fn map_for_huge_pages(memory: &SealedMemory, bytes: usize) -> io::Result<*mut libc::c_void> {
    const HUGE_PAGE: usize = 2 << 20;
    let reserved_bytes = bytes + HUGE_PAGE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: addresses that the system chooses, which are kept and cannot be used.
    let reserved =
        unsafe { libc::mmap(core::ptr::null_mut(), reserved_bytes, libc::PROT_NONE, flags, -1, 0) };
    if reserved == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let before = reserved.cast::<u8>().align_offset(HUGE_PAGE);
    let required = reserved.wrapping_byte_add(before);
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: what is replaced are addresses that were kept just now; the descriptor has as many bytes, and
    // its size is sealed.
    let start = unsafe { libc::mmap(required, bytes, access, flags, memory.descriptor().as_raw_fd(), 0) };
    if start == libc::MAP_FAILED {
        let cause = io::Error::last_os_error();
        // SAFETY: kept above, and not used.
        unsafe { libc::munmap(reserved, reserved_bytes) };
        return Err(cause);
    }
    // The segment ends with a page.
    let end = start.wrapping_byte_add(bytes.next_multiple_of(page_size()));
    // SAFETY: what is left of the addresses that were kept, on both sides of the mapping.
    unsafe {
        if before > 0 {
            libc::munmap(reserved, before);
        }
        libc::munmap(end, reserved.wrapping_byte_add(reserved_bytes) as usize - end as usize);
    }
    Ok(start)
}

impl Segment {
    /// Makes the memory for a session.
    pub(super) fn create(layout: Layout) -> Result<(Self, SealedMemory), SegmentError> {
        let memory = SealedMemory::new("causeway-link", layout.bytes() as u64)?;
        Ok((Self::map(&memory, layout)?, memory))
    }

    /// Maps memory that has been checked; it must be as large as the layout says.
    pub(super) fn map(memory: &SealedMemory, layout: Layout) -> Result<Self, SegmentError> {
        let bytes = layout.bytes();
        if memory.bytes() != bytes as u64 {
            let (expected, found) = (bytes as u64, memory.bytes());
            return Err(SealedMemoryError::WrongSize { expected, found }.into());
        }
        let system = |cause| SealedMemoryError::System { bytes: bytes as u64, cause };
        let start = map_for_huge_pages(memory, bytes).map_err(system)?;
        let parts = [Direction::Up, Direction::Down].map(|direction| layout.parts(direction));
        let segment = Self { start: start.cast(), bytes, layout, parts };
        // SAFETY: the mapping was just made. A forked child must not have a part in the session.
        if unsafe { libc::madvise(start, bytes, libc::MADV_DONTFORK) } != 0 {
            return Err(system(io::Error::last_os_error()).into());
        }
        // SAFETY: the mapping was just made. Advice that the system does not take changes nothing.
        unsafe { libc::madvise(start, bytes, libc::MADV_HUGEPAGE) };
        Ok(segment)
    }

    pub(super) fn parts(&self, direction: Direction) -> &Parts {
        &self.parts[direction as usize]
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// The address `offset` bytes from the start.
    pub(super) fn address(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes);
        self.start.wrapping_add(offset)
    }

    /// The word of 8 bytes at `offset`.
    pub(super) fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.bytes);
        // SAFETY: inside the mapping, aligned, and only ever reached as an atomic word by this process.
        unsafe { AtomicU64::from_ptr(self.start.add(offset).cast()) }
    }

    /// An index of a direction.
    pub(super) fn index(&self, direction: Direction, word: Word) -> &AtomicU64 {
        self.word(self.parts(direction).words_offset + word as usize * LINE)
    }

    /// A futex of a direction.
    pub(super) fn futex(&self, direction: Direction, word: Word) -> &AtomicU32 {
        let offset = self.parts(direction).words_offset + word as usize * LINE;
        debug_assert!(offset + 4 <= self.bytes);
        // SAFETY: inside the mapping, since `Layout` places all words of a direction in it; aligned to a
        // line, and only ever reached as an atomic word by this process.
        unsafe { AtomicU32::from_ptr(self.start.add(offset).cast()) }
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, and nobody uses it any more.
        unsafe { libc::munmap(self.start.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_of_the_size_of_its_layout_is_mapped() {
        let layout = Layout::halves(0);
        let (_segment, memory) = Segment::create(layout).unwrap();
        assert!(Segment::map(&memory, layout).is_ok());
        assert!(Segment::map(&memory, Layout::halves(8 << 20)).is_err());
    }

    #[test]
    fn a_forked_child_does_not_have_the_memory() {
        let (segment, _memory) = Segment::create(Layout::halves(0)).unwrap();
        // SAFETY: between fork and exit the child makes async-signal-safe calls only.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let mut resident = 0_u8;
                let gone = libc::mincore(segment.start.cast(), 1, &mut resident) == -1;
                libc::_exit(i32::from(!gone));
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            status
        };
        assert_eq!(status, 0);
    }
}
