//! Copies of two and three dimensions.

use super::copy_mode::{CopyMode, asynchronous, run, synchronous};
use crate::abi::outcome::Outcome;
use crate::model::context;
use crate::submit::copy::{self, Contexts, Endpoint, endpoints};
use crate::submit::streams;
use crate::submit::streams::DefaultStream;
use causeway_api::sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUmemorytype, CUresult, CUstream};

pub unsafe fn cuMemcpy2D_v2(pCopy: *const CUDA_MEMCPY2D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(&in_three_dimensions(pCopy)?, synchronous(ds)) }
}

pub unsafe fn cuMemcpy2DUnaligned_v2(pCopy: *const CUDA_MEMCPY2D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(&in_three_dimensions(pCopy)?, synchronous(ds)) }
}

pub unsafe fn cuMemcpy2DAsync_v2(
    pCopy: *const CUDA_MEMCPY2D,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(&in_three_dimensions(pCopy)?, asynchronous(stream, ds)) }
}

pub unsafe fn cuMemcpy3D_v2(pCopy: *const CUDA_MEMCPY3D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(pCopy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, synchronous(ds)) }
}

pub unsafe fn cuMemcpy3DAsync_v2(
    pCopy: *const CUDA_MEMCPY3D,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(pCopy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, asynchronous(stream, ds)) }
}

/// A two-dimensional copy as a three-dimensional one of one slice.
///
/// # Safety
/// `copy` is null or points to a description.
unsafe fn in_three_dimensions(copy: *const CUDA_MEMCPY2D) -> Result<CUDA_MEMCPY3D, CUresult> {
    // SAFETY: as this function demands.
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
        // SAFETY: as this function demands.
        Some((destination, source)) => unsafe { run(destination, source, copy_mode) },
        None => context::current().map(|_| ()),
    }
}

pub unsafe fn cuMemcpy3DPeer(pCopy: *const CUDA_MEMCPY3D_PEER, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed_between_contexts(pCopy, synchronous(ds)) }
}

pub unsafe fn cuMemcpy3DPeerAsync(
    pCopy: *const CUDA_MEMCPY3D_PEER,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed_between_contexts(pCopy, asynchronous(stream, ds)) }
}

/// # Safety
/// `copy` is null or describes a copy whose host memory is valid.
unsafe fn boxed_between_contexts(copy: *const CUDA_MEMCPY3D_PEER, copy_mode: CopyMode) -> Outcome {
    // SAFETY: as this function demands.
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
    // SAFETY: as this function demands.
    unsafe { boxed(&copy, copy_mode) }
}
