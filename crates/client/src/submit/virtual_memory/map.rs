//! Reserved address ranges (`cuMemAddressReserve`), and the mappings there.

use super::allocation::AllocationState;
use crate::model::address::window::Window;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUdeviceptr, CUresult};
use causeway_api::types::AddressAccess;
use std::collections::BTreeMap;
use std::sync::Arc;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// An allocation at an address.
pub(super) struct Mapping {
    pub size: u64,
    pub allocation: Arc<AllocationState>,
    /// What devices may do there.
    pub access: Vec<AddressAccess>,
}

/// What the program has reserved and mapped.
pub(super) struct Map {
    /// Sizes of reserved ranges by first address, and where they come from.
    pub reserved: BTreeMap<CUdeviceptr, (u64, &'static Window)>,
    /// By first address.
    pub mappings: BTreeMap<CUdeviceptr, Mapping>,
}

impl Mapping {
    /// Notes what a device may do.
    pub fn note(&mut self, entry: AddressAccess) {
        self.access
            .retain(|other| (other.location, other.location_id) != (entry.location, entry.location_id));
        self.access.push(entry);
    }

    /// What the device may do that may do most.
    pub fn max_access(&self) -> u32 {
        self.access.iter().map(|entry| entry.flags).max().unwrap_or(0)
    }
}

impl Map {
    /// Nothing reserved.
    pub const fn new() -> Self {
        Self { reserved: BTreeMap::new(), mappings: BTreeMap::new() }
    }

    /// Whether anything is mapped from `start` to before `end`.
    pub fn overlaps_mapping(&self, start: u64, end: u64) -> bool {
        self.mappings.range(..end).next_back().is_some_and(|(base, mapping)| base + mapping.size > start)
    }

    /// The mapping in which an address lies, and where it begins.
    pub fn mapping_at(&self, address: u64) -> Option<(u64, &Mapping)> {
        let (base, mapping) = self.mappings.range(..=address).next_back()?;
        (address - base < mapping.size).then_some((*base, mapping))
    }

    /// Where the mappings begin that fill a range exactly, and where commands about them go: they must be of
    /// one server.
    pub fn mappings_of(&self, base: u64, size: u64) -> Result<(Vec<u64>, Handle<Context>), CUresult> {
        let end = base.checked_add(size).ok_or(INVALID)?;
        let nowhere = self.mappings.get(&base).ok_or(INVALID)?.allocation.nowhere;
        let (mut starts, mut next) = (Vec::new(), base);
        while next < end {
            starts.push(next);
            let mapping = self.mappings.get(&next).ok_or(INVALID)?;
            if mapping.allocation.nowhere != nowhere {
                return Err(INVALID);
            }
            next += mapping.size;
        }
        if next == end && size > 0 { Ok((starts, nowhere)) } else { Err(INVALID) }
    }
}
