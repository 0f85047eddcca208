//! Managed memory of the software GPU, which is handed out as a device's own.

use causeway_gpu::{CuResult, DeviceBytes, Staging};

/// Memory that kernels reach, and this process only by copies.
pub(super) struct Managed(pub Staging);

impl DeviceBytes for Managed {
    fn read(&self, at: usize, into: &mut [u8]) -> CuResult<()> {
        assert!(at + into.len() <= self.0.len(), "the engine reads inside the memory");
        // SAFETY: the range lies in the memory. A kernel that writes there meanwhile is the program's own
        // race.
        unsafe { into.as_mut_ptr().copy_from_nonoverlapping(self.0.as_ptr().add(at), into.len()) };
        Ok(())
    }

    fn write(&self, at: usize, bytes: &[u8]) -> CuResult<()> {
        assert!(at + bytes.len() <= self.0.len(), "the engine writes inside the memory");
        // SAFETY: as above.
        unsafe { self.0.as_ptr().add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }
}
