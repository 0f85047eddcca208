//! Residency of blocks that wait for each other. Pure.
//!
//! A block that has not begun sends nothing, and begins when another one has ended: where that one waits for
//! it, both wait for ever.

use thiserror::Error;

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
        "{grids} grids of {blocks} blocks were to wait for each other on one GPU, which runs {capacity} of them \
         at a time: launch fewer, or smaller ones"
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
        "grids of {0} blocks were to wait for each other on a GPU that does not run the blocks of a grid at \
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
