//! Copies of rows between arrays, device memory and host memory.

use super::copy::{asynchronous, host, linear, on_device, synchronous};
use crate::abi::outcome::Outcome;
use crate::model::array;
use crate::model::region::Endpoint;
use crate::submit::streams::DefaultStream;
use causeway_api::sys::{CUarray, CUdeviceptr, CUresult, CUstream};
use causeway_api::types::DeviceLocation;
use core::ffi::c_void;

/// A part of an array's first row.
fn in_row(row: CUarray, offset: usize) -> impl FnOnce(usize) -> Result<Endpoint, CUresult> {
    move |bytes| {
        let part = array::resolve(row)?.part([offset, 0, 0], [bytes, 1, 1])?;
        Ok(Endpoint::Device(DeviceLocation::Array(part)))
    }
}

pub unsafe fn cuMemcpyDtoA_v2(
    to: CUarray,
    offset: usize,
    from: CUdeviceptr,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: no memory of the program is touched.
    unsafe { linear(in_row(to, offset), on_device(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyAtoD_v2(
    to: CUdeviceptr,
    from: CUarray,
    offset: usize,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), in_row(from, offset), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyHtoA_v2(
    to: CUarray,
    offset: usize,
    from: *mut c_void,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(in_row(to, offset), host(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyAtoH_v2(
    to: *mut c_void,
    from: CUarray,
    offset: usize,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(host(to), in_row(from, offset), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyAtoA_v2(
    to: CUarray,
    to_offset: usize,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: no memory of the program is touched.
    unsafe { linear(in_row(to, to_offset), in_row(from, from_offset), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyHtoAAsync_v2(
    to: CUarray,
    offset: usize,
    from: *mut c_void,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(in_row(to, offset), host(from), bytes, asynchronous(stream, ds)) }
}

pub unsafe fn cuMemcpyAtoHAsync_v2(
    to: *mut c_void,
    from: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(host(to), in_row(from, offset), bytes, asynchronous(stream, ds)) }
}
