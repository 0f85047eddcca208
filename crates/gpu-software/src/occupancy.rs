//! How many blocks of a kernel fit on a multiprocessor at once.
//!
//! The formula is the one of NVIDIA's occupancy calculator, with the limits that this device reports.

use super::attributes::{
    MAX_BLOCKS_PER_MULTIPROCESSOR, MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_MULTIPROCESSOR,
    REGISTERS_PER_MULTIPROCESSOR, RESERVED_SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPT_IN,
    SHARED_PER_MULTIPROCESSOR, WARP_SIZE,
};
use causeway_api::sys::CUresult;
use causeway_gpu::CuResult;

/// Registers are given out in pieces of this many to each warp.
const REGISTER_UNIT: u32 = 256;
/// Shared memory is given out in pieces of this many bytes to each block.
const SHARED_UNIT: u32 = 128;

/// What a kernel needs of a multiprocessor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Most threads that a block may have.
    pub(super) max_threads: u32,
    /// Registers of a thread.
    pub(super) registers: u32,
    /// Bytes of shared memory that the kernel declares.
    pub(super) static_shared: u32,
    /// Most bytes of dynamic shared memory that a launch may ask for.
    pub(super) max_dynamic_shared: u32,
}

/// How many blocks of `threads` threads and `dynamic` bytes of shared memory fit; 0 when not even one does.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` when `threads` is not positive.
pub(super) fn active_blocks(needs: &Needs, threads: i32, dynamic: usize) -> CuResult<i32> {
    let threads = u32::try_from(threads).ok().filter(|threads| *threads > 0);
    let threads = threads.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if threads > needs.max_threads.min(MAX_THREADS_PER_BLOCK) {
        return Ok(0);
    }
    let Some(dynamic) = u32::try_from(dynamic).ok().filter(|bytes| *bytes <= needs.max_dynamic_shared) else {
        return Ok(0);
    };
    let shared = (needs.static_shared + dynamic).next_multiple_of(SHARED_UNIT) + RESERVED_SHARED_PER_BLOCK;
    let blocks = blocks_by_threads(needs, threads).min(SHARED_PER_MULTIPROCESSOR / shared);
    Ok(blocks.cast_signed())
}

/// How many clusters of so many blocks a multiprocessor has at once, where so many single `blocks` fit: it runs all
/// blocks of a cluster itself, and one cluster always.
pub(super) fn active_clusters(blocks: u32, in_cluster: u32) -> u32 {
    if blocks == 0 { 0 } else { (blocks / in_cluster.max(1)).max(1) }
}

/// The most dynamic shared memory that a block may have when `blocks` of them are to fit.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` when so many do not fit even without, or a number is not positive.
pub(super) fn available_shared(needs: &Needs, blocks: i32, threads: i32) -> CuResult<usize> {
    let positive = |value: i32| u32::try_from(value).ok().filter(|value| *value > 0);
    let (blocks, threads) =
        positive(blocks).zip(positive(threads)).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if threads > needs.max_threads.min(MAX_THREADS_PER_BLOCK) || blocks > blocks_by_threads(needs, threads) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let each = SHARED_PER_MULTIPROCESSOR / blocks / SHARED_UNIT * SHARED_UNIT;
    let usable = each.saturating_sub(RESERVED_SHARED_PER_BLOCK).min(SHARED_PER_BLOCK_OPT_IN);
    Ok(usable.saturating_sub(needs.static_shared) as usize)
}

/// The limit that threads, warps' registers and the number of blocks set.
fn blocks_by_threads(needs: &Needs, threads: u32) -> u32 {
    let warps = threads.div_ceil(WARP_SIZE);
    let registers = (needs.registers.max(1) * WARP_SIZE).next_multiple_of(REGISTER_UNIT) * warps;
    let by_threads = MAX_THREADS_PER_MULTIPROCESSOR / (warps * WARP_SIZE);
    by_threads.min(REGISTERS_PER_MULTIPROCESSOR / registers).min(MAX_BLOCKS_PER_MULTIPROCESSOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Needs =
        Needs { max_threads: 1024, registers: 32, static_shared: 0, max_dynamic_shared: 49_152 };

    #[test]
    fn the_scarcest_resource_decides() {
        assert_eq!(active_blocks(&SMALL, 256, 0), Ok(8), "threads");
        assert_eq!(active_blocks(&SMALL, 32, 0), Ok(32), "blocks");
        assert_eq!(active_blocks(&Needs { registers: 128, ..SMALL }, 256, 0), Ok(2), "registers");
        assert_eq!(active_blocks(&Needs { static_shared: 48 << 10, ..SMALL }, 32, 0), Ok(4), "shared memory");
        assert_eq!(active_blocks(&SMALL, 1025, 0), Ok(0));
        assert_eq!(active_blocks(&SMALL, 32, 49_153), Ok(0));
        assert_eq!(active_blocks(&SMALL, 0, 0), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
    }

    #[test]
    fn shared_memory_is_divided_among_blocks() {
        assert_eq!(available_shared(&SMALL, 1, 1024), Ok(SHARED_PER_BLOCK_OPT_IN as usize));
        let each = available_shared(&SMALL, 8, 256).unwrap();
        assert_eq!(each, 233_472 / 8 / 128 * 128 - 1024);
        assert!(available_shared(&SMALL, 9, 256).is_err());
        assert!(available_shared(&SMALL, -1, 256).is_err());
    }
}
