//! Contexts: making and ending them.

use crate::context::{self, current, ended, set};
use crate::driver::Driver;
use causeway_api::handle::{Context, Native};
use causeway_api::sys::{CUdevice, CUlimit};
use causeway_gpu::CuResult;
use causeway_gpu::calls::ContextCalls;

impl ContextCalls for Driver {
    causeway_api_macros::driver_calls!(context);

    fn primary_context_retain(&self, device: CUdevice, flags: u32) -> CuResult<Native<Context>> {
        if flags != 0 {
            // SAFETY: no pointers.
            unsafe { self.functions.cuDevicePrimaryCtxSetFlags_v2(device, flags)? };
        }
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuDevicePrimaryCtxRetain(&mut raw, device)? };
        let context = Native::from_raw(raw);
        self.contexts.retain_primary(device, context);
        Ok(context)
    }

    /// Gives back one use of a primary context; the last one ends it, and may block for its work.
    fn primary_context_release(&self, _context: Native<Context>, device: CUdevice) -> CuResult<()> {
        let ended = self.contexts.release_primary(device)?;
        // SAFETY: no pointers.
        let release = || unsafe { self.functions.cuDevicePrimaryCtxRelease_v2(device) };
        match ended {
            Some(context) => self.end_context(context, release),
            None => release(),
        }
    }

    fn context_create(&self, device: CUdevice, flags: u32) -> CuResult<Native<Context>> {
        let before = current(self.functions)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCtxCreate_v2(&mut raw, flags, device)? };
        let context = Native::from_raw(raw);
        self.contexts.add(context);
        // The driver has put the new context on top of the thread's stack: it must not stay there.
        let mut popped = core::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCtxPopCurrent_v2(&mut popped)? };
        context::forget_current();
        set(self.functions, before)?;
        Ok(context)
    }

    fn context_layout(&self) -> CuResult<Vec<u8>> {
        self.read_layout()
    }

    fn context_limit_get(&self, limit: CUlimit) -> CuResult<usize> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        unsafe { self.functions.cuCtxGetLimit(&mut value, limit)? };
        Ok(value)
    }

    fn context_limit_set(&self, limit: CUlimit, value: usize) -> CuResult<()> {
        // SAFETY: no pointers.
        unsafe { self.functions.cuCtxSetLimit(limit, value) }
    }
}

impl Driver {
    pub(crate) fn primary_reset(&self, device: CUdevice) -> CuResult<()> {
        let context = self.contexts.reset_primary(device);
        // SAFETY: no pointers.
        let reset = || unsafe { self.functions.cuDevicePrimaryCtxReset_v2(device) };
        match context {
            Some(context) => self.end_context(context, reset),
            None => {
                let result = reset();
                ended();
                result
            }
        }
    }

    pub(crate) fn destroy_context(&self, context: Native<Context>) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        self.end_context(context, || unsafe { self.functions.cuCtxDestroy_v2(context.as_raw()) })
    }

    /// Ends `context` by `end`, and all that ends with it. Its completions come before, since a stream that
    /// `end` waits for may stop until one has come; the memory that they would free is kept until the device
    /// has stopped.
    pub(crate) fn end_context(
        &self,
        context: Native<Context>,
        end: impl FnOnce() -> CuResult<()>,
    ) -> CuResult<()> {
        let _ending = self.set_aside.end_context();
        self.waits.abandon(context);
        self.staging.forget(context);
        self.registrations.forget(context);
        self.gates.forget(context);
        self.streams.forget(context);
        self.textures.forget(context);
        self.contexts.remove(context);
        let result = end();
        ended();
        result
    }
}
