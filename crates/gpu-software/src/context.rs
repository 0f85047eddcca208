//! One context: its device, its limits, and the error that ended it.

use super::handles;
use crate::handles::StreamId;
use causeway_api::sys::{CUdevice, CUlimit, CUresult};
use causeway_gpu::CuResult;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Names a context; never used again in this process.
pub(super) type ContextId = u64;

/// The most bytes of local memory that a thread of a GPU can have (CUDA C++ Programming Guide, technical specifications).
const MAX_STACK_BYTES: usize = 512 << 10;

/// Bytes of local memory of a thread, of the buffer for `printf` and of the heap of `malloc`, as CUDA has
/// them at first, and bytes that one miss brings into the cache.
const DEFAULT_LIMITS: [(CUlimit, usize); 4] = [
    (CUlimit::CU_LIMIT_STACK_SIZE, 1024),
    (CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, 1 << 20),
    (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 8 << 20),
    (CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY, 64),
];

/// One context.
pub(super) struct Context {
    pub(super) id: ContextId,
    /// The number of its device.
    pub(super) device: CUdevice,
    /// The legacy default stream.
    pub(super) legacy: StreamId,
    /// The `CUresult` that ended it, or 0.
    failure: AtomicU32,
    closed: AtomicBool,
    limits: Mutex<[(CUlimit, usize); 4]>,
}

impl Context {
    /// A context of a device. Its legacy default stream has a name, and is not there yet.
    pub(super) fn new(device: CUdevice) -> Self {
        Self {
            id: handles::next(),
            device,
            legacy: handles::next(),
            failure: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            limits: Mutex::new(DEFAULT_LIMITS),
        }
    }

    /// Has all further calls in it refused.
    pub(super) fn close(&self) {
        self.closed.store(true, Relaxed);
    }

    /// Whether calls in this context can still succeed; after a fault every call gets the fault's error.
    pub(super) fn check(&self) -> CuResult<()> {
        if self.closed.load(Relaxed) {
            return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        self.outcome()
    }

    /// The fault that ended the context, if one did.
    pub(super) fn outcome(&self) -> CuResult<()> {
        match self.failure.load(Relaxed) {
            0 => Ok(()),
            error => Err(CUresult(error)),
        }
    }

    /// Ends the context with an error; the first one stays.
    pub(super) fn fail(&self, error: CUresult) {
        let _ = self.failure.compare_exchange(0, error.0, Relaxed, Relaxed);
    }

    /// The value of a limit.
    pub(super) fn limit(&self, limit: CUlimit) -> CuResult<usize> {
        let limits = self.limits.lock();
        let found = limits.iter().find(|(number, _)| *number == limit);
        found.map(|(_, value)| *value).ok_or(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)
    }

    /// Sets a limit. All of them are least sizes, and this device takes what kernels need anyway.
    pub(super) fn set_limit(&self, limit: CUlimit, value: usize) -> CuResult<()> {
        if limit == CUlimit::CU_LIMIT_STACK_SIZE && value > MAX_STACK_BYTES {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let mut limits = self.limits.lock();
        let found = limits.iter_mut().find(|(number, _)| *number == limit);
        found.ok_or(CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT)?.1 = value;
        Ok(())
    }
}
