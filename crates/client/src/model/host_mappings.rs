//! Memory of the host at addresses that the program chose: what `cuMemMap` put there, and who may use it.
//!
//! Program and device have such memory at one address. What a mapping is made of, and how the server gets it,
//! is said in [`crate::submit::virtual_memory`].

use crate::locks::{RwLock, rank};
use causeway_api::sys::CUmemAccess_flags;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// A mapping of memory of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostMapping {
    /// Its size in bytes.
    pub size: usize,
    /// The server whose devices have it.
    pub server: usize,
    /// What the program may do with it: `CUmemAccess_flags`.
    pub host_access: u32,
    /// What a device of the server may do with it at most.
    pub device_access: u32,
}

/// Host memory that is mapped for devices at addresses of the program's.
struct Mappings {
    /// By first address.
    by_address: RwLock<rank::HostMappings, BTreeMap<usize, HostMapping>>,
    /// Whether there ever was one, so that programs without pay one load.
    any: AtomicBool,
}

static MAPPINGS: Mappings =
    Mappings { by_address: RwLock::new(BTreeMap::new()), any: AtomicBool::new(false) };

const READ_AND_WRITE: u32 = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0;

/// Notes a mapping, or what has changed about it.
pub fn note(base: usize, mapping: HostMapping) {
    MAPPINGS.any.store(true, Ordering::Relaxed);
    MAPPINGS.by_address.write().insert(base, mapping);
}

/// Forgets the mapping that begins at an address.
pub fn forget(base: usize) {
    MAPPINGS.by_address.write().remove(&base);
}

/// The mapping in which an address lies.
#[inline]
pub fn find(address: usize) -> Option<HostMapping> {
    if !MAPPINGS.any.load(Ordering::Relaxed) {
        return None;
    }
    let mappings = MAPPINGS.by_address.read();
    let (base, mapping) = mappings.range(..=address).next_back()?;
    (address - base < mapping.size).then_some(*mapping)
}

/// Whether devices of a server may read and write all addresses from `start` to before `end`: mappings
/// without a gap.
pub fn is_devices(server: usize, start: usize, end: usize) -> bool {
    if !MAPPINGS.any.load(Ordering::Relaxed) {
        return false;
    }
    let mappings = MAPPINGS.by_address.read();
    let mut next = start;
    while let Some((base, mapping)) = mappings.range(..=next).next_back() {
        let is_open = mapping.device_access == READ_AND_WRITE && mapping.server == server;
        if !is_open || next - base >= mapping.size {
            return false;
        }
        next = base + mapping.size;
        if next >= end {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_mappings_with_access_are_one_range() {
        const BASE: usize = 0x7300_0000_0000;
        const SIZE: usize = 0x1000;
        let open = HostMapping { size: SIZE, server: 0, host_access: 0, device_access: READ_AND_WRITE };
        note(BASE, open);
        note(BASE + SIZE, open);
        note(BASE + 2 * SIZE, HostMapping { device_access: 0, ..open });
        assert!(is_devices(0, BASE, BASE + 2 * SIZE) && is_devices(0, BASE + SIZE - 1, BASE + SIZE + 1));
        assert!(!is_devices(0, BASE, BASE + 2 * SIZE + 1) && !is_devices(1, BASE, BASE + 1));
        assert!(!is_devices(0, BASE - 1, BASE + 1));
        forget(BASE + SIZE);
        assert!(!is_devices(0, BASE, BASE + SIZE + 1));
        assert_eq!(find(BASE + SIZE - 1), Some(open));
        assert_eq!(find(BASE + SIZE), None);
        forget(BASE);
        forget(BASE + 2 * SIZE);
    }
}
