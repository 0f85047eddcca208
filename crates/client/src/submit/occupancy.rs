//! Occupancy: how many blocks of a function a multiprocessor holds, as the server says; replies are cached.

use crate::locks::{Mutex, rank};
use crate::submit::module::FunctionState;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::handle::{Context, Function, Handle};
use causeway_api::sys::{CUdevice, CUfunction_attribute, CUresult};
use std::collections::HashMap;
use std::sync::LazyLock;

/// What decides about the occupancy: context, function, threads of a block, dynamic shared memory, flags, and
/// the two attributes of the function that a program can change.
pub type Key = (Handle<Context>, Handle<Function>, i32, usize, u32, [Option<i32>; 2]);

/// Replies so far. The search for the best block size asks for the same ones at every size of a problem, and
/// libraries ask for the same few launches again and again.
static RESULTS: LazyLock<Mutex<rank::OccupancyResults, HashMap<Key, i32>>> = LazyLock::new(Mutex::default);

/// How many blocks a multiprocessor of the current context's device holds.
pub fn blocks(key: Key) -> Result<i32, CUresult> {
    let known = RESULTS.lock().get(&key).copied();
    if let Some(blocks) = known {
        return Ok(blocks);
    }
    let (_, func, threads, shared_bytes, flags, _) = key;
    let request = calls::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags {
        func,
        blockSize: threads,
        dynamicSMemSize: shared_bytes,
        flags,
    };
    let blocks = send::call(&request)?;
    RESULTS.lock().insert(key, blocks);
    Ok(blocks)
}

/// The attributes of a function that a program can change and that the occupancy on a device depends on.
pub fn changeable(function: &FunctionState, device: CUdevice) -> [Option<i32>; 2] {
    [
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    ]
    .map(|attribute| function.attribute(attribute, device))
}
