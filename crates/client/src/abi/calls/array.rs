//! Arrays and mipmapped arrays, and copies of rows between arrays, device memory and host memory.

use core::ffi::c_void;

use causeway_api::calls;
use causeway_api::handle::{Array, MipmappedArray};
use causeway_api::sys::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUdeviceptr, CUmipmappedArray, CUresult,
    CUstream,
};
use causeway_api::types::DeviceLocation;

use crate::abi::calls::copy::{asynchronous, host, linear, on_device, synchronous};
use crate::abi::entry::Outcome;
use crate::arguments::write_out;
use crate::model::handles::{self, RawHandle as _};
use crate::model::region::Endpoint;
use crate::model::{array, context};
use crate::submit::streams::DefaultStream;
use crate::submit::{array_parts, send};

pub unsafe fn cuArrayCreate_v2(
    pHandle: *mut CUarray,
    pAllocateArray: *const CUDA_ARRAY_DESCRIPTOR,
) -> Outcome {
    // SAFETY: a description, or null.
    let flat = unsafe { pAllocateArray.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: flat.Width,
        Height: flat.Height,
        Depth: 0,
        Format: flat.Format,
        NumChannels: flat.NumChannels,
        Flags: 0,
    };
    // SAFETY: room for the result, or null.
    unsafe { cuArray3DCreate_v2(pHandle, &descriptor) }
}

pub unsafe fn cuArray3DCreate_v2(
    pHandle: *mut CUarray,
    pAllocateArray: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> Outcome {
    // SAFETY: a description, or null.
    let descriptor = unsafe { pAllocateArray.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if pHandle.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = context::current()?;
    let handle = handles::create::<Array>();
    let request = calls::cuArray3DCreate_v2 { pHandle: handle, pAllocateArray: *descriptor };
    handles::or_drop(handle, send::call(&request))?;
    array::add(handle, context, *descriptor, false);
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pHandle, handle.as_raw()) }
}

pub unsafe fn cuArrayGetDescriptor_v2(out: *mut CUDA_ARRAY_DESCRIPTOR, hArray: CUarray) -> Outcome {
    let full = array::resolve(hArray)?.descriptor;
    let flat = CUDA_ARRAY_DESCRIPTOR {
        Width: full.Width,
        Height: full.Height,
        Format: full.Format,
        NumChannels: full.NumChannels,
    };
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, flat) }
}

pub unsafe fn cuArray3DGetDescriptor_v2(out: *mut CUDA_ARRAY3D_DESCRIPTOR, hArray: CUarray) -> Outcome {
    // SAFETY: room for the result, or null.
    unsafe { write_out(out, array::resolve(hArray)?.descriptor) }
}

pub unsafe fn cuArrayGetPlane(pPlaneArray: *mut CUarray, hArray: CUarray, planeIdx: u32) -> Outcome {
    if pPlaneArray.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let whole = array::resolve(hArray)?;
    let request = calls::cuArrayGetPlane { pPlaneArray: handles::create(), hArray: whole.handle, planeIdx };
    let plane = array_parts::made_of_another(whole.context, &request, request.pPlaneArray)?;
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pPlaneArray, plane.as_raw()) }
}

pub unsafe fn cuArrayDestroy(hArray: CUarray) -> Outcome {
    let array = array::take(hArray)?;
    send::call_in(array.context, &calls::cuArrayDestroy { hArray: array.handle })
}

pub unsafe fn cuMipmappedArrayCreate(
    pHandle: *mut CUmipmappedArray,
    pMipmappedArrayDesc: *const CUDA_ARRAY3D_DESCRIPTOR,
    numMipmapLevels: u32,
) -> Outcome {
    // SAFETY: a description, or null.
    let descriptor = unsafe { pMipmappedArrayDesc.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if pHandle.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = context::current()?;
    let handle = handles::create::<MipmappedArray>();
    let request =
        calls::cuMipmappedArrayCreate { pHandle: handle, pMipmappedArrayDesc: *descriptor, numMipmapLevels };
    handles::or_drop(handle, send::call(&request))?;
    array::add_mipmapped(handle, context);
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pHandle, handle.as_raw()) }
}

pub unsafe fn cuMipmappedArrayGetLevel(
    pLevelArray: *mut CUarray,
    hMipmappedArray: CUmipmappedArray,
    level: u32,
) -> Outcome {
    let mipmapped = handles::resolve::<MipmappedArray>(hMipmappedArray)?;
    if pLevelArray.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not null, so there is room for the result.
    unsafe { write_out(pLevelArray, array_parts::level(mipmapped, level)?.as_raw()) }
}

pub unsafe fn cuMipmappedArrayDestroy(hMipmappedArray: CUmipmappedArray) -> Outcome {
    let mipmapped = handles::resolve::<MipmappedArray>(hMipmappedArray)?;
    let context = array::take_mipmapped(mipmapped)?;
    send::call_in(context, &calls::cuMipmappedArrayDestroy { hMipmappedArray: mipmapped })
}

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
    // SAFETY: the program keeps `from` readable for `bytes` bytes until the copy is done.
    unsafe { linear(in_row(to, offset), host(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyAtoH_v2(
    to: *mut c_void,
    from: CUarray,
    offset: usize,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program keeps `to` writable for `bytes` bytes until the copy is done.
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
    // SAFETY: the program keeps `from` readable for `bytes` bytes until the copy is done.
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
    // SAFETY: the program keeps `to` writable for `bytes` bytes until the copy is done.
    unsafe { linear(host(to), in_row(from, offset), bytes, asynchronous(stream, ds)) }
}
