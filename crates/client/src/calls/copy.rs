//! Copies: every form is turned into two places and one call of [`copy::copy`].

use super::Outcome;
use crate::copy::{self, HostRegion, Mode, Place};
use crate::entry::DefaultStream;
use crate::{array, context, handles, memory, session, stream};
use causeway_api::calls;
use causeway_api::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdeviceptr, CUmemorytype,
    CUresult, CUstream,
};
use causeway_api::types::{DevicePlace, Region};
use core::ffi::c_void;

/// What a call says about its stream and its return.
#[derive(Clone, Copy)]
pub(super) struct When {
    pub stream: CUstream,
    pub default_stream: DefaultStream,
    pub mode: Mode,
}

pub(super) fn now(default_stream: DefaultStream) -> When {
    When { stream: core::ptr::null_mut(), default_stream, mode: Mode::Synchronous }
}

pub(super) fn later(stream: CUstream, default_stream: DefaultStream) -> When {
    When { stream, default_stream, mode: Mode::Asynchronous }
}

/// # Safety
/// As for [`copy::copy`].
pub(super) unsafe fn run(destination: Place, source: Place, when: When) -> Outcome {
    let stream = stream::state(handles::stream(when.stream, when.default_stream)?)?;
    // SAFETY: as this function demands.
    unsafe { copy::copy(destination, source, &stream, when.mode) }
}

/// # Safety
/// As for [`copy::copy`], for `bytes` bytes at each place.
pub(super) unsafe fn linear(
    destination: impl FnOnce(usize) -> Result<Place, CUresult>,
    source: impl FnOnce(usize) -> Result<Place, CUresult>,
    bytes: usize,
    when: When,
) -> Outcome {
    if bytes == 0 {
        context::current()?;
        return Ok(());
    }
    // SAFETY: as this function demands.
    unsafe { run(destination(bytes)?, source(bytes)?, when) }
}

pub(super) fn host(address: *mut c_void) -> impl FnOnce(usize) -> Result<Place, CUresult> {
    move |bytes| {
        if address.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Place::Host(HostRegion::linear(address.cast(), bytes)))
    }
}

pub(super) fn on_device(address: CUdeviceptr) -> impl FnOnce(usize) -> Result<Place, CUresult> {
    move |bytes| {
        memory::check_range(address, bytes as u64)?;
        Ok(Place::Device(Region::linear(address, bytes as u64).into()))
    }
}

/// An address of which only the table of device memory knows on which side it is.
pub(super) fn anywhere(address: CUdeviceptr) -> impl FnOnce(usize) -> Result<Place, CUresult> {
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
    unsafe { linear(on_device(to), host(from), bytes, now(ds)) }
}

pub unsafe fn cuMemcpyDtoH_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(host(to), on_device(from), bytes, now(ds)) }
}

pub unsafe fn cuMemcpyDtoD_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), on_device(from), bytes, now(ds)) }
}

pub unsafe fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *mut c_void,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(on_device(to), host(from), bytes, later(stream, ds)) }
}

pub unsafe fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(host(to), on_device(from), bytes, later(stream, ds)) }
}

pub unsafe fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), on_device(from), bytes, later(stream, ds)) }
}

pub unsafe fn cuMemcpy(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(anywhere(to), anywhere(from), bytes, now(ds)) }
}

pub unsafe fn cuMemcpyAsync(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { linear(anywhere(to), anywhere(from), bytes, later(stream, ds)) }
}

pub unsafe fn cuMemcpyPeer(
    to: CUdeviceptr,
    toContext: CUcontext,
    from: CUdeviceptr,
    fromContext: CUcontext,
    bytes: usize,
    ds: DefaultStream,
) -> Outcome {
    context::given(toContext)?;
    context::given(fromContext)?;
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), on_device(from), bytes, now(ds)) }
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
    context::given(toContext)?;
    context::given(fromContext)?;
    // SAFETY: no memory of the program is touched.
    unsafe { linear(on_device(to), on_device(from), bytes, later(stream, ds)) }
}

pub unsafe fn cuMemcpy2D_v2(pCopy: *const CUDA_MEMCPY2D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(&in_three_dimensions(pCopy)?, now(ds)) }
}

pub unsafe fn cuMemcpy2DUnaligned_v2(pCopy: *const CUDA_MEMCPY2D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(&in_three_dimensions(pCopy)?, now(ds)) }
}

pub unsafe fn cuMemcpy2DAsync_v2(
    pCopy: *const CUDA_MEMCPY2D,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(&in_three_dimensions(pCopy)?, later(stream, ds)) }
}

pub unsafe fn cuMemcpy3D_v2(pCopy: *const CUDA_MEMCPY3D, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(pCopy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, now(ds)) }
}

pub unsafe fn cuMemcpy3DAsync_v2(
    pCopy: *const CUDA_MEMCPY3D,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed(pCopy.as_ref().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?, later(stream, ds)) }
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

/// One side of a copy of up to three dimensions, as the program describes it.
#[derive(Clone, Copy)]
pub(super) struct Side {
    pub kind: CUmemorytype,
    pub host: *mut c_void,
    pub device: CUdeviceptr,
    pub array: CUarray,
    /// Bytes, rows and slices before the box.
    pub offset: [usize; 3],
    /// Bytes from a row to the next, 0 where rows follow each other.
    pub pitch: usize,
    /// Rows from a slice to the next, 0 where slices follow each other.
    pub height: usize,
}

impl Side {
    /// Where a box of this width, height and depth lies.
    pub fn place(&self, [width, height, depth]: [usize; 3]) -> Result<Place, CUresult> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if self.kind == CUmemorytype::CU_MEMORYTYPE_ARRAY {
            let part = array::given(self.array)?.part(self.offset, [width, height, depth])?;
            return Ok(Place::Device(DevicePlace::Array(part)));
        }
        let [x, y, z] = self.offset;
        let end_of_row = x.checked_add(width).ok_or(invalid)?;
        // A pitch of 0 means that rows follow each other; it must be given where there are several.
        let pitch = if self.pitch == 0 { end_of_row } else { self.pitch };
        let rows = if self.height == 0 { y.checked_add(height).ok_or(invalid)? } else { self.height };
        if (height > 1 || depth > 1) && pitch < end_of_row {
            return Err(invalid);
        }
        if depth > 1 && rows < height {
            return Err(invalid);
        }
        let slice = pitch.checked_mul(rows).ok_or(invalid)?;
        let offset = |part: usize, size: usize| part.checked_mul(size).ok_or(invalid);
        let start = x.checked_add(offset(y, pitch)?).and_then(|sum| sum.checked_add(offset(z, slice).ok()?));
        let start = start.ok_or(invalid)?;
        let last = offset(depth - 1, slice)?.checked_add(offset(height - 1, pitch)?).ok_or(invalid)?;
        let length = last.checked_add(width).ok_or(invalid)?;
        let (is_device, address) = match self.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => (false, self.host as u64),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => (true, self.device),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (memory::is_known(self.device), self.device),
            _ => return Err(invalid),
        };
        if address == 0 {
            return Err(invalid);
        }
        let address = address.checked_add(start as u64).ok_or(invalid)?;
        if is_device {
            memory::check_range(address, length as u64)?;
            let region = Region {
                address,
                row_pitch: pitch as u64,
                slice_pitch: slice as u64,
                width: width as u64,
                height: height as u64,
                depth: depth as u64,
            };
            return Ok(Place::Device(region.into()));
        }
        let address = address as *mut u8;
        Ok(Place::Host(HostRegion { address, row_pitch: pitch, slice_pitch: slice, width, height, depth }))
    }
}

/// # Safety
/// The description's host memory must be valid as `cuMemcpy3D` demands.
unsafe fn boxed(copy: &CUDA_MEMCPY3D, when: When) -> Outcome {
    match places(copy)? {
        // SAFETY: as this function demands.
        Some((destination, source)) => unsafe { run(destination, source, when) },
        None => context::current().map(|_| ()),
    }
}

/// Destination and source of a copy; nothing when it has no bytes.
pub fn places(copy: &CUDA_MEMCPY3D) -> Result<Option<(Place, Place)>, CUresult> {
    let size = [copy.WidthInBytes, copy.Height, copy.Depth];
    if size.contains(&0) {
        return Ok(None);
    }
    let (destination, source) = sides(copy)?;
    Ok(Some((destination.place(size)?, source.place(size)?)))
}

/// Destination and source of a three-dimensional copy.
fn sides(copy: &CUDA_MEMCPY3D) -> Result<(Side, Side), CUresult> {
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let source = Side {
        kind: copy.srcMemoryType,
        host: copy.srcHost.cast_mut(),
        device: copy.srcDevice,
        array: copy.srcArray,
        offset: [copy.srcXInBytes, copy.srcY, copy.srcZ],
        pitch: copy.srcPitch,
        height: copy.srcHeight,
    };
    let destination = Side {
        kind: copy.dstMemoryType,
        host: copy.dstHost,
        device: copy.dstDevice,
        array: copy.dstArray,
        offset: [copy.dstXInBytes, copy.dstY, copy.dstZ],
        pitch: copy.dstPitch,
        height: copy.dstHeight,
    };
    Ok((destination, source))
}

pub unsafe fn cuMemcpy3DPeer(pCopy: *const CUDA_MEMCPY3D_PEER, ds: DefaultStream) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed_between_contexts(pCopy, now(ds)) }
}

pub unsafe fn cuMemcpy3DPeerAsync(
    pCopy: *const CUDA_MEMCPY3D_PEER,
    stream: CUstream,
    ds: DefaultStream,
) -> Outcome {
    // SAFETY: the program's promise.
    unsafe { boxed_between_contexts(pCopy, later(stream, ds)) }
}

/// # Safety
/// `copy` is null or describes a copy whose host memory is valid.
unsafe fn boxed_between_contexts(copy: *const CUDA_MEMCPY3D_PEER, when: When) -> Outcome {
    // SAFETY: as this function demands.
    let peer = unsafe { copy.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let destination_context = context::given(peer.dstContext)?.handle;
    let source_context = context::given(peer.srcContext)?.handle;
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
    let size = [copy.WidthInBytes, copy.Height, copy.Depth];
    let arrays = [copy.srcMemoryType, copy.dstMemoryType].contains(&CUmemorytype::CU_MEMORYTYPE_ARRAY);
    let is_of_one_server = destination_context.server() == source_context.server();
    if arrays && is_of_one_server && destination_context != source_context && !size.contains(&0) {
        let (to, from) = sides(&copy)?;
        if let (Place::Device(destination), Place::Device(source)) = (to.place(size)?, from.place(size)?) {
            let stream = stream::state(handles::stream(when.stream, when.default_stream)?)?;
            let request = calls::copy_between_contexts {
                destination,
                destination_context,
                source,
                source_context,
                stream: stream.handle,
            };
            return session::post_in(stream.context, &request);
        }
    }
    // Addresses say themselves on which device they are.
    // SAFETY: as this function demands.
    unsafe { boxed(&copy, when) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(pitch: usize, height: usize, offset: [usize; 3]) -> Side {
        let kind = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let (host, array) = (core::ptr::null_mut(), core::ptr::null_mut());
        Side { kind, host, device: 0x5000, array, offset, pitch, height }
    }

    #[test]
    fn offsets_move_the_box_and_pitches_default_to_its_own_size() {
        let Ok(Place::Device(DevicePlace::Memory(region))) = side(64, 10, [4, 2, 3]).place([8, 5, 2]) else {
            panic!()
        };
        assert_eq!(
            (region.address, region.row_pitch, region.slice_pitch),
            (0x5000 + 4 + 128 + 1920, 64, 640)
        );
        let Ok(Place::Device(DevicePlace::Memory(region))) = side(0, 0, [0; 3]).place([8, 5, 2]) else {
            panic!()
        };
        assert!(region.is_contiguous());
    }

    #[test]
    fn boxes_that_do_not_fit_are_refused() {
        assert!(side(7, 0, [0; 3]).place([8, 2, 1]).is_err());
        assert!(side(8, 1, [0; 3]).place([8, 2, 2]).is_err());
        assert!(side(usize::MAX, 2, [0; 3]).place([8, 2, 2]).is_err());
        let null = Side { device: 0, ..side(8, 2, [0; 3]) };
        assert!(null.place([8, 2, 1]).is_err());
    }
}
