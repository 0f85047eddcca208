//! Copies between memory and arrays: which of the driver's copy calls fits, and its arguments.

mod host;
mod shape;

use crate::driver::Driver;
use causeway_api::handle::{Context, Native, Stream};
use causeway_api::sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUmemorytype, CUpointer_attribute, CUresult,
};
use causeway_gpu::calls::CopyCalls;
use causeway_gpu::{CuResult, NativeLocation};
use shape::{Pitch, Shape, Start, packed};

impl CopyCalls for Driver {
    causeway_api_macros::driver_calls!(copy);

    fn copy_within_device(
        &self,
        destination: NativeLocation,
        source: NativeLocation,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(&destination, &source)?;
        if let Shape::Linear { bytes } = shape {
            self.check_known(Start::of(&destination), bytes)?;
            self.check_known(Start::of(&source), bytes)?;
        }
        // SAFETY: no host memory takes part: the form of the call that takes any address gets only known ones, the
        // others say that the addresses are a device's.
        unsafe { self.copy(shape, Start::of(&destination), Start::of(&source), stream) }
    }

    /// A copy whose ends are in different contexts, which matters where one is an array.
    fn copy_between_contexts(
        &self,
        destination: NativeLocation,
        to_context: Native<Context>,
        source: NativeLocation,
        from_context: Native<Context>,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        if destination.size() != source.size() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (width, height, depth) = destination.size();
        let (to, from) = (Start::of(&destination), Start::of(&source));
        let (to_pitch, from_pitch) = (Pitch::of(&destination)?, Pitch::of(&source)?);
        let ((to_array, to_x, to_y, to_z), (from_array, from_x, from_y, from_z)) = (to.array(), from.array());
        let copy = CUDA_MEMCPY3D_PEER {
            srcXInBytes: from_x,
            srcY: from_y,
            srcZ: from_z,
            srcMemoryType: from.kind(),
            srcDevice: from.device(),
            srcArray: from_array.as_raw(),
            srcContext: from_context.as_raw(),
            srcPitch: from_pitch.row,
            srcHeight: from_pitch.rows,
            dstXInBytes: to_x,
            dstY: to_y,
            dstZ: to_z,
            dstMemoryType: to.kind(),
            dstDevice: to.device(),
            dstArray: to_array.as_raw(),
            dstContext: to_context.as_raw(),
            dstPitch: to_pitch.row,
            dstHeight: to_pitch.rows,
            WidthInBytes: width as usize,
            Height: height as usize,
            Depth: depth as usize,
            ..CUDA_MEMCPY3D_PEER::default()
        };
        // SAFETY: the description is a local; no host memory takes part.
        unsafe { self.functions.cuMemcpy3DPeerAsync(&copy, stream.as_raw()) }
    }
}

impl Driver {
    /// # Safety
    /// `source` must stay readable for the place's bytes until the copy is done.
    pub(crate) unsafe fn copy_in(
        &self,
        destination: &NativeLocation,
        source: *const u8,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(destination, &packed(destination)?)?;
        // SAFETY: the shape covers the place's bytes of host memory, which the caller vouches for.
        unsafe { self.copy(shape, Start::of(destination), Start::Host(source.cast_mut()), stream) }
    }

    /// # Safety
    /// `destination` must stay writable for the place's bytes until the copy is done.
    pub(crate) unsafe fn copy_out(
        &self,
        source: &NativeLocation,
        destination: *mut u8,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(&packed(source)?, source)?;
        // SAFETY: the shape covers the place's bytes of host memory, which the caller vouches for.
        unsafe { self.copy(shape, Start::Host(destination), Start::of(source), stream) }
    }

    /// Refuses an address that is not known to the driver with all `bytes`, or that is memory of this process which
    /// no kernel reaches. `cuMemcpyAsync` takes such an address for ordinary memory of the calling process, which
    /// is not the client's to read or to write.
    fn check_known(&self, start: Start, bytes: usize) -> CuResult<()> {
        let Start::Device(address) = start else { return Ok(()) };
        let attribute = |attribute| {
            let mut value = 0_u64;
            // SAFETY: each of the attributes asked for is written as at most as many bytes as the local has.
            let known =
                unsafe { self.functions.cuPointerGetAttribute((&raw mut value).cast(), attribute, address) };
            known.map(|()| value).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
        };
        let kind = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE)?;
        // The driver checks the ends of a device's memory itself.
        if kind != u64::from(CUmemorytype::CU_MEMORYTYPE_HOST.0)
            || self.host_ranges.find(address, bytes).is_some()
        {
            return Ok(());
        }
        let first = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)?;
        let length = attribute(CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE)?;
        let is_inside = address
            .checked_sub(first)
            .and_then(|offset| offset.checked_add(bytes as u64))
            .is_some_and(|end| end <= length);
        is_inside.then_some(()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// A copy on the device as a node of a graph has it.
    pub(crate) fn copy_node(
        destination: &NativeLocation,
        source: &NativeLocation,
    ) -> CuResult<CUDA_MEMCPY3D> {
        let (size, to_pitch, from_pitch) = match Shape::of(destination, source)? {
            // The driver has no node that copies nothing.
            Shape::Nothing => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            Shape::Linear { bytes } => {
                let pitch = Pitch { row: bytes, rows: 1 };
                ([bytes, 1, 1], pitch, pitch)
            }
            Shape::Rows { width, rows, to_pitch, from_pitch } => {
                let pitch = |row| Pitch { row, rows };
                ([width, rows, 1], pitch(to_pitch), pitch(from_pitch))
            }
            Shape::Slices { width, rows, depth, to, from } => ([width, rows, depth], to, from),
        };
        Ok(volume(size, (Start::of(destination), to_pitch), (Start::of(source), from_pitch)))
    }

    /// # Safety
    /// Host memory must be valid for the shape's bytes until the copy is done.
    unsafe fn copy(&self, shape: Shape, to: Start, from: Start, stream: Native<Stream>) -> CuResult<()> {
        // SAFETY: the caller keeps host memory valid for the shape's bytes until the copy is done.
        if unsafe { self.copy_within_host(shape, to, from, stream)? } {
            return Ok(());
        }
        let (driver, stream) = (self.functions, stream.as_raw());
        // SAFETY: descriptors are locals that the driver reads during the call; the caller vouches for host
        // memory, and the driver checks device addresses.
        unsafe {
            match (shape, to, from) {
                (Shape::Nothing, ..) => Ok(()),
                (Shape::Linear { bytes }, Start::Device(to), Start::Host(from)) => {
                    driver.cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream)
                }
                (Shape::Linear { bytes }, Start::Host(to), Start::Device(from)) => {
                    driver.cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream)
                }
                // This form, unlike cuMemcpyDtoDAsync, also takes addresses of two devices.
                (Shape::Linear { bytes }, ..) => {
                    driver.cuMemcpyAsync(to.device(), from.device(), bytes, stream)
                }
                (Shape::Rows { width, rows, to_pitch, from_pitch }, ..) => {
                    let ((to_array, to_x, to_y, _), (from_array, from_x, from_y, _)) =
                        (to.array(), from.array());
                    let copy = CUDA_MEMCPY2D {
                        srcXInBytes: from_x,
                        srcY: from_y,
                        srcMemoryType: from.kind(),
                        srcHost: from.host(),
                        srcDevice: from.device(),
                        srcArray: from_array.as_raw(),
                        srcPitch: from_pitch,
                        dstXInBytes: to_x,
                        dstY: to_y,
                        dstMemoryType: to.kind(),
                        dstHost: to.host(),
                        dstDevice: to.device(),
                        dstArray: to_array.as_raw(),
                        dstPitch: to_pitch,
                        WidthInBytes: width,
                        Height: rows,
                    };
                    driver.cuMemcpy2DAsync_v2(&copy, stream)
                }
                (Shape::Slices { width, rows, depth, to: to_pitch, from: from_pitch }, ..) => {
                    let copy = volume([width, rows, depth], (to, to_pitch), (from, from_pitch));
                    driver.cuMemcpy3DAsync_v2(&copy, stream)
                }
            }
        }
    }
}

/// The description of a copy of `size` (bytes of a row, rows, slices) from one place to another.
fn volume(
    size: [usize; 3],
    (to, to_pitch): (Start, Pitch),
    (from, from_pitch): (Start, Pitch),
) -> CUDA_MEMCPY3D {
    let ((to_array, to_x, to_y, to_z), (from_array, from_x, from_y, from_z)) = (to.array(), from.array());
    let [width, rows, depth] = size;
    CUDA_MEMCPY3D {
        srcXInBytes: from_x,
        srcY: from_y,
        srcZ: from_z,
        srcMemoryType: from.kind(),
        srcHost: from.host(),
        srcDevice: from.device(),
        srcArray: from_array.as_raw(),
        srcPitch: from_pitch.row,
        srcHeight: from_pitch.rows,
        dstXInBytes: to_x,
        dstY: to_y,
        dstZ: to_z,
        dstMemoryType: to.kind(),
        dstHost: to.host(),
        dstDevice: to.device(),
        dstArray: to_array.as_raw(),
        dstPitch: to_pitch.row,
        dstHeight: to_pitch.rows,
        WidthInBytes: width,
        Height: rows,
        Depth: depth,
        ..CUDA_MEMCPY3D::default()
    }
}
