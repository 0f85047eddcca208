//! Green contexts: parts of a device's multiprocessors, contexts that use only such a part, and the layout of
//! the multiprocessors, which NVIDIA's driver has only in a private table.

use core::ffi::c_void;

use causeway_api::handle::{Context, GreenContext, Native, ResourceDescription, Stream};
use causeway_api::sys::{CUdevResource, CUdevResourceType, CUdevice, CUdevice_attribute, CUresult, CUuuid};
use causeway_api::types::DeviceResource;
use causeway_gpu::CuResult;
use causeway_gpu::calls::GreenContextCalls;

use crate::context;
use crate::driver::Driver;

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

const TABLE: u128 = 0x1734dc26_800d_4745_8726_c0f1e7dd8bca;
/// Words of the table as far as it is used; word 0 is its size in bytes.
const WORDS: usize = 14;
const READ: usize = 4;
const RELEASE: usize = 13;

type Read = unsafe extern "C" fn(*mut *mut u8, *mut *mut u8) -> CUresult;
type Release = unsafe extern "C" fn(*mut u8, *mut u8) -> CUresult;

impl Driver {
    /// For each pair of multiprocessors of the current context's device, the number of its partition (GPC).
    pub(crate) fn read_layout(&self) -> CuResult<Vec<u8>> {
        let pairs = self.multiprocessor_pairs()?;
        let identifier = CUuuid { bytes: TABLE.to_be_bytes().map(|byte| byte as core::ffi::c_char) };
        let mut table: *const c_void = core::ptr::null();
        // SAFETY: room for the result, and an identifier; the driver refuses one that it does not know.
        unsafe { self.functions.cuGetExportTable((&raw mut table).cast(), &identifier)? };
        let words = table.cast::<usize>();
        // SAFETY: word 0 of the table is its size in bytes, so as many words can be read.
        if words.is_null() || unsafe { words.read() } < WORDS * size_of::<usize>() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: within the size checked above; the entries are these functions, see above.
        let (read, release) =
            unsafe { (words.add(READ).cast::<Read>().read(), words.add(RELEASE).cast::<Release>().read()) };
        let (mut layout, mut inverse) = (core::ptr::null_mut::<u8>(), core::ptr::null_mut::<u8>());
        // SAFETY: room for both results.
        let status = unsafe { read(&mut layout, &mut inverse) };
        if status != CUresult::CUDA_SUCCESS {
            return Err(status);
        }
        if layout.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        // SAFETY: the list has a byte for each pair of multiprocessors, and is the caller's until it is
        // released.
        let bytes = unsafe { core::slice::from_raw_parts(layout, pairs) }.to_vec();
        // SAFETY: both came from `read` and are not used any more.
        unsafe { release(layout, inverse) };
        Ok(bytes)
    }

    fn multiprocessor_pairs(&self) -> CuResult<usize> {
        let (mut device, mut count): (CUdevice, i32) = (0, 0);
        let attribute = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        // SAFETY: the pointers are to locals.
        unsafe {
            self.functions.cuCtxGetDevice(&mut device)?;
            self.functions.cuDeviceGetAttribute(&mut count, attribute, device)?;
        }
        Ok(count.max(0) as usize / 2)
    }
}
