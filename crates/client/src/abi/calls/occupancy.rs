//! The block size with the best occupancy, found by asking for the occupancy of each.

use crate::abi::entry::Outcome;
use crate::arguments::write_out;
use crate::locks::{Mutex, rank};
use crate::model::context;
use crate::submit::occupancy::{self, changeable};
use crate::submit::{launch, module, send};
use causeway_api::calls;
use causeway_api::handle::{Context, Function, Handle};
use causeway_api::sys::{
    CUdevice_attribute, CUfunction, CUfunction_attribute, CUlaunchConfig, CUoccupancyB2DSize, CUresult,
};
use causeway_api::types::{ClusterRules, LaunchAttribute, LaunchShape};
use std::collections::HashMap;
use std::sync::LazyLock;

/// Replies so far about clusters.
static CLUSTERS: LazyLock<Mutex<rank::OccupancyResults, HashMap<ClustersKey, i32>>> =
    LazyLock::new(Mutex::default);

/// What decides about the number of clusters, like [`occupancy::Key`].
type ClustersKey =
    (Handle<Context>, Handle<Function>, LaunchShape, Vec<LaunchAttribute>, [Option<i32>; 2], ClusterRules);

pub unsafe fn cuOccupancyMaxActiveClusters(
    numClusters: *mut i32,
    func: CUfunction,
    config: *const CUlaunchConfig,
) -> Outcome {
    // SAFETY: a configuration, or null; its list has `numAttrs` entries.
    let (shape, attributes) = unsafe { launch::configuration(config.as_ref()) }?;
    let (function, state) = module::resolve_function(func)?;
    let context = context::current_state()?;
    let (changeable, rules) = (changeable(&state, context.device), state.cluster_rules_here(context.device));
    let key = (context.handle, function, shape, attributes, changeable, rules);
    let known = CLUSTERS.lock().get(&key).copied();
    let clusters = match known {
        Some(clusters) => clusters,
        None => {
            let attributes = key.3.clone();
            let clusters = send::call(&calls::occupancy_clusters { function, shape, attributes })?;
            CLUSTERS.lock().insert(key, clusters);
            clusters
        }
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(numClusters, clusters) }
}

pub unsafe fn cuOccupancyMaxPotentialClusterSize(
    clusterSize: *mut i32,
    func: CUfunction,
    config: *const CUlaunchConfig,
) -> Outcome {
    // SAFETY: a configuration, or null; its list has `numAttrs` entries.
    let (shape, attributes) = unsafe { launch::configuration(config.as_ref()) }?;
    let (function, _) = module::resolve_function(func)?;
    let size = send::call(&calls::occupancy_cluster_size { function, shape, attributes })?;
    // SAFETY: room for the result, or null.
    unsafe { write_out(clusterSize, size) }
}

/// Answers with the number of blocks from what was answered before, or from the server.
///
/// # Safety
/// `numBlocks` is null or has room for a number.
unsafe fn write_blocks(
    numBlocks: *mut i32,
    func: CUfunction,
    blockSize: i32,
    dynamicSMemSize: usize,
    flags: u32,
) -> Outcome {
    if numBlocks.is_null() || blockSize <= 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let (function, state) = module::resolve_function(func)?;
    let context = context::current_state()?;
    let changeable = changeable(&state, context.device);
    let key = (context.handle, function, blockSize, dynamicSMemSize, flags, changeable);
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(numBlocks, occupancy::blocks(key)?) }
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    numBlocks: *mut i32,
    func: CUfunction,
    blockSize: i32,
    dynamicSMemSize: usize,
) -> Outcome {
    // SAFETY: the program has room for a number at `numBlocks`, or passes null.
    unsafe { write_blocks(numBlocks, func, blockSize, dynamicSMemSize, 0) }
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    numBlocks: *mut i32,
    func: CUfunction,
    blockSize: i32,
    dynamicSMemSize: usize,
    flags: u32,
) -> Outcome {
    // SAFETY: the program has room for a number at `numBlocks`, or passes null.
    unsafe { write_blocks(numBlocks, func, blockSize, dynamicSMemSize, flags) }
}

pub unsafe fn cuOccupancyMaxPotentialBlockSize(
    minGridSize: *mut i32,
    blockSize: *mut i32,
    func: CUfunction,
    blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
    dynamicSMemSize: usize,
    blockSizeLimit: i32,
) -> Outcome {
    // SAFETY: the program has room for both numbers, or passes null, and a function that takes a block size.
    unsafe {
        cuOccupancyMaxPotentialBlockSizeWithFlags(
            minGridSize,
            blockSize,
            func,
            blockSizeToDynamicSMemSize,
            dynamicSMemSize,
            blockSizeLimit,
            0,
        )
    }
}

pub unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    minGridSize: *mut i32,
    blockSize: *mut i32,
    func: CUfunction,
    blockSizeToDynamicSMemSize: CUoccupancyB2DSize,
    dynamicSMemSize: usize,
    blockSizeLimit: i32,
    flags: u32,
) -> Outcome {
    if minGridSize.is_null() || blockSize.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = context::current_state()?;
    let device = context.device()?;
    let (function, state) = module::resolve_function(func)?;
    let of_device = |attribute| device.attribute(attribute).ok_or(CUresult::CUDA_ERROR_UNKNOWN);
    let processors = of_device(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let warp = of_device(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?.max(1);
    let of_function =
        state.attribute(CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, context.device);
    let mut limit = device.limits.threads.min(i32::MAX as u32) as i32;
    limit = of_function.map_or(limit, |limit| limit.min(limit));
    if blockSizeLimit > 0 {
        limit = limit.min(blockSizeLimit);
    }
    let changeable = changeable(&state, context.device);
    // From the largest size down in whole warps: of sizes with equal occupancy the largest is taken.
    let (mut best, mut best_size, mut best_blocks) = (0, 0, 0);
    let sizes =
        core::iter::once(limit).chain((1..).map(|step| (limit - 1) / warp * warp - (step - 1) * warp));
    for size in sizes.take_while(|size| *size > 0) {
        let shared = match blockSizeToDynamicSMemSize {
            // SAFETY: the program gave the function to be called with block sizes.
            Some(shared_for) => unsafe { shared_for(size) },
            None => dynamicSMemSize,
        };
        let blocks = occupancy::blocks((context.handle, function, size, shared, flags, changeable))?;
        if blocks * size > best {
            (best, best_size, best_blocks) = (blocks * size, size, blocks);
        }
        // No smaller block can do better when all the threads that a processor can hold are there.
        if device
            .attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)
            .is_some_and(|threads| best >= threads)
        {
            break;
        }
    }
    // SAFETY: neither is null, so there is room for both results.
    unsafe {
        write_out(minGridSize, best_blocks * processors)?;
        write_out(blockSize, best_size)
    }
}
