//! Copies: every form is turned into two places and one call of [`copy::copy`].

use super::Outcome;
use crate::copy::{self, HostRegion, Mode, Place};
use crate::entry::{DefaultStream, refuse_use};
use crate::{context, handles, memory, stream};
use causeway_api::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUmemorytype, CUresult, CUstream,
};
use causeway_api::types::Region;
use core::ffi::c_void;

/// What a call says about its stream and its return.
#[derive(Clone, Copy)]
struct When {
    stream: CUstream,
    default_stream: DefaultStream,
    mode: Mode,
}

fn now(default_stream: DefaultStream) -> When {
    When { stream: core::ptr::null_mut(), default_stream, mode: Mode::Synchronous }
}

fn later(stream: CUstream, default_stream: DefaultStream) -> When {
    When { stream, default_stream, mode: Mode::Asynchronous }
}

/// # Safety
/// As for [`copy::copy`].
unsafe fn run(destination: Place, source: Place, when: When) -> Outcome {
    let stream = stream::state(handles::stream(when.stream, when.default_stream)?)?;
    // SAFETY: as this function demands.
    unsafe { copy::copy(destination, source, &stream, when.mode) }
}

/// # Safety
/// As for [`copy::copy`], for `bytes` bytes at each place.
unsafe fn linear(
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

fn host(address: *mut c_void) -> impl FnOnce(usize) -> Result<Place, CUresult> {
    move |bytes| {
        if address.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Place::Host(HostRegion::linear(address.cast(), bytes)))
    }
}

fn on_device(address: CUdeviceptr) -> impl FnOnce(usize) -> Result<Place, CUresult> {
    move |bytes| {
        memory::check_range(address, bytes as u64)?;
        Ok(Place::Device(Region::linear(address, bytes as u64)))
    }
}

/// An address of which only the table of device memory knows on which side it is.
fn anywhere(address: CUdeviceptr) -> impl FnOnce(usize) -> Result<Place, CUresult> {
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
struct Side {
    kind: CUmemorytype,
    host: *mut c_void,
    device: CUdeviceptr,
    offset: [usize; 3],
    pitch: usize,
    height: usize,
}

impl Side {
    /// Where a box of this width, height and depth lies.
    fn place(&self, [width, height, depth]: [usize; 3]) -> Result<Place, CUresult> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
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
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (memory::find(self.device).is_some(), self.device),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => return Err(refuse_use!("copies to or from arrays")),
            _ => return Err(invalid),
        };
        if address == 0 {
            return Err(invalid);
        }
        let address = address.checked_add(start as u64).ok_or(invalid)?;
        if is_device {
            memory::check_range(address, length as u64)?;
            return Ok(Place::Device(Region {
                address,
                row_pitch: pitch as u64,
                slice_pitch: slice as u64,
                width: width as u64,
                height: height as u64,
                depth: depth as u64,
            }));
        }
        let address = address as *mut u8;
        Ok(Place::Host(HostRegion { address, row_pitch: pitch, slice_pitch: slice, width, height, depth }))
    }
}

/// # Safety
/// The description's host memory must be valid as `cuMemcpy3D` demands.
unsafe fn boxed(copy: &CUDA_MEMCPY3D, when: When) -> Outcome {
    let size = [copy.WidthInBytes, copy.Height, copy.Depth];
    if size.contains(&0) {
        context::current()?;
        return Ok(());
    }
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let source = Side {
        kind: copy.srcMemoryType,
        host: copy.srcHost.cast_mut(),
        device: copy.srcDevice,
        offset: [copy.srcXInBytes, copy.srcY, copy.srcZ],
        pitch: copy.srcPitch,
        height: copy.srcHeight,
    };
    let destination = Side {
        kind: copy.dstMemoryType,
        host: copy.dstHost,
        device: copy.dstDevice,
        offset: [copy.dstXInBytes, copy.dstY, copy.dstZ],
        pitch: copy.dstPitch,
        height: copy.dstHeight,
    };
    // SAFETY: as this function demands.
    unsafe { run(destination.place(size)?, source.place(size)?, when) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(pitch: usize, height: usize, offset: [usize; 3]) -> Side {
        let kind = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        Side { kind, host: core::ptr::null_mut(), device: 0x5000, offset, pitch, height }
    }

    #[test]
    fn offsets_move_the_box_and_pitches_default_to_its_own_size() {
        let Ok(Place::Device(region)) = side(64, 10, [4, 2, 3]).place([8, 5, 2]) else { panic!() };
        assert_eq!(
            (region.address, region.row_pitch, region.slice_pitch),
            (0x5000 + 4 + 128 + 1920, 64, 640)
        );
        let Ok(Place::Device(region)) = side(0, 0, [0; 3]).place([8, 5, 2]) else { panic!() };
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
