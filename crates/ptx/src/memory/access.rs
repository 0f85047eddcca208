//! Accesses of the host to device memory: only to bytes that lie in one live allocation.

use std::ptr;

use super::{Access, AddressSpace, MemoryError};

impl AddressSpace {
    /// Reads device memory into `destination`.
    ///
    /// # Errors
    /// [`MemoryError::OutsideAllocation`], and nothing is read, unless all bytes are in one live allocation.
    pub fn read(&self, address: u64, destination: &mut [u8]) -> Result<(), MemoryError> {
        let allocations = self.allocations.read();
        allocations.check(address, destination.len() as u64, Access::Read)?;
        // SAFETY: the range is inside a live allocation, which is mapped readable and stays so while the lock
        // is held.
        unsafe {
            ptr::copy_nonoverlapping(address as *const u8, destination.as_mut_ptr(), destination.len())
        };
        Ok(())
    }

    /// Writes `source` to device memory.
    ///
    /// # Errors
    /// [`MemoryError::OutsideAllocation`], and nothing is written, unless all bytes are in one live
    /// allocation.
    pub fn write(&self, address: u64, source: &[u8]) -> Result<(), MemoryError> {
        let allocations = self.allocations.read();
        allocations.check(address, source.len() as u64, Access::ReadWrite)?;
        // SAFETY: the range is inside a live allocation, which is mapped writable and stays so while the lock
        // is held.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), address as *mut u8, source.len()) };
        Ok(())
    }

    /// Fills `count` elements from `address` on with `pattern` (1, 2 or 4 bytes, as `cuMemsetD8/D16/D32` do;
    /// any length works).
    ///
    /// # Errors
    /// [`MemoryError::OutsideAllocation`], and nothing is written, unless all bytes are in one live
    /// allocation.
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
        // SAFETY: the range is inside a live allocation, which is mapped writable and stays so while the lock
        // is held.
        unsafe {
            if pattern.iter().all(|byte| *byte == pattern[0]) {
                start.write_bytes(pattern[0], size);
                return Ok(());
            }
            // What is filled already is the source of the next piece, which doubles until it is as large as a
            // cache likes.
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
    /// [`MemoryError::OutsideAllocation`], and nothing is written, unless each range is in one live
    /// allocation.
    pub fn copy(&self, destination: u64, source: u64, size: u64) -> Result<(), MemoryError> {
        let allocations = self.allocations.read();
        allocations.check(source, size, Access::Read)?;
        allocations.check(destination, size, Access::ReadWrite)?;
        // SAFETY: both ranges are inside live allocations, mapped for as long as the lock is held.
        unsafe { ptr::copy(source as *const u8, destination as *mut u8, size as usize) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
