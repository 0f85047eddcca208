//! Imported memory of other processes, and its device.
//!
//! It lies on the other rank's device and belongs to no context, so that the driver names that device, which may not
//! use it by this process's address: the mapping is for the device of this rank.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// From where on memory is mapped, how many bytes of it, and for which device.
type Imported = BTreeMap<u64, (usize, i32)>;

fn imported() -> MutexGuard<'static, Imported> {
    static IMPORTED: Mutex<Imported> = Mutex::new(BTreeMap::new());
    IMPORTED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory has been mapped for a device.
pub fn note(address: u64, bytes: usize, device: i32) {
    imported().insert(address, (bytes, device));
}

/// Memory is about to be unmapped; nothing where none was noted.
pub fn forget(address: u64) {
    imported().remove(&address);
}

/// The device for which the memory is mapped in which an address lies, if that is another process's.
pub fn device_for(address: u64) -> Option<i32> {
    let imported = imported();
    let (start, (bytes, device)) = imported.range(..=address).next_back()?;
    (address - start < *bytes as u64).then_some(*device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_others_has_the_device_that_it_is_mapped_for() {
        let start = 0x7fff_0000_0000;
        note(start, 0x2000, 3);
        assert_eq!(
            [start - 1, start, start + 0x1fff, start + 0x2000].map(device_for),
            [None, Some(3), Some(3), None]
        );
        forget(start);
        assert_eq!(device_for(start), None);
    }
}
