//! How the multiprocessors of a GPU are laid out, which NVIDIA's driver tells only in a private table.
//!
//! cuBLASLt (13.1 and later) asks its driver for it to choose how thread-block clusters fill the GPU, and
//! ends the process where the table is missing. Size of the table, the two entries and their arguments were
//! seen in use on an H200 with driver 580.159.04 and cuBLASLt 13.1.0.3 (2026-11-21); nothing about them is
//! published. A driver without the table, or with a smaller one, gives no layout, with which cuBLASLt goes on
//! as well.

use crate::driver::Driver;
use causeway_api::sys::{CUdevice, CUdevice_attribute, CUresult, CUuuid};
use causeway_gpu::CuResult;
use core::ffi::c_void;

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
