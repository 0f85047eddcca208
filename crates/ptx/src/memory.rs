//! The device's memory: one reserved range of this process's addresses.
//!
//! Everything a kernel can point at (device allocations, module variables, and the shared, local and parameter
//! memory of the blocks that run) lies inside one [`AddressSpace`]. So a device pointer *is* a host address,
//! generic addressing needs no translation, and one comparison tells compiled code whether an address may be
//! touched at all. Inside the range, memory that belongs to nobody is mapped without access: touching it raises
//! a signal that ends the launch with [`crate::Fault::IllegalAddress`].
//!
//! Allocations and module variables fill the range from the bottom, the memory of blocks from the top, and hundreds
//! of GiB lie between (less where `ulimit -v` allows no large range). So a pointer that runs past an allocation meets
//! pages without access, or another allocation as on a GPU, but not the memory of a block.

mod window;

pub use window::Access;

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::ptr;

use parking_lot::{Mutex, RwLock};
use thiserror::Error;

use crate::run::Arena;

/// Where the first address space of a process is placed when the kernel grants it.
const PREFERRED_BASE: u64 = 0x1000_0000_0000;
/// Bytes of address (not of memory) that a space takes when the process's limits allow it: 1 TiB.
const PREFERRED_RESERVATION: u64 = 1 << 40;
/// The smallest reservation that is still of use: 4 GiB.
const SMALLEST_RESERVATION: u64 = 1 << 32;
/// Bytes of address before and behind the range that are mapped without access. Compiled code relies on them: it does
/// not check an access that is nearer than this to one that is known to be inside the range.
pub(crate) const GUARD: u64 = 64 << 10;
/// Granularity of allocations: the size of a page on every machine this crate generates code for.
const PAGE: u64 = 4096;

/// Device memory could not be allocated.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error(
    "{requested} bytes of device memory were asked for, but {allocated} of {capacity} bytes are in use; free some \
     or give the device more memory"
)]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes allocated when the request came.
    pub allocated: u64,
    /// Bytes the space may hand out in all.
    pub capacity: u64,
}

/// An access to device memory from the host was refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum MemoryError {
    /// Some byte of the range is not inside a live allocation.
    #[error("the {size} bytes at {address:#x} are not inside one live allocation of the device")]
    OutsideAllocation {
        /// First address of the range.
        address: u64,
        /// Bytes in the range.
        size: u64,
    },
    /// The range was asked for and cannot be had.
    #[error(
        "the {size} bytes at {address:#x} are not free for an allocation at a place of the client's choice"
    )]
    NotFree {
        /// First address of the range.
        address: u64,
        /// Bytes in the range.
        size: u64,
    },
    /// The address given to `free` is not the start of a live allocation.
    #[error("{address:#x} is not the start of a live allocation, so it cannot be freed")]
    NotAllocated {
        /// The address given.
        address: u64,
    },
    /// A range that was to be mapped is not a free part of the window.
    #[error("the {size} bytes at {address:#x} are not a free part of the window in whole pages")]
    NotInWindow {
        /// First address of the range.
        address: u64,
        /// Bytes in the range.
        size: u64,
    },
    /// The system does not map or protect pages.
    #[error("the system refuses to change the pages at {address:#x}")]
    Refused {
        /// First address of the range.
        address: u64,
    },
}

/// The addresses could not be reserved.
#[derive(Debug, Error)]
#[error(
    "no range of {SMALLEST_RESERVATION} bytes of address space could be reserved: {0}; raise `ulimit -v`"
)]
pub struct ReservationError(io::Error);

/// The memory of one device.
///
/// All operations may be called from several threads at once. As on a GPU, a host copy that runs at the same time
/// as a kernel writing the same bytes yields some mixture of old and new bytes.
#[derive(Debug)]
pub struct AddressSpace {
    base: u64,
    reserved: u64,
    capacity: u64,
    allocations: RwLock<Allocations>,
    /// Block memory that no launch uses at the moment; see [`Arena`].
    arenas: Mutex<Vec<Arena>>,
}

#[derive(Debug, Default)]
struct Allocations {
    /// Live allocations: start to size as asked for. Arenas are not listed, so the host cannot name them.
    live: BTreeMap<u64, Live>,
    /// Free ranges: start to length, neighbours always merged.
    free: BTreeMap<u64, u64>,
    /// What is mapped in the window, by first address.
    mapped: BTreeMap<u64, window::Mapping>,
    allocated: u64,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    size: u64,
    /// Bytes of memory, in whole pages.
    pages: u64,
    /// Bytes of address taken from `start`: the pages, and a guard page where it was allocated anywhere.
    span: u64,
}

impl AddressSpace {
    /// Reserves an address space that hands out at most `capacity` bytes.
    ///
    /// Address space is reserved, memory is not: pages cost something when they are first written.
    ///
    /// # Errors
    /// When not even 4 GiB of addresses can be reserved.
    pub fn new(capacity: u64) -> Result<Self, ReservationError> {
        let mut reserved =
            PREFERRED_RESERVATION.max(capacity.min(1 << 44).saturating_mul(2).next_power_of_two());
        let base = loop {
            match reserve(reserved) {
                Ok(base) => break base,
                Err(error) if reserved <= SMALLEST_RESERVATION => return Err(ReservationError(error)),
                Err(_) => reserved /= 2,
            }
        };
        // The first page stays without access, so that no allocation has the lowest address of the range.
        let window_end = base + reserved / 4 * 3;
        // The quarter before the window is the one whose use is decided outside; see `window.rs`.
        let free = BTreeMap::from([
            (base + PAGE, reserved / 4 - PAGE),
            // A page without access behind the window, as behind every allocation.
            (window_end + PAGE, base + reserved - window_end - PAGE),
        ]);
        let allocations = Allocations { free, ..Allocations::default() };
        Ok(Self {
            base,
            reserved,
            capacity,
            allocations: RwLock::new(allocations),
            arenas: Mutex::new(Vec::new()),
        })
    }

    /// First address of the range.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes of address in the range: a power of two, which [`Self::base`] is a multiple of.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The part of the range that holds nothing but what [`Self::allocate_at`] puts there.
    pub fn window(&self) -> Range<u64> {
        self.base + self.reserved / 2..self.base + self.reserved / 4 * 3
    }

    /// Bytes that may be allocated in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes allocated now, in whole pages.
    pub fn allocated(&self) -> u64 {
        self.allocations.read().allocated
    }

    /// Whether `address` lies in the reserved range (which says nothing about a live allocation).
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.reserved
    }

    /// Allocates `size` bytes, zeroed, at a multiple of `align` (at least a page). The page behind every allocation has no access.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the capacity or the range is used up, or the machine refuses the pages.
    pub fn allocate(&self, size: u64, align: u64) -> Result<u64, OutOfMemory> {
        let mut allocations = self.allocations.write();
        let out_of_memory =
            OutOfMemory { requested: size, allocated: allocations.allocated, capacity: self.capacity };
        let Some(pages) = size.max(1).checked_next_multiple_of(PAGE) else { return Err(out_of_memory) };
        if pages > self.capacity.saturating_sub(allocations.allocated) {
            return Err(out_of_memory);
        }
        let align = align.max(PAGE).checked_next_power_of_two().unwrap_or(u64::MAX);
        let Some(start) = allocations.take(pages + PAGE, align) else { return Err(out_of_memory) };
        if protect(start, pages, libc::PROT_READ | libc::PROT_WRITE).is_err() {
            allocations.give_back(start, pages + PAGE);
            return Err(out_of_memory);
        }
        allocations.live.insert(start, Live { size: size.max(1), pages, span: pages + PAGE });
        allocations.allocated += pages;
        Ok(start)
    }

    /// Allocates `size` bytes, zeroed, at `start`, a page of the [window](Self::window).
    ///
    /// # Errors
    /// [`MemoryError::NotFree`] when the pages lie elsewhere or not all of them are free, or the machine refuses
    /// them.
    pub fn allocate_at(&self, start: u64, size: u64) -> Result<(), MemoryError> {
        self.place_at(start, size, |pages| protect(start, pages, READ_WRITE))
    }

    /// Like [`Self::allocate_at`], for memory that another process has, too: `memory` is mapped at `start`.
    ///
    /// # Safety
    /// `memory` must have `size` bytes, in whole pages, which nobody can take away.
    ///
    /// # Errors
    /// As [`Self::allocate_at`].
    pub unsafe fn share_at(&self, start: u64, size: u64, memory: BorrowedFd<'_>) -> Result<(), MemoryError> {
        self.place_at(start, size, |pages| {
            let flags = libc::MAP_SHARED | libc::MAP_FIXED;
            // SAFETY: the pages are a free part of this space's own reservation, as `place_at` has found.
            let mapped = unsafe {
                libc::mmap(start as *mut _, pages as usize, READ_WRITE, flags, memory.as_raw_fd(), 0)
            };
            if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
        })
    }

    /// Takes free pages of the window, which `make` makes usable.
    fn place_at(
        &self,
        start: u64,
        size: u64,
        make: impl FnOnce(u64) -> io::Result<()>,
    ) -> Result<(), MemoryError> {
        let not_free = MemoryError::NotFree { address: start, size };
        let mut allocations = self.allocations.write();
        let Some(pages) = size.max(1).checked_next_multiple_of(PAGE) else { return Err(not_free) };
        let Some(end) = start.checked_add(pages) else { return Err(not_free) };
        let window = self.window();
        let is_inside = start.is_multiple_of(PAGE) && window.start <= start && end <= window.end;
        let is_free =
            allocations.live.range(..end).next_back().is_none_or(|(other, live)| other + live.span <= start);
        if !is_inside
            || !is_free
            || pages > self.capacity.saturating_sub(allocations.allocated)
            || make(pages).is_err()
        {
            return Err(not_free);
        }
        allocations.live.insert(start, Live { size: size.max(1), pages, span: pages });
        allocations.allocated += pages;
        Ok(())
    }

    /// Frees the allocation that starts at `address`. Its pages lose access at once.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`] when no live allocation starts there.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        let mut allocations = self.allocations.write();
        let live = allocations.live.remove(&address).ok_or(MemoryError::NotAllocated { address })?;
        discard(address, live.span);
        allocations.allocated -= live.pages;
        if !self.window().contains(&address) {
            allocations.give_back(address, live.span);
        }
        Ok(())
    }

    /// The live allocation that `address` lies in, as (start, size asked for).
    pub fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        let allocations = self.allocations.read();
        let (&start, live) = allocations.live.range(..=address).next_back()?;
        (address - start < live.size).then_some((start, live.size))
    }

    /// Reads device memory into `destination`.
    ///
    /// # Errors
    /// [`MemoryError::OutsideAllocation`], and nothing is read, unless all bytes are in one live allocation.
    pub fn read(&self, address: u64, destination: &mut [u8]) -> Result<(), MemoryError> {
        let allocations = self.allocations.read();
        allocations.check(address, destination.len() as u64, Access::Read)?;
        // SAFETY: the range is inside a live allocation, which is mapped readable and stays so while the lock is held.
        unsafe {
            ptr::copy_nonoverlapping(address as *const u8, destination.as_mut_ptr(), destination.len())
        };
        Ok(())
    }

    /// Writes `source` to device memory.
    ///
    /// # Errors
    /// [`MemoryError::OutsideAllocation`], and nothing is written, unless all bytes are in one live allocation.
    pub fn write(&self, address: u64, source: &[u8]) -> Result<(), MemoryError> {
        let allocations = self.allocations.read();
        allocations.check(address, source.len() as u64, Access::ReadWrite)?;
        // SAFETY: the range is inside a live allocation, which is mapped writable and stays so while the lock is held.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), address as *mut u8, source.len()) };
        Ok(())
    }

    /// Fills `count` elements from `address` on with `pattern` (1, 2 or 4 bytes, as `cuMemsetD8/D16/D32` do; any length works).
    ///
    /// # Errors
    /// [`MemoryError::OutsideAllocation`], and nothing is written, unless all bytes are in one live allocation.
    pub fn fill(&self, address: u64, pattern: &[u8], count: u64) -> Result<(), MemoryError> {
        let allocations = self.allocations.read();
        let size = (pattern.len() as u64)
            .checked_mul(count)
            .ok_or(MemoryError::OutsideAllocation { address, size: u64::MAX })?;
        allocations.check(address, size, Access::ReadWrite)?;
        let size = size as usize;
        if size == 0 {
            return Ok(());
        }
        let start = address as *mut u8;
        // SAFETY: the range is inside a live allocation, which is mapped writable and stays so while the lock is held.
        unsafe {
            if pattern.iter().all(|byte| *byte == pattern[0]) {
                start.write_bytes(pattern[0], size);
                return Ok(());
            }
            // What is filled already is the source of the next piece, which doubles until it is as large as a cache likes.
            start.copy_from_nonoverlapping(pattern.as_ptr(), pattern.len());
            let mut filled = pattern.len();
            while filled < size {
                let piece = filled.min(size - filled).min(pattern.len() << 12);
                start.add(filled).copy_from_nonoverlapping(start, piece);
                filled += piece;
            }
        }
        Ok(())
    }

    /// Copies `size` bytes of device memory; the ranges may overlap.
    ///
    /// # Errors
    /// [`MemoryError::OutsideAllocation`], and nothing is written, unless each range is in one live allocation.
    pub fn copy(&self, destination: u64, source: u64, size: u64) -> Result<(), MemoryError> {
        let allocations = self.allocations.read();
        allocations.check(source, size, Access::Read)?;
        allocations.check(destination, size, Access::ReadWrite)?;
        // SAFETY: both ranges are inside live allocations, mapped for as long as the lock is held.
        unsafe { ptr::copy(source as *const u8, destination as *mut u8, size as usize) };
        Ok(())
    }

    /// Takes block memory for one thread of a launch; it comes back through [`Self::return_arena`].
    pub(crate) fn take_arena(&self) -> Option<Arena> {
        if let Some(arena) = self.arenas.lock().pop() {
            return Some(arena);
        }
        let mut allocations = self.allocations.write();
        let start = allocations.take_highest(Arena::SPAN)?;
        let writable = Arena::WRITABLE
            .iter()
            .try_for_each(|range| protect(start + range.start, range.end - range.start, READ_WRITE));
        if writable.is_err() {
            discard(start, Arena::SPAN);
            allocations.give_back(start, Arena::SPAN);
            return None;
        }
        Some(Arena::new(start))
    }

    pub(crate) fn return_arena(&self, arena: Arena) {
        self.arenas.lock().push(arena);
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        let start = (self.base - GUARD) as *mut libc::c_void;
        // SAFETY: the range was reserved by `new` and nothing that borrows from this space is alive.
        unsafe { libc::munmap(start, (self.reserved + 2 * GUARD) as usize) };
    }
}

impl Allocations {
    /// Takes `span` bytes at a multiple of `align` from the lowest free range that holds them.
    fn take(&mut self, span: u64, align: u64) -> Option<u64> {
        let (start, length, aligned) = self.free.iter().find_map(|(&start, &length)| {
            let aligned = start.checked_next_multiple_of(align)?;
            let end = aligned.checked_add(span)?;
            (end <= start + length).then_some((start, length, aligned))
        })?;
        self.free.remove(&start);
        if aligned > start {
            self.free.insert(start, aligned - start);
        }
        let end = aligned + span;
        if end < start + length {
            self.free.insert(end, start + length - end);
        }
        Some(aligned)
    }

    /// Takes the last `span` bytes, a multiple of a page, of the highest free range that holds them.
    fn take_highest(&mut self, span: u64) -> Option<u64> {
        let (&start, &length) = self.free.iter().rev().find(|&(_, &length)| length >= span)?;
        if length == span {
            self.free.remove(&start);
        } else {
            self.free.insert(start, length - span);
        }
        Some(start + length - span)
    }

    /// Returns a range to the free ones and merges it with its neighbours.
    fn give_back(&mut self, mut start: u64, mut length: u64) {
        if let Some((&before, &before_length)) = self.free.range(..start).next_back()
            && before + before_length == start
        {
            self.free.remove(&before);
            start = before;
            length += before_length;
        }
        if let Some(after_length) = self.free.remove(&(start + length)) {
            length += after_length;
        }
        self.free.insert(start, length);
    }

    fn check(&self, address: u64, size: u64, access: Access) -> Result<(), MemoryError> {
        if size == 0 {
            return Ok(());
        }
        let inside = self.live.range(..=address).next_back().is_some_and(|(&start, live)| {
            let offset = address - start;
            offset < live.size && size <= live.size - offset
        });
        if inside || self.is_mapped(address, size, access) {
            Ok(())
        } else {
            Err(MemoryError::OutsideAllocation { address, size })
        }
    }
}

const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Reserves `size` bytes (a power of two) at a multiple of `size`, so that compiled code can tell an address of the
/// range from any other by its upper bits alone, with [`GUARD`] bytes on both sides.
fn reserve(size: u64) -> io::Result<u64> {
    let wish = map_without_access(PREFERRED_BASE - GUARD, size + 2 * GUARD)?;
    if (wish + GUARD).is_multiple_of(size) {
        return Ok(wish + GUARD);
    }
    // SAFETY: the range was mapped just now and nothing refers to it.
    unsafe { libc::munmap(wish as *mut libc::c_void, (size + 2 * GUARD) as usize) };
    let start = map_without_access(PREFERRED_BASE, 2 * size + 2 * GUARD)?;
    let base = (start + GUARD).next_multiple_of(size);
    let (kept, kept_end, end) = (base - GUARD, base + size + GUARD, start + 2 * size + 2 * GUARD);
    for (address, length) in [(start, kept - start), (kept_end, end - kept_end)] {
        if length > 0 {
            // SAFETY: these are the ends of the range mapped above that stick out of the part that is kept.
            unsafe { libc::munmap(address as *mut libc::c_void, length as usize) };
        }
    }
    Ok(base)
}

fn map_without_access(wish: u64, size: u64) -> io::Result<u64> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel never replaces a mapping; the address is only a wish.
    let address =
        unsafe { libc::mmap(wish as *mut libc::c_void, size as usize, libc::PROT_NONE, flags, -1, 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address as u64) }
}

fn protect(start: u64, size: u64, access: libc::c_int) -> io::Result<()> {
    // SAFETY: callers pass whole pages of a range that this module reserved and that nobody else uses.
    let status = unsafe { libc::mprotect(start as *mut libc::c_void, size as usize, access) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Takes access and contents away from a range, so that its pages are free again and read as zero when next used.
fn discard(start: u64, size: u64) {
    // SAFETY: callers pass a range of their own reservation that no live allocation uses; the new mapping replaces
    // it in place, without access.
    unsafe {
        libc::mmap(
            start as *mut libc::c_void,
            size as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_process_is_used_by_both_until_it_is_freed() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.window().start;
        let file = tempfile::tempfile().unwrap();
        file.set_len(PAGE).unwrap();
        // SAFETY: the file is as long and this test's own.
        let share = || unsafe { space.share_at(start, PAGE, std::os::fd::AsFd::as_fd(&file)) };
        share().unwrap();
        assert_eq!(share(), Err(MemoryError::NotFree { address: start, size: PAGE }));
        space.write(start + 7, b"kernel").unwrap();
        let mut seen = [0; 6];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut seen, 7).unwrap();
        assert_eq!(&seen, b"kernel");
        std::os::unix::fs::FileExt::write_all_at(&file, b"host", 0).unwrap();
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
        let start = space.window().start;
        assert_eq!(space.allocate_at(start, 5000), Ok(()));
        space.write(start + 4999, &[7]).unwrap();
        for taken in [start, start + PAGE, start + 1, start - PAGE, space.window().end, !(PAGE - 1)] {
            assert!(space.allocate_at(taken, PAGE).is_err(), "{taken:#x}");
        }
        assert_eq!(space.allocate_at(start + 2 * PAGE, 1), Ok(()));
        assert_eq!(space.allocated(), 3 * PAGE);
        space.free(start).unwrap();
        assert_eq!(space.allocate_at(start, 5000), Ok(()));
        let mut bytes = [1];
        space.read(start + 4999, &mut bytes).unwrap();
        assert_eq!(bytes, [0]);
        assert!(!space.window().contains(&space.allocate(PAGE, PAGE).unwrap()));
    }

    #[test]
    fn allocations_are_zeroed_disjoint_and_found_again() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let first = space.allocate(1000, 256).unwrap();
        let second = space.allocate(1, 1 << 16).unwrap();
        assert_eq!(second % (1 << 16), 0);
        assert_eq!(space.range_of(first + 999), Some((first, 1000)));
        assert_eq!(space.range_of(first + 1000), None);
        let mut bytes = [1_u8; 1000];
        space.read(first, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 1000]);
        space.free(first).unwrap();
        assert_eq!(space.free(first), Err(MemoryError::NotAllocated { address: first }));
        assert_eq!(space.allocated(), PAGE);
    }

    #[test]
    fn capacity_is_a_limit_and_freed_memory_can_be_had_again() {
        let space = AddressSpace::new(4 * PAGE).unwrap();
        let all = space.allocate(4 * PAGE, 256).unwrap();
        assert!(space.allocate(1, 1).is_err());
        space.free(all).unwrap();
        for _ in 0..1000 {
            let again = space.allocate(4 * PAGE, 256).unwrap();
            space.free(again).unwrap();
        }
        assert!(space.allocate(u64::MAX, 256).is_err());
        assert!(space.allocate(u64::MAX - PAGE, u64::MAX).is_err());
    }

    #[test]
    fn host_accesses_outside_an_allocation_are_refused() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let start = space.allocate(100, 256).unwrap();
        assert!(space.write(start + 1, &[7; 100]).is_err());
        assert!(space.write(0, &[7]).is_err());
        assert!(space.read(u64::MAX, &mut [0; 2]).is_err());
        assert!(space.fill(start, &[1, 2, 3, 4], 26).is_err());
        assert!(space.fill(start, &[1, 2, 3, 4], u64::MAX).is_err());
        space.fill(start, &[1, 2, 3, 4], 25).unwrap();
        space.copy(start + 4, start, 96).unwrap();
        let mut bytes = [0; 8];
        space.read(start + 92, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4, 1, 2, 3, 4]);
        assert!(space.copy(start, start + 50, 51).is_err());
    }
}
