//! Copies of bytes in a row.

use super::copy_mode::{CopyMode, asynchronous, run, synchronous};
use crate::abi::outcome::Outcome;
use crate::model::{context, memory};
use crate::submit::copy::{Endpoint, HostRegion};
use crate::submit::streams::DefaultStream;
use causeway_api::sys::{CUcontext, CUdeviceptr, CUresult, CUstream};
use causeway_api::types::Region;
use core::ffi::c_void;

/// # Safety
/// As for [`copy::copy`], for `bytes` bytes at each place.
pub(in crate::abi::calls) unsafe fn linear(
    destination: impl FnOnce(usize) -> Result<Endpoint, CUresult>,
    source: impl FnOnce(usize) -> Result<Endpoint, CUresult>,
    bytes: usize,
    copy_mode: CopyMode,
) -> Outcome {
    if bytes == 0 {
        context::current()?;
        return Ok(());
    }
    // SAFETY: as this function demands.
    unsafe { run(destination(bytes)?, source(bytes)?, copy_mode) }
}

pub(in crate::abi::calls) fn host(address: *mut c_void) -> impl FnOnce(usize) -> Result<Endpoint, CUresult> {
    move |bytes| {
        if address.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Endpoint::Host(HostRegion::linear(address.cast(), bytes)))
    }
}

pub(in crate::abi::calls) fn on_device(
    address: CUdeviceptr,
) -> impl FnOnce(usize) -> Result<Endpoint, CUresult> {
    move |bytes| {
        memory::check_range(address, bytes as u64)?;
        Ok(Endpoint::Device(Region::linear(address, bytes as u64).into()))
    }
}

/// An address of which only the table of device memory knows on which side it is.
pub(in crate::abi::calls) fn anywhere(
    address: CUdeviceptr,
) -> impl FnOnce(usize) -> Result<Endpoint, CUresult> {
    move |bytes| match memory::find(address) {
        Some(_) => on_device(address)(bytes),
        None => host(address as *mut c_void)(bytes),
    }
}

pub unsafe fn cuMemcpyHtoD_v2(
    to: CUdeviceptr,
    from: *mut c_void,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(on_device(to), host(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyDtoH_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(host(to), on_device(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyDtoD_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), on_device(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *mut c_void,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(on_device(to), host(from), bytes, asynchronous(stream, ds)) }
}

pub unsafe fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(host(to), on_device(from), bytes, asynchronous(stream, ds)) }
}

pub unsafe fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), on_device(from), bytes, asynchronous(stream, ds)) }
}

pub unsafe fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(anywhere(to), anywhere(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyAsync(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(anywhere(to), anywhere(from), bytes, asynchronous(stream, ds)) }
}

pub unsafe fn cuMemcpyPeer(
    to: CUdeviceptr,
    toContext: CUcontext,
    from: CUdeviceptr,
    fromContext: CUcontext,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    context::resolve(toContext)?;
    context::resolve(fromContext)?;
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), on_device(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyPeerAsync(
    to: CUdeviceptr,
    toContext: CUcontext,
    from: CUdeviceptr,
    fromContext: CUcontext,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    context::resolve(toContext)?;
    context::resolve(fromContext)?;
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), on_device(from), bytes, asynchronous(stream, ds)) }
}
