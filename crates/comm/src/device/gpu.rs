//! Interface of a team to its GPU. Memory, and copies that no waiting kernel can hold up.
//!
//! Residency of blocks that wait for each other is checked before a launch.
//!
//! A block that has not begun sends nothing, and begins when another one has ended: where that one waits for
//! it, both wait for ever.

use core::any::Any;
use core::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};

use thiserror::Error;

use crate::device::choice::Copies;

/// What a GPU, or its driver, has refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{what}: {cause}")]
pub struct GpuError {
    /// What was asked for.
    pub what: String,
    /// What was said.
    pub cause: String,
}

/// Memory that lives as long as this.
pub struct Block {
    /// Where kernels find it; of memory of the host also where this process does.
    pub address: u64,
    /// Its bytes.
    pub bytes: u64,
    /// By which other processes and devices map it, where they can.
    pub descriptor: Option<OwnedFd>,
    /// What frees it.
    pub owner: Box<dyn Any + Send + Sync>,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("address", &self.address).field("bytes", &self.bytes).finish()
    }
}

/// What pages of this process are, which kernels are to use and somebody else has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPages {
    /// Memory.
    Memory,
    /// Registers of another device.
    Registers,
}

/// The GPU of a rank.
pub trait Gpu: Send + Sync {
    /// The same for two ranks on one GPU.
    fn number(&self) -> u64;

    /// Whether atomic operations of its kernels are atomic on memory of the GPU with this number, with those of all
    /// GPUs.
    fn has_atomics_on(&self, number: u64) -> bool {
        number == self.number()
    }

    /// The NUMA node of the host that the GPU is at, where there are several and threads are to be near it.
    fn node(&self) -> Option<usize> {
        None
    }

    /// Memory of the GPU, zeroed.
    ///
    /// # Errors
    /// What the driver says.
    fn device_memory(&self, bytes: u64) -> Result<Block, GpuError>;

    /// Memory of the host that kernels and this process follow each other's writes in, at one address,
    /// zeroed.
    ///
    /// # Errors
    /// When there is none: over a network for instance.
    fn host_memory(&self, bytes: u64) -> Result<Block, GpuError>;

    /// Maps memory of another process's or another device's GPU, for kernels of this one.
    ///
    /// # Errors
    /// What the driver says.
    fn import(&self, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Block, GpuError>;

    /// The same as [`Gpu::host_memory`], with a descriptor by which other processes map it.
    ///
    /// # Errors
    /// When there is none, or kernels have another address for it than this process.
    fn shared_host_memory(&self, bytes: u64) -> Result<Block, GpuError>;

    /// Maps memory of [`Gpu::shared_host_memory`] of another process, for this one and for kernels.
    ///
    /// # Errors
    /// As there, and when it is not so long.
    fn import_host(&self, descriptor: BorrowedFd<'_>, bytes: u64) -> Result<Block, GpuError>;

    /// Lets kernels use whole pages of this process that somebody else has mapped, such as a network card's
    /// library. They stay mapped as long as the block lives, whose address is that of the kernels.
    ///
    /// # Errors
    /// When it cannot be: kernels reach no such pages, or the driver refuses them.
    fn map_pages(&self, address: u64, bytes: u64, kind: HostPages) -> Result<Block, GpuError> {
        let _ = address;
        Err(GpuError {
            what: format!("{bytes} bytes of this process ({kind:?}) that kernels are to use"),
            cause: "this GPU does not map them".to_owned(),
        })
    }

    /// Whether network cards reach memory of the GPU, as far as its driver says.
    fn allows_rdma(&self) -> bool {
        false
    }

    /// The PCI address of the GPU, if it is in this host, so that a network card near it can be found.
    fn pci_address(&self) -> Option<String> {
        None
    }

    /// A dma-buf of memory of the GPU, by which another device reaches it, and where the address is in it;
    /// `None` where there is none, or the memory is the host's.
    fn dma_buf(&self, address: u64) -> Option<(OwnedFd, u64)> {
        let _ = address;
        None
    }

    /// Writes memory of the GPU, while no kernel of the team runs.
    ///
    /// # Errors
    /// What the driver says.
    fn write(&self, to: u64, bytes: &[u8]) -> Result<(), GpuError>;

    /// Reads memory of the GPU, while no kernel of the team runs.
    ///
    /// # Errors
    /// What the driver says.
    fn read(&self, from: u64, bytes: &mut [u8]) -> Result<(), GpuError>;

    /// A lane of copies of its own.
    ///
    /// # Errors
    /// What the driver says.
    fn lane(&self) -> Result<Box<dyn Lane>, GpuError>;

    /// A lane for copies between the GPU and the host alone, which no other thread's calls hold up.
    ///
    /// # Errors
    /// What the driver says.
    fn link_lane(&self) -> Result<Box<dyn Lane>, GpuError> {
        self.lane()
    }

    /// What copies of a lane cost, where that is known: it is found out once.
    ///
    /// # Errors
    /// What the driver says.
    fn copies(&self) -> Result<Option<Copies>, GpuError> {
        Ok(None)
    }

    /// Keeps for later teams what copies have turned out to cost.
    fn keep_copies(&self, copies: Copies) {
        let _ = copies;
    }
}

/// Copies in order, none of which is waited for. No call waits for a kernel.
pub trait Lane: Send {
    /// To be called first by the thread that has the lane.
    fn enter(&mut self) {}

    /// Copies between memory of GPUs, or of a GPU and the host.
    ///
    /// # Errors
    /// What the driver says.
    fn copy(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError>;

    /// The same from memory of the host, which a lane [of links](Gpu::link_lane) does by copy engines alone.
    ///
    /// # Errors
    /// What the driver says.
    fn copy_from_host(&mut self, to: u64, from: u64, bytes: u64) -> Result<(), GpuError> {
        self.copy(to, from, bytes)
    }

    /// Writes a word of a GPU's memory after the copies before it.
    ///
    /// # Errors
    /// What the driver says.
    fn set(&mut self, to: u64, value: u64) -> Result<(), GpuError>;

    /// A mark behind all so far. Marks count up from 1.
    ///
    /// # Errors
    /// What the driver says.
    fn mark(&mut self) -> Result<u64, GpuError>;

    /// The last mark that everything before is done of.
    fn done(&self) -> u64;
}

/// What of a kernel a GPU runs at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// So many blocks, of all grids together.
    Blocks(u32),
    /// A block of each grid, and no more for sure: the software GPU.
    OneBlockOfEachGrid,
}

/// Grids that would wait for ever.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ResidencyError {
    /// More blocks than there is room for.
    #[error(
        "{grids} grids of {blocks} blocks would wait for each other on one GPU, which can run {capacity} of \
         them at a time: launch fewer, or smaller ones"
    )]
    Capacity {
        /// Grids on the GPU.
        grids: u32,
        /// Blocks of each.
        blocks: u32,
        /// How many run.
        capacity: u32,
    },
    /// A GPU that does not run the blocks of a grid at the same time.
    #[error(
        "grids of {0} blocks would wait for each other on a GPU that does not run the blocks of a grid at \
         the same time: launch one block for each rank"
    )]
    OneByOne(u32),
}

impl Residency {
    /// Whether so many grids of so many blocks may wait for each other.
    ///
    /// # Errors
    /// When they may not.
    pub fn check(self, grids: u32, blocks: u32) -> Result<(), ResidencyError> {
        match self {
            Self::Blocks(capacity) if u64::from(grids) * u64::from(blocks) > u64::from(capacity) => {
                Err(ResidencyError::Capacity { grids, blocks, capacity })
            }
            Self::OneBlockOfEachGrid if blocks > 1 => Err(ResidencyError::OneByOne(blocks)),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_blocks_need_room_together() {
        assert_eq!(Residency::Blocks(264).check(2, 132), Ok(()));
        let capacity = ResidencyError::Capacity { grids: 2, blocks: 133, capacity: 264 };
        assert_eq!(Residency::Blocks(264).check(2, 133), Err(capacity));
        assert!(Residency::Blocks(u32::MAX).check(u32::MAX, u32::MAX).is_err());
        assert_eq!(Residency::OneBlockOfEachGrid.check(64, 1), Ok(()));
        assert_eq!(Residency::OneBlockOfEachGrid.check(1, 2), Err(ResidencyError::OneByOne(2)));
    }
}
