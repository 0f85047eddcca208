//! The part of an address space where the caller decides which memory is at which addresses.
//!
//! Memory comes as a file descriptor, so that another process's device can map the same bytes. A mapping has
//! no access until it is given some; neighbouring mappings are one range to copies, as they are to kernels.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::mapping::{Access, Mapping};
use super::pages::{READ_WRITE, discard, protect};
use super::sizes::PAGE;
use super::{AddressSpace, Allocations, MemoryError, OutOfMemory};

impl AddressSpace {
    /// The range of addresses whose use is decided outside: first address and size. It ends before
    /// [`Self::host_window`], which is for memory that the host shares.
    pub fn device_window(&self) -> (u64, u64) {
        /// Addresses without access behind it.
        const GAP: u64 = 2 << 20;
        let (margin, size) = self.margin();
        (margin + size, self.reserved / 4 - size - GAP)
    }

    /// Memory in front of the device window that belongs to nobody: first address and size. On NVIDIA's GPUs
    /// what lies before the first allocation is the driver's and can be read and written (64 MiB and more on
    /// an H100), so that kernels which read a little before an array do so unnoticed.
    pub(super) fn margin(&self) -> (u64, u64) {
        (self.base + self.reserved / 4, 2 << 20)
    }

    /// Counts `size` bytes of memory that is made for the window as allocated.
    ///
    /// # Errors
    /// [`OutOfMemory`] when the capacity is used up.
    pub fn charge(&self, size: u64) -> Result<(), OutOfMemory> {
        let mut allocations = self.allocations.write();
        let allocated = allocations.allocated;
        if size > self.capacity.saturating_sub(allocated) {
            return Err(OutOfMemory { requested: size, allocated, capacity: self.capacity });
        }
        allocations.allocated += size;
        Ok(())
    }

    /// Undoes [`Self::charge`].
    pub fn discharge(&self, size: u64) {
        let mut allocations = self.allocations.write();
        allocations.allocated = allocations.allocated.saturating_sub(size);
    }

    /// Maps `size` bytes of `memory` from `offset` on at `address`, without access.
    ///
    /// # Errors
    /// [`MemoryError::NotInWindow`] when the range is not a free part of the window in whole pages, and
    /// [`MemoryError::Refused`] when the system does not map it.
    pub fn map(
        &self,
        address: u64,
        size: u64,
        memory: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<(), MemoryError> {
        let (window, length) = self.device_window();
        let end = address.checked_add(size).ok_or(MemoryError::NotInWindow { address, size })?;
        let mut allocations = self.allocations.write();
        let is_aligned = [address, size, offset].iter().all(|value| value.is_multiple_of(PAGE)) && size > 0;
        if !is_aligned
            || address < window
            || end > window + length
            || allocations.overlaps_mapping(address, end)
        {
            return Err(MemoryError::NotInWindow { address, size });
        }
        let offset = libc::off_t::try_from(offset).map_err(|_| MemoryError::Refused { address })?;
        // SAFETY: the range lies in the window of this space's own reservation, whole pages of it, and
        // nothing is mapped there yet.
        let mapped = unsafe {
            libc::mmap(
                address as *mut libc::c_void,
                size as usize,
                libc::PROT_NONE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_NORESERVE,
                memory.as_raw_fd(),
                offset,
            )
        };
        if mapped == libc::MAP_FAILED {
            discard(address, size);
            return Err(MemoryError::Refused { address });
        }
        allocations.mapped.insert(address, Mapping { size, access: Access::None });
        Ok(())
    }

    /// Takes away the mappings that fill this range.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`], and nothing is changed, unless whole mappings fill the range.
    pub fn unmap(&self, address: u64, size: u64) -> Result<(), MemoryError> {
        let mut allocations = self.allocations.write();
        let mappings = allocations.mappings_of(address, size)?;
        for start in mappings {
            allocations.mapped.remove(&start);
        }
        discard(address, size);
        Ok(())
    }

    /// Sets what may be done in the mappings that fill this range.
    ///
    /// # Errors
    /// [`MemoryError::NotAllocated`] unless whole mappings fill the range, and [`MemoryError::Refused`] when
    /// the system refuses the change.
    pub fn set_access(&self, address: u64, size: u64, access: Access) -> Result<(), MemoryError> {
        let mut allocations = self.allocations.write();
        let mappings = allocations.mappings_of(address, size)?;
        let flags = match access {
            Access::None => libc::PROT_NONE,
            Access::Read => libc::PROT_READ,
            Access::ReadWrite => READ_WRITE,
        };
        for start in mappings {
            let Some(mapping) = allocations.mapped.get_mut(&start) else { continue };
            protect(start, mapping.size, flags).map_err(|_| MemoryError::Refused { address: start })?;
            mapping.access = access;
        }
        Ok(())
    }

    /// Whether `size` bytes from `address` on may be copied now: they lie in one live allocation, or in
    /// neighbouring mappings that may be read.
    pub fn covers(&self, address: u64, size: u64) -> bool {
        self.allocations.read().check(address, size, Access::Read).is_ok()
    }
}

impl Allocations {
    fn overlaps_mapping(&self, start: u64, end: u64) -> bool {
        self.mapped.range(..end).next_back().is_some_and(|(base, mapping)| base + mapping.size > start)
    }

    /// Where the mappings begin that fill the range exactly.
    fn mappings_of(&self, address: u64, size: u64) -> Result<Vec<u64>, MemoryError> {
        let wrong = MemoryError::NotAllocated { address };
        let end = address.checked_add(size).ok_or(wrong.clone())?;
        let (mut starts, mut next) = (Vec::new(), address);
        while next < end {
            let mapping = self.mapped.get(&next).ok_or(wrong.clone())?;
            starts.push(next);
            next += mapping.size;
        }
        if next == end && size > 0 { Ok(starts) } else { Err(wrong) }
    }

    /// Whether neighbouring mappings with at least this access hold the range.
    pub(super) fn is_mapped(&self, address: u64, size: u64, access: Access) -> bool {
        let (mut next, mut left) = (address, size);
        while left > 0 {
            let Some((base, mapping)) = self.mapped.range(..=next).next_back() else { return false };
            let offset = next - base;
            if offset >= mapping.size || mapping.access < access {
                return false;
            }
            let part = left.min(mapping.size - offset);
            (next, left) = (next + part, left - part);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    fn memory(size: u64) -> OwnedFd {
        // SAFETY: plain system calls; the descriptor is new and owned by nobody else.
        unsafe {
            let descriptor = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(descriptor >= 0 && libc::ftruncate(descriptor, size as libc::off_t) == 0);
            OwnedFd::from_raw_fd(descriptor)
        }
    }

    #[test]
    fn neighbouring_mappings_are_one_range_and_access_is_needed() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let (window, _) = space.device_window();
        let memory = memory(2 * PAGE);
        space.map(window, PAGE, memory.as_fd(), PAGE).unwrap();
        space.map(window + PAGE, PAGE, memory.as_fd(), 0).unwrap();
        assert!(space.map(window + PAGE, PAGE, memory.as_fd(), 0).is_err());
        assert!(space.write(window, &[1]).is_err() && !space.covers(window, 1));
        space.set_access(window, 2 * PAGE, Access::ReadWrite).unwrap();
        space.fill(window + 8, &[7], 2 * PAGE - 8).unwrap();
        assert!(space.covers(window, 2 * PAGE) && !space.covers(window, 2 * PAGE + 1));
        space.set_access(window, PAGE, Access::Read).unwrap();
        assert!(space.covers(window, 8) && space.write(window, &[1]).is_err());
        assert!(space.unmap(window + 1, PAGE).is_err() && space.unmap(window, PAGE / 2).is_err());
        space.unmap(window, 2 * PAGE).unwrap();
        assert!(!space.covers(window, 1));
    }

    #[test]
    fn the_same_memory_at_two_addresses_has_the_same_bytes() {
        let space = AddressSpace::new(1 << 20).unwrap();
        let (window, length) = space.device_window();
        let memory = memory(PAGE);
        for address in [window, window + length - PAGE] {
            space.map(address, PAGE, memory.as_fd(), 0).unwrap();
            space.set_access(address, PAGE, Access::ReadWrite).unwrap();
        }
        space.write(window, &[42]).unwrap();
        let mut byte = [0];
        space.read(window + length - PAGE, &mut byte).unwrap();
        assert_eq!(byte, [42]);
        assert!(space.map(window + length, PAGE, memory.as_fd(), 0).is_err());
        assert!(space.map(window - PAGE, PAGE, memory.as_fd(), 0).is_err());
    }

    #[test]
    fn made_memory_counts() {
        let space = AddressSpace::new(4 * PAGE).unwrap();
        space.charge(3 * PAGE).unwrap();
        assert!(space.charge(2 * PAGE).is_err() && space.allocate(2 * PAGE, 1).is_err());
        space.discharge(3 * PAGE);
        assert_eq!(space.allocated(), 0);
    }
}
