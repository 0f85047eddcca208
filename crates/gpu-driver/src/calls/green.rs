//! Green contexts: parts of a device's multiprocessors, and contexts that use only such a part.

use crate::context;
use crate::driver::Driver;
use causeway_api::handle::{Context, GreenContext, Native, ResourceDescription, Stream};
use causeway_api::sys::{CUdevResource, CUdevResourceType, CUdevice, CUresult};
use causeway_api::types::DeviceResource;
use causeway_gpu::CuResult;
use causeway_gpu::calls::GreenContextCalls;

/// More parts than a device has multiprocessors.
const MAX_PARTITIONS: u32 = 4096;

impl Driver {
    /// Asks the driver for a resource and keeps it.
    fn resource(&self, ask: impl FnOnce(&mut CUdevResource) -> CuResult<()>) -> CuResult<DeviceResource> {
        let mut resource = CUdevResource::default();
        ask(&mut resource)?;
        self.resources.keep(resource)
    }
}

impl GreenContextCalls for Driver {
    fn resource_of_device(&self, device: CUdevice, kind: u32) -> CuResult<DeviceResource> {
        let kind = CUdevResourceType(kind);
        // SAFETY: the pointer is to a local.
        self.resource(|resource| unsafe { self.functions.cuDeviceGetDevResource(device, resource, kind) })
    }

    fn resource_of_context(&self, context: Native<Context>, kind: u32) -> CuResult<DeviceResource> {
        let kind = CUdevResourceType(kind);
        // SAFETY: the pointer is to a local, the handle the driver's own.
        self.resource(|resource| unsafe {
            self.functions.cuCtxGetDevResource(context.as_raw(), resource, kind)
        })
    }

    fn resource_of_green_context(&self, green: Native<GreenContext>, kind: u32) -> CuResult<DeviceResource> {
        let kind = CUdevResourceType(kind);
        // SAFETY: the pointer is to a local, the handle the driver's own.
        self.resource(|resource| unsafe {
            self.functions.cuGreenCtxGetDevResource(green.as_raw(), resource, kind)
        })
    }

    /// Splits a resource into `wanted` parts, or says for 0 how many there could be.
    fn resource_split(
        &self,
        input: u64,
        wanted: u32,
        flags: u32,
        minimum: u32,
    ) -> CuResult<(u32, Vec<DeviceResource>, DeviceResource)> {
        if wanted > MAX_PARTITIONS {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let input = self.resources.get(input)?;
        let mut parts = vec![CUdevResource::default(); wanted as usize];
        let (mut made, mut rest) = (wanted, CUdevResource::default());
        let list = if wanted == 0 { core::ptr::null_mut() } else { parts.as_mut_ptr() };
        // SAFETY: the list has room for as many parts as `made` says; all else are locals.
        unsafe {
            self.functions.cuDevSmResourceSplitByCount(list, &mut made, &input, &mut rest, flags, minimum)?;
        }
        parts.truncate(made as usize);
        let parts = parts.into_iter().map(|part| self.resources.keep(part)).collect::<CuResult<Vec<_>>>()?;
        Ok((made, parts, self.resources.keep(rest)?))
    }

    fn resource_description(&self, resources: &[u64]) -> CuResult<Native<ResourceDescription>> {
        let mut resources =
            resources.iter().map(|id| self.resources.get(*id)).collect::<CuResult<Vec<_>>>()?;
        let mut raw = core::ptr::null_mut();
        let count = resources.len() as u32;
        // SAFETY: the list has `count` resources of the driver's own making.
        unsafe { self.functions.cuDevResourceGenerateDesc(&mut raw, resources.as_mut_ptr(), count)? };
        Ok(Native::from_raw(raw))
    }

    fn green_context_create(
        &self,
        description: Native<ResourceDescription>,
        device: CUdevice,
        flags: u32,
    ) -> CuResult<(Native<GreenContext>, Native<Context>)> {
        let (mut green, mut context) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: the pointers are to locals, the handles the driver's own.
        unsafe {
            self.functions.cuGreenCtxCreate(&mut green, description.as_raw(), device, flags)?;
            if let Err(error) = self.functions.cuCtxFromGreenCtx(&mut context, green) {
                let _ = self.functions.cuGreenCtxDestroy(green);
                return Err(error);
            }
        }
        Ok((Native::from_raw(green), Native::from_raw(context)))
    }

    fn green_context_destroy(&self, green: Native<GreenContext>, context: Native<Context>) -> CuResult<()> {
        // SAFETY: the handle is the driver's own.
        self.end_context(context, || unsafe { self.functions.cuGreenCtxDestroy(green.as_raw()) })
    }

    fn green_stream_create(
        &self,
        green: Native<GreenContext>,
        flags: u32,
        priority: i32,
    ) -> CuResult<Native<Stream>> {
        let context = context::current(self.functions)?;
        let mut raw = core::ptr::null_mut();
        // SAFETY: the pointer is to a local, the handle the driver's own.
        unsafe { self.functions.cuGreenCtxStreamCreate(&mut raw, green.as_raw(), flags, priority)? };
        let stream = Native::from_raw(raw);
        self.streams.add(stream, context);
        Ok(stream)
    }
}
