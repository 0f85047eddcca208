//! Contexts, and what is set for them.

use crate::SoftwareGpu;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{CUctx_flags, CUdevice, CUfunc_cache, CUlimit, CUresult, CUsharedconfig};
use causeway_gpu::CuResult;
use causeway_gpu::calls::ContextCalls;

impl ContextCalls for SoftwareGpu {
    // Hints about caches and how threads wait: there is nothing that they could change.

    fn cuCtxSetCacheConfig(&self, _config: CUfunc_cache) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    fn cuCtxResetPersistingL2Cache(&self) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    fn cuCtxSetSharedMemConfig(&self, _config: CUsharedconfig) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    fn cuCtxSetFlags(&self, _flags: u32) -> CuResult<()> {
        // They say how a thread of the program waits, and what a device of its own would do for host memory.
        self.contexts.current().map(drop)
    }

    fn primary_context_retain(&self, device: CUdevice, _flags: u32) -> CuResult<Native<Context>> {
        self.check_device(device)?;
        Ok(Native::from_value(self.contexts.retain_primary(&self.scheduler, device).id))
    }

    fn primary_context_release(&self, context: Native<Context>, device: CUdevice) -> CuResult<()> {
        self.check_device(device)?;
        if let Some(context) = self.contexts.release_primary(device, context)? {
            self.tear_down(&context);
        }
        Ok(())
    }

    fn context_create(&self, device: CUdevice, flags: u32) -> CuResult<Native<Context>> {
        self.check_device(device)?;
        if flags & !CUctx_flags::CU_CTX_FLAGS_MASK.0 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Native::from_value(self.contexts.create(&self.scheduler, device).id))
    }

    fn context_limit_get(&self, limit: CUlimit) -> CuResult<usize> {
        self.contexts.current()?.limit(limit)
    }

    fn context_limit_set(&self, limit: CUlimit, value: usize) -> CuResult<()> {
        self.contexts.current()?.set_limit(limit, value)
    }

    // All devices share their memory, so there is nothing to enable; the client keeps count of it.

    fn cuCtxEnablePeerAccess(&self, _peer: Native<Context>, _flags: u32) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    fn cuCtxDisablePeerAccess(&self, _peer: Native<Context>) -> CuResult<()> {
        self.contexts.current().map(drop)
    }
}
