//! Copy calls (`cuMemcpy*`): every form is turned into two endpoints and one call of
//! [`submit::copy::copy`](crate::submit::copy::copy).

use crate::abi::entry::Outcome;
use crate::model::{context, memory};
use crate::submit::copy::{self, Contexts, Endpoint, HostRegion, Mode, endpoints};
use crate::submit::streams::DefaultStream;
use crate::submit::{capture, device_memory, streams};
use causeway_api::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUdeviceptr, CUmemorytype, CUresult,
    CUstream,
};
use causeway_api::types::{DeviceLocation, Region};
use core::ffi::c_void;

/// What a call says about its stream and its return.
#[derive(Clone, Copy)]
pub(in crate::abi::calls) struct CopyMode {
    pub stream: CUstream,
    pub default_stream: DefaultStream,
    pub mode: Mode,
}

pub(in crate::abi::calls) fn synchronous(default_stream: DefaultStream) -> CopyMode {
    CopyMode { stream: core::ptr::null_mut(), default_stream, mode: Mode::Synchronous }
}

pub(in crate::abi::calls) fn asynchronous(stream: CUstream, default_stream: DefaultStream) -> CopyMode {
    CopyMode { stream, default_stream, mode: Mode::Asynchronous }
}

/// # Safety
/// As for [`copy::copy`].
pub(in crate::abi::calls) unsafe fn run(
    destination: Endpoint,
    source: Endpoint,
    copy_mode: CopyMode,
) -> Outcome {
    let stream = context::stream(streams::resolve(copy_mode.stream, copy_mode.default_stream)?)?;
    let is_unknown = |endpoint: &Endpoint| {
        let Endpoint::Device(DeviceLocation::Memory(region)) = endpoint else { return false };
        !device_memory::is_known(region.address)
    };
    let is_unchecked = copy_mode.mode != Mode::InGraph && (is_unknown(&destination) || is_unknown(&source));
    // SAFETY: the caller keeps the endpoints' host memory valid until the copy is done.
    unsafe { copy::copy(destination, source, &stream, copy_mode.mode) }?;
    if is_unchecked && capture::of(&stream) == 0 {
        device_memory::wait_for_server(stream.context)?;
    }
    Ok(())
}

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
    // SAFETY: the caller keeps `bytes` bytes of host memory at each place valid until the copy is done.
    unsafe { run(destination(bytes)?, source(bytes)?, copy_mode) }
}

/// An address that the program calls its own. With unified addressing the address itself decides: where it is one of a
/// device, so is this side of the copy.
pub(in crate::abi::calls) fn host(address: *mut c_void) -> impl FnOnce(usize) -> Result<Endpoint, CUresult> {
    move |bytes| {
        if address.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        if device_memory::is_of_device(address as usize) {
            return on_device(address as CUdeviceptr)(bytes);
        }
        Ok(Endpoint::Host(HostRegion::linear(address.cast(), bytes)))
    }
}

pub(in crate::abi::calls) fn on_device(
    address: CUdeviceptr,
) -> impl FnOnce(usize) -> Result<Endpoint, CUresult> {
    move |bytes| {
        device_memory::check_range(address, bytes as u64)?;
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
    // SAFETY: the program keeps `from` readable for `bytes` bytes until the copy is done.
    unsafe { linear(on_device(to), host(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyDtoH_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program keeps `to` writable for `bytes` bytes until the copy is done.
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
    // SAFETY: the program keeps `from` readable for `bytes` bytes until the copy is done.
    unsafe { linear(on_device(to), host(from), bytes, asynchronous(stream, ds)) }
}

pub unsafe fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program keeps `to` writable for `bytes` bytes until the copy is done.
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
    // SAFETY: where an address is one of the host, the program keeps `bytes` bytes there valid until the copy
    // is done.
    unsafe { linear(anywhere(to), anywhere(from), bytes, synchronous(ds)) }
}

pub unsafe fn cuMemcpyAsync(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: where an address is one of the host, the program keeps `bytes` bytes there valid until the copy
    // is done.
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

pub unsafe fn cuMemcpy2D_v2(pCopy: *const CUDA_MEMCPY2D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program passes null or a description, whose host memory stays valid until the copy is done.
    unsafe { boxed(&in_three_dimensions(pCopy)?, synchronous(ds)) }
}

pub unsafe fn cuMemcpy2DUnaligned_v2(pCopy: *const CUDA_MEMCPY2D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program passes null or a description, whose host memory stays valid until the copy is done.
    unsafe { boxed(&in_three_dimensions(pCopy)?, synchronous(ds)) }
}

pub unsafe fn cuMemcpy2DAsync_v2(
    pCopy: *const CUDA_MEMCPY2D,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program passes null or a description, whose host memory stays valid until the copy is done.
    unsafe { boxed(&in_three_dimensions(pCopy)?, asynchronous(stream, ds)) }
}

pub unsafe fn cuMemcpy3D_v2(pCopy: *const CUDA_MEMCPY3D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program passes null or a description, whose host memory stays valid until the copy is done.
    unsafe { boxed(pCopy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, synchronous(ds)) }
}

pub unsafe fn cuMemcpy3DAsync_v2(
    pCopy: *const CUDA_MEMCPY3D,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program passes null or a description, whose host memory stays valid until the copy is done.
    unsafe { boxed(pCopy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, asynchronous(stream, ds)) }
}

/// A two-dimensional copy as a three-dimensional one of one slice.
///
/// # Safety
/// `copy` is null or points to a description.
unsafe fn in_three_dimensions(copy: *const CUDA_MEMCPY2D) -> Result<CUDA_MEMCPY3D, CUresult> {
    // SAFETY: the caller passes null or a description.
    let copy = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        srcHeight: copy.Height,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        dstHeight: copy.Height,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    })
}

/// # Safety
/// The description's host memory must be valid as `cuMemcpy3D` demands.
unsafe fn boxed(copy: &CUDA_MEMCPY3D, copy_mode: CopyMode) -> Outcome {
    match endpoints(copy)? {
        // SAFETY: the caller keeps the description's host memory valid until the copy is done.
        Some((destination, source)) => unsafe { run(destination, source, copy_mode) },
        None => context::current().map(|_| ()),
    }
}

pub unsafe fn cuMemcpy3DPeer(pCopy: *const CUDA_MEMCPY3D_PEER, ds: DefaultStream) -> Outcome {
    // SAFETY: the program passes null or a description, whose host memory stays valid until the copy is done.
    unsafe { boxed_between_contexts(pCopy, synchronous(ds)) }
}

pub unsafe fn cuMemcpy3DPeerAsync(
    pCopy: *const CUDA_MEMCPY3D_PEER,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program passes null or a description, whose host memory stays valid until the copy is done.
    unsafe { boxed_between_contexts(pCopy, asynchronous(stream, ds)) }
}

/// # Safety
/// `copy` is null or describes a copy whose host memory is valid.
unsafe fn boxed_between_contexts(copy: *const CUDA_MEMCPY3D_PEER, copy_mode: CopyMode) -> Outcome {
    // SAFETY: the caller passes null or a description.
    let peer = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let contexts = Contexts {
        destination: context::resolve(peer.dstContext)?.handle,
        source: context::resolve(peer.srcContext)?.handle,
    };
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: peer.srcXInBytes,
        srcY: peer.srcY,
        srcZ: peer.srcZ,
        srcLOD: peer.srcLOD,
        srcMemoryType: peer.srcMemoryType,
        srcHost: peer.srcHost,
        srcDevice: peer.srcDevice,
        srcArray: peer.srcArray,
        srcPitch: peer.srcPitch,
        srcHeight: peer.srcHeight,
        dstXInBytes: peer.dstXInBytes,
        dstY: peer.dstY,
        dstZ: peer.dstZ,
        dstLOD: peer.dstLOD,
        dstMemoryType: peer.dstMemoryType,
        dstHost: peer.dstHost,
        dstDevice: peer.dstDevice,
        dstArray: peer.dstArray,
        dstPitch: peer.dstPitch,
        dstHeight: peer.dstHeight,
        WidthInBytes: peer.WidthInBytes,
        Height: peer.Height,
        Depth: peer.Depth,
        ..CUDA_MEMCPY3D::default()
    };
    let has_arrays = [copy.srcMemoryType, copy.dstMemoryType].contains(&CUmemorytype::CU_MEMORYTYPE_ARRAY);
    let is_of_one_server = contexts.destination.server() == contexts.source.server();
    if has_arrays
        && is_of_one_server
        && contexts.destination != contexts.source
        && let Some((Endpoint::Device(destination), Endpoint::Device(source))) = endpoints(&copy)?
    {
        let stream = context::stream(streams::resolve(copy_mode.stream, copy_mode.default_stream)?)?;
        return copy::between_contexts(destination, source, contexts, &stream, copy_mode.mode);
    }
    // Addresses say themselves on which device they are.
    // SAFETY: the caller keeps the description's host memory valid until the copy is done.
    unsafe { boxed(&copy, copy_mode) }
}
