//! The device's memory: one reserved range of this process's addresses.
//!
//! Everything a kernel can point at (device allocations, module variables, and the shared, local and
//! parameter memory of the blocks that run) lies inside one [`AddressSpace`]. So a device pointer *is* a host
//! address, generic addressing needs no translation, and one comparison tells compiled code whether an
//! address may be touched at all. Inside the range, memory that is not allocated is mapped without access:
//! touching it raises a signal that ends the launch with [`crate::Fault::IllegalAddress`].
//!
//! Allocations and module variables fill the range from the bottom, the memory of blocks from the top, and
//! hundreds of GiB lie between (less where `ulimit -v` allows no large range). So a pointer that runs past an
//! allocation meets pages without access, or another allocation as on a GPU, but not the memory of a block.
//!
//! | module | contents |
//! | --- | --- |
//! | `sizes` | Sizes of the reserved address space and of its parts |
//! | `free_ranges` | Which addresses are free |
//! | `arena` | The memory of the blocks that run |
//! | `stack` | Stacks for the threads of a block |
//! | `host_window` | The part of an address space for memory that the program on the host knows by the same addresses |
//! | `device_window` | The part of an address space where the caller decides which memory is at which addresses |
//! | `mapping` | Mappings at addresses that the caller has chosen |
//! | `access` | Accesses of the host to device memory: only to bytes that lie in one live allocation |
//! | `swap` | Swapping: the bytes of all live allocations go to a file, and come back to the same addresses |
//! | `swapped_out` | Memory that is in a file for now: which bytes, and where in the file |
//! | `pages` | What the system is asked about pages: reserving addresses, giving access and taking it away |
//! | `error` | Why memory could not be had or reached |

mod access;
mod arena;
mod device_window;
mod error;
mod free_ranges;
mod host_window;
mod mapping;
mod pages;
mod sizes;
mod stack;
mod swap;
mod swapped_out;

pub(crate) use arena::Arena;
pub use error::{MemoryError, OutOfMemory, ReservationError};
pub use mapping::Access;
pub(crate) use sizes::GUARD;
pub use sizes::PREFERRED_BASE;
pub(crate) use stack::{SlabStack, StackSlab};
pub use swapped_out::SwappedOut;

use std::collections::BTreeMap;

use parking_lot::{Mutex, RwLock};

use free_ranges::FreeRanges;
use mapping::Mapping;
use pages::{READ_WRITE, discard, protect, reserve};
use sizes::{MIN_RESERVATION_BYTES, PAGE, PREFERRED_RESERVATION};

/// Allocations that kernels may have at a time. Each takes mappings of its own, of which Linux allows a
/// process some 65,000; without them the worker cannot even start a thread.
const KERNEL_ALLOCATIONS: u64 = 16 << 10;
/// The memory of one device.
///
/// All operations may be called from several threads at once. As on a GPU, a host copy that runs at the same
/// time as a kernel writing the same bytes yields some mixture of old and new bytes.
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
    free: FreeRanges,
    /// What is mapped in the device window, by first address.
    mapped: BTreeMap<u64, Mapping>,
    allocated: u64,
    /// How many of the live ones kernels allocated.
    by_kernels: u64,
}

#[derive(Debug, Clone, Copy)]
struct Live {
    size: u64,
    /// Bytes of memory, in whole pages.
    pages: u64,
    /// Bytes of address taken from `start`: the pages, and a guard page where it was allocated anywhere.
    span: u64,
    /// Whether a kernel allocated it, so that kernels may free it.
    by_kernel: bool,
    /// Whether its memory is another process's, too.
    is_shared: bool,
}

impl AddressSpace {
    /// Reserves an address space that hands out at most `capacity` bytes.
    ///
    /// Address space is reserved, memory is not: pages cost something when they are first written.
    ///
    /// # Errors
    /// When not even 4 GiB of addresses can be reserved.
    pub fn new(capacity: u64) -> Result<Self, ReservationError> {
        Self::placed(capacity, |_| PREFERRED_BASE)
    }

    /// Like [`Self::new`], at the address that `place` wishes for so many bytes, a multiple of them, if the kernel grants
    /// it.
    ///
    /// # Errors
    /// As above.
    pub fn placed(capacity: u64, place: impl Fn(u64) -> u64) -> Result<Self, ReservationError> {
        let mut reserved =
            PREFERRED_RESERVATION.max(capacity.min(1 << 44).saturating_mul(2).next_power_of_two());
        let base = loop {
            match reserve(reserved, place(reserved)) {
                Ok(base) => break base,
                Err(error) if reserved <= MIN_RESERVATION_BYTES => return Err(ReservationError(error)),
                Err(_) => reserved /= 2,
            }
        };
        // The first page stays without access, so that no allocation has the lowest address of the range.
        let window_end = base + reserved / 4 * 3;
        // Of the four quarters the second is the device window and the third the host window, where others
        // decide.
        let free = FreeRanges::new([
            (base + PAGE, reserved / 4 - PAGE),
            // A page without access behind the host window, as behind every allocation.
            (window_end + PAGE, base + reserved - window_end - PAGE),
        ]);
        let allocations = Allocations { free, ..Allocations::default() };
        let space = Self {
            base,
            reserved,
            capacity,
            allocations: RwLock::new(allocations),
            arenas: Mutex::new(Vec::new()),
        };
        let (margin, size) = space.margin();
        protect(margin, size, READ_WRITE).map_err(ReservationError)?;
        Ok(space)
    }

    /// First address of the range.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Bytes of address in the range: a power of two, which [`Self::base`] is a multiple of.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Bytes that may be allocated in all.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes allocated now, in whole pages.
    pub fn allocated(&self) -> u64 {
        self.allocations.read().allocated
    }

    /// How many allocations are those of kernels that have called `malloc`.
    pub fn allocated_by_kernels(&self) -> u64 {
        self.allocations.read().by_kernels
    }

    /// Whether `address` lies in the reserved range (which says nothing about a live allocation).
    pub fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.reserved
    }

    /// Allocates `size` bytes, zeroed, at a multiple of `align` (at least a page). The page behind every
    /// allocation has no access.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the capacity or the range is used up, or the machine refuses the pages.
    pub fn allocate(&self, size: u64, align: u64) -> Result<u64, OutOfMemory> {
        self.allocate_as(size, align, false)
    }

    /// The device's `malloc`.
    pub(crate) fn allocate_for_kernel(&self, size: u64) -> Result<u64, OutOfMemory> {
        self.allocate_as(size, 256, true)
    }

    /// Like [`Self::allocate`], at `start`, which an address space with the same addresses once gave.
    ///
    /// # Errors
    /// As [`Self::allocate`], also when not all of these addresses are free.
    pub fn allocate_again(&self, start: u64, size: u64) -> Result<(), OutOfMemory> {
        let mut allocations = self.allocations.write();
        let out_of_memory =
            OutOfMemory { requested: size, allocated: allocations.allocated, capacity: self.capacity };
        let Some(pages) = size.max(1).checked_next_multiple_of(PAGE) else { return Err(out_of_memory) };
        if pages > self.capacity.saturating_sub(allocations.allocated)
            || !start.is_multiple_of(PAGE)
            || !allocations.free.take_at(start, pages + PAGE)
        {
            return Err(out_of_memory);
        }
        self.open_pages(&mut allocations, start, size, pages, false).ok_or(out_of_memory)
    }

    fn allocate_as(&self, size: u64, align: u64, by_kernel: bool) -> Result<u64, OutOfMemory> {
        let mut allocations = self.allocations.write();
        let out_of_memory =
            OutOfMemory { requested: size, allocated: allocations.allocated, capacity: self.capacity };
        if by_kernel && allocations.by_kernels >= KERNEL_ALLOCATIONS {
            return Err(out_of_memory);
        }
        let Some(pages) = size.max(1).checked_next_multiple_of(PAGE) else { return Err(out_of_memory) };
        if pages > self.capacity.saturating_sub(allocations.allocated) {
            return Err(out_of_memory);
        }
        let align = align.max(PAGE).checked_next_power_of_two().unwrap_or(u64::MAX);
        let Some(start) = allocations.free.take(pages + PAGE, align) else { return Err(out_of_memory) };
        let opened = self.open_pages(&mut allocations, start, size, pages, by_kernel);
        opened.map(|()| start).ok_or(out_of_memory)
    }

    /// Makes an allocation of addresses that were just taken; they are free again where the machine refuses the pages.
    fn open_pages(
        &self,
        allocations: &mut Allocations,
        start: u64,
        size: u64,
        pages: u64,
        by_kernel: bool,
    ) -> Option<()> {
        if protect(start, pages, READ_WRITE).is_err() {
            allocations.free.release(start, pages + PAGE);
            return None;
        }
        let live = Live { size: size.max(1), pages, span: pages + PAGE, by_kernel, is_shared: false };
        allocations.live.insert(start, live);
        allocations.allocated += pages;
        allocations.by_kernels += u64::from(by_kernel);
        Some(())
    }

    /// Frees the allocation that starts at `address`. Its pages lose access at once.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`] when no live allocation starts there.
    pub fn free(&self, address: u64) -> Result<(), MemoryError> {
        self.free_where(address, |_| true)
    }

    /// The device's `free`: of what its `malloc` gave, and nothing else. Variables, what the host allocated
    /// and the memory that it shares are not a kernel's to take away from under the host.
    pub(crate) fn free_for_kernel(&self, address: u64) -> Result<(), MemoryError> {
        self.free_where(address, |live| live.by_kernel)
    }

    fn free_where(&self, address: u64, may_free: impl FnOnce(&Live) -> bool) -> Result<(), MemoryError> {
        let mut allocations = self.allocations.write();
        let live = *allocations
            .live
            .get(&address)
            .filter(|live| may_free(live))
            .ok_or(MemoryError::NotAllocated { address })?;
        allocations.live.remove(&address);
        allocations.by_kernels -= u64::from(live.by_kernel);
        discard(address, live.span);
        allocations.allocated -= live.pages;
        if !self.host_window().contains(&address) {
            allocations.free.release(address, live.span);
        }
        Ok(())
    }

    /// The live allocation that `address` lies in, as (start, size asked for).
    pub fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        let allocations = self.allocations.read();
        let (&start, live) = allocations.live.range(..=address).next_back()?;
        (address - start < live.size).then_some((start, live.size))
    }

    /// Takes block memory for one thread of a launch; it comes back through [`Self::return_arena`].
    pub(crate) fn take_arena(&self) -> Option<Arena> {
        if let Some(arena) = self.arenas.lock().pop() {
            return Some(arena);
        }
        let mut allocations = self.allocations.write();
        let start = allocations.free.take_highest(Arena::SPAN)?;
        let writable = Arena::WRITABLE
            .iter()
            .try_for_each(|range| protect(start + range.start, range.end - range.start, READ_WRITE));
        if writable.is_err() {
            discard(start, Arena::SPAN);
            allocations.free.release(start, Arena::SPAN);
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
