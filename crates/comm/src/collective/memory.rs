//! Buffers of this rank in a reduction.

use crate::cuda::{DeviceMemory, Driver};

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
