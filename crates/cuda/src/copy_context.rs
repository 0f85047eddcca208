//! Copy context: one of this library's own on a device, for copies that kernels wait for.
//!
//! A thread that copies in the legacy default stream, behind work of another stream, holds its context's lock until that
//! work is done: every other copy of the context stands still meanwhile. (Driver 580 on two H200: PyTorch's `.cpu()` behind
//! a collective held up the very copy that NCCL's kernel waited for.) Copies in another context go on, at the same speed, as long as
//! copy engines carry them: what the driver would have multiprocessors do waits for the turn of the context, 2.4 ms. Those
//! are copies within a device, and copies of less than 64 KiB from the host, unless they have two rows.

use core::ffi::c_void;
use core::ptr::null_mut;
use std::collections::HashMap;

use causeway_api::sys::{CUDA_MEMCPY2D, CUmemorytype};

use super::entry_points::CudaError;
use super::functions::Driver;
use super::scope::Scope;
use crate::locks::{Mutex, rank};
use crate::lookup::check_setup_call;

/// From so many bytes on a copy from the host is a copy engine's.
const ENGINE_BYTES: usize = 64 << 10;

impl Scope<'static> {
    /// With this library's own context of a device, which is made once and stays. A driver that carries calls to a server
    /// has no such lock, and the primary context does.
    ///
    /// # Errors
    /// What the driver says: that there is no memory for a context, say.
    pub fn of_copies(driver: &'static Driver, device: i32) -> Result<Self, CudaError> {
        if Driver::is_remote() { Self::of_device(driver, device) } else { own_context(driver, device) }
    }
}

/// A scope with the context of a device.
fn own_context(driver: &'static Driver, device: i32) -> Result<Scope<'static>, CudaError> {
    static OWN: Mutex<rank::Leaf, Option<HashMap<i32, u64>>> = Mutex::new(None);
    let own = || OWN.lock();
    let known = own().get_or_insert_default().get(&device).copied();
    if let Some(context) = known {
        return Scope::of_context(driver, context);
    }
    check_setup_call("cuCtxCreate");
    let (mut context, mut popped): (*mut c_void, *mut c_void) = (null_mut(), null_mut());
    // Without the lock, which every copy takes. Of two that make one at once one stays unused.
    // SAFETY: there is room for the context, which the call makes current, and for what is popped.
    unsafe {
        driver.create_context(&raw mut context, 0, device)?;
        driver.pop_context(&raw mut popped)?;
    }
    let context = *own().get_or_insert_default().entry(device).or_insert(context as u64);
    Scope::of_context(driver, context)
}

/// Begins a copy from the host in a stream, so that a copy engine carries it.
///
/// # Safety
/// As of `cuMemcpyAsync`, in whose place it stands.
///
/// # Errors
/// What the driver says.
pub unsafe fn copy_from_host(
    driver: &Driver,
    to: u64,
    from: u64,
    bytes: usize,
    stream: u64,
) -> Result<(), CudaError> {
    let stream = stream as *mut c_void;
    if !(2..ENGINE_BYTES).contains(&bytes) || Driver::is_remote() {
        // SAFETY: the caller keeps both addresses valid for `bytes` bytes until the stream has executed the
        // copy.
        return unsafe { driver.copy_async(to, from, bytes, stream) };
    }
    let rows = |start: usize, row_bytes: usize| {
        let start = start as u64;
        // The addresses say where they are.
        let unified = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        let plane = CUDA_MEMCPY2D {
            srcMemoryType: unified,
            srcDevice: from + start,
            srcPitch: row_bytes,
            dstMemoryType: unified,
            dstDevice: to + start,
            dstPitch: row_bytes,
            WidthInBytes: row_bytes,
            Height: 2,
            ..CUDA_MEMCPY2D::default()
        };
        // SAFETY: both rows are within the range, which the caller keeps valid until the copy is done.
        unsafe { driver.copy_plane_async(&raw const plane, stream) }
    };
    rows(0, bytes / 2)?;
    // The last byte of an odd number, together with the one before.
    if bytes % 2 == 1 { rows(bytes - 2, 1) } else { Ok(()) }
}
