//! Memory of this rank in a call: ranges, the buffers of a reduction, and what peers may open.

use crate::cuda::{DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::world::World;

/// A range of memory on this rank's GPU: `struct causeway_comm_range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Range {
    /// Where it begins.
    pub address: u64,
    /// Its bytes; 0 for none.
    pub bytes: u64,
}

impl Range {
    /// Whether they share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        let starts_in = |one: &Self, other: &Self| {
            one.address.checked_sub(other.address).is_some_and(|before| before < other.bytes)
        };
        self.bytes > 0 && other.bytes > 0 && (starts_in(self, other) || starts_in(other, self))
    }
}

/// This rank's memory in a call.
#[derive(Debug, Clone, Copy)]
pub struct LocalBuffer {
    /// Elements of all ranks' chunks, which all of them read.
    pub from: u64,
    /// Where results go, if some come to this rank.
    pub to: Option<u64>,
    /// Bytes of all elements; the same at all ranks.
    pub bytes: u64,
}

/// Whose results are written by all ranks, to as much memory as is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// Those of all of them.
    All,
    /// Those of one.
    Of(usize),
    /// Nobody's: each rank writes its own alone.
    NoRank,
}

impl Written {
    /// Whether those of a rank are.
    pub(super) fn has(self, rank: usize) -> bool {
        match self {
            Self::All => true,
            Self::Of(root) => rank == root,
            Self::NoRank => false,
        }
    }
}

/// The memory of a rank's call on its GPU, and that in whose context kernels use all of it.
pub(super) struct CallMemory {
    pub driver: &'static Driver,
    pub from: DeviceMemory,
    pub to: Option<DeviceMemory>,
    pub common: DeviceMemory,
}

impl CallMemory {
    /// The allocations.
    pub fn all(&self) -> impl Iterator<Item = &DeviceMemory> {
        core::iter::once(&self.from).chain(&self.to)
    }

    /// What an address is of; none where it is not on a GPU, or no context has all of it.
    pub fn of(own: &LocalBuffer) -> Option<Self> {
        let driver = Driver::loaded()?;
        let from = DeviceMemory::at(driver, own.from)?;
        let to = match own.to {
            None => None,
            Some(same) if same == own.from => Some(from),
            Some(other) => Some(DeviceMemory::at(driver, other)?),
        };
        let common = to.map_or(Some(from), |to| from.common_context(to))?;
        Some(Self { driver, from, to, common })
    }
}

/// What this rank shows, until it hides it.
#[derive(Debug)]
pub struct ExportedMemory<'a> {
    world: &'a World,
    numbers: Vec<u64>,
}

impl Drop for ExportedMemory<'_> {
    fn drop(&mut self) {
        self.numbers.iter().for_each(|number| self.world.revoke(*number));
    }
}

impl<'a> ExportedMemory<'a> {
    /// Nothing yet.
    pub fn new(world: &'a World) -> Self {
        Self { world, numbers: Vec::new() }
    }

    /// What tells a peer of a range of memory; none where it is not reached, or cannot open it.
    pub fn export(
        &mut self,
        peer: u32,
        driver: &Driver,
        memory: &DeviceMemory,
        range: Range,
    ) -> Option<Descriptor> {
        if !self.world.is_reachable(peer) {
            return None;
        }
        let (number, descriptor) = self.world.export(peer, driver, memory, range.address, range.bytes)?;
        self.numbers.push(number);
        Some(descriptor)
    }

    /// The word for a peer; none where its memory cannot be opened.
    pub(super) fn word(
        &mut self,
        peer: u32,
        driver: &Driver,
        ranges: [Option<(DeviceMemory, u64)>; 2],
        bytes: u64,
    ) -> Option<[u8; 2 * DESCRIPTOR_BYTES]> {
        let mut word = [0; 2 * DESCRIPTOR_BYTES];
        let mut before: Option<(u64, usize)> = None;
        for (at, (memory, address)) in
            ranges.into_iter().enumerate().filter_map(|(at, range)| Some((at, range?)))
        {
            let range = at * DESCRIPTOR_BYTES..(at + 1) * DESCRIPTOR_BYTES;
            match before {
                // In place.
                Some((same, first)) if same == address => {
                    let first = first * DESCRIPTOR_BYTES;
                    word.copy_within(first..first + DESCRIPTOR_BYTES, range.start);
                }
                _ => {
                    let descriptor = self.export(peer, driver, &memory, Range { address, bytes })?;
                    word[range].copy_from_slice(&descriptor.encode(self.world.job()));
                    before = Some((address, at));
                }
            }
        }
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_that_share_a_byte() {
        let range = |address, bytes| Range { address, bytes };
        for (one, other, overlap) in [
            (range(8, 8), range(8, 8), true),
            (range(8, 8), range(15, 1), true),
            (range(8, 8), range(0, 100), true),
            (range(8, 8), range(16, 8), false),
            (range(8, 0), range(0, 100), false),
            (range(8, u64::MAX), range(0, 9), true),
        ] {
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (overlap, overlap), "{one:?} {other:?}");
        }
    }
}
