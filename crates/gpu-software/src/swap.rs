//! Suspension of the device's memory: it goes to a file on the server's disk, and comes back.

use super::virtual_memory::{SwappedAllocations, VirtualMemory};
use causeway_ptx::memory::{AddressSpace, SwappedOut};
use std::fs::File;
use std::io;

/// Memory that is in a file for now.
pub(super) struct Swapped {
    file: File,
    space: SwappedOut,
    allocations: SwappedAllocations,
}

impl Swapped {
    /// Writes the device's memory to a file that is its own, and frees it.
    ///
    /// # Safety
    /// Until [`Self::bring_in`] has returned, the device's memory is not used, allocated or freed.
    ///
    /// # Errors
    /// When the file takes no more; the memory is as it was.
    pub(super) unsafe fn write_out(
        file: File,
        space: &AddressSpace,
        memory: &VirtualMemory,
    ) -> io::Result<Self> {
        let allocations = memory.write_to(&file)?;
        // SAFETY: the caller has nothing use, allocate or free the device's memory until `bring_in` has
        // returned.
        let space = unsafe { space.swap_out(&file, allocations.end()) }?;
        // Only now: what could fail has gone well.
        allocations.free();
        Ok(Self { file, space, allocations })
    }

    /// Brings the memory back.
    ///
    /// # Safety
    /// As for [`Self::write_out`], with the same `space`.
    ///
    /// # Errors
    /// When the file cannot be read; the memory's bytes are lost.
    pub(super) unsafe fn bring_in(self, space: &AddressSpace) -> io::Result<()> {
        self.allocations.read_from(&self.file)?;
        // SAFETY: the caller has nothing use, allocate or free the device's memory until this has returned,
        // and `space` is the same.
        unsafe { space.swap_in(&self.file, &self.space) }
    }
}
