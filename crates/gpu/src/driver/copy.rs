//! Copies between memory and arrays: which of the driver's copy calls fits, and its arguments.

use super::Driver;
use crate::calls::CopyCalls;
use crate::{CuResult, NativePlace};
use causeway_api::handle::{Array, Context, Native, Stream};
use causeway_api::sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUmemorytype, CUresult};
use causeway_api::types::{ArrayBox, DevicePlace, Region};
use core::ffi::c_void;

/// Where an end of a copy begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Host(*mut u8),
    Device(u64),
    Array { array: Native<Array>, x: usize, y: usize, z: usize },
}

/// How far it is from a row to the next, and from a slice to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pitch {
    /// Bytes from a row to the next.
    row: usize,
    /// Rows from a slice to the next.
    rows: usize,
}

/// The two ends of a copy, reduced to as few dimensions as they have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Nothing,
    Linear { bytes: usize },
    Rows { width: usize, rows: usize, to_pitch: usize, from_pitch: usize },
    Slices { width: usize, rows: usize, depth: usize, to: Pitch, from: Pitch },
}

impl Pitch {
    /// That of an array is the device's own business.
    const OF_ARRAY: Self = Self { row: 0, rows: 0 };

    fn of(place: &NativePlace) -> CuResult<Self> {
        let DevicePlace::Memory(region) = place else { return Ok(Self::OF_ARRAY) };
        if region.height <= 1 {
            let row = if region.depth > 1 { region.slice_pitch } else { region.width };
            return Ok(Self { row: row as usize, rows: 1 });
        }
        if region.depth <= 1 {
            return Ok(Self { row: region.row_pitch as usize, rows: region.height as usize });
        }
        // The driver knows slices as multiples of rows only, and so does the API the client's call came from.
        if region.row_pitch == 0 || !region.slice_pitch.is_multiple_of(region.row_pitch) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Self { row: region.row_pitch as usize, rows: (region.slice_pitch / region.row_pitch) as usize })
    }
}

impl Shape {
    fn of(to: &NativePlace, from: &NativePlace) -> CuResult<Self> {
        if to.size() != from.size() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = to.bytes().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? as usize;
        if bytes == 0 {
            return Ok(Self::Nothing);
        }
        match (to, from) {
            (DevicePlace::Memory(to), DevicePlace::Memory(from)) => Self::of_memory(to, from, bytes),
            _ => Self::of_arrays(to, from),
        }
    }

    fn of_memory(to: &Region, from: &Region, bytes: usize) -> CuResult<Self> {
        if to.is_contiguous() && from.is_contiguous() {
            return Ok(Self::Linear { bytes });
        }
        let (width, rows, depth) = (to.width as usize, to.height as usize, to.depth as usize);
        let slices_follow =
            |region: &Region| region.row_pitch.checked_mul(region.height) == Some(region.slice_pitch);
        Ok(if rows == 1 {
            let (to_pitch, from_pitch) = (to.slice_pitch as usize, from.slice_pitch as usize);
            Self::Rows { width, rows: depth, to_pitch, from_pitch }
        } else if depth == 1 || (slices_follow(to) && slices_follow(from)) {
            let (to_pitch, from_pitch) = (to.row_pitch as usize, from.row_pitch as usize);
            Self::Rows { width, rows: rows * depth, to_pitch, from_pitch }
        } else {
            let (to, from) = (Pitch::of(&(*to).into())?, Pitch::of(&(*from).into())?);
            Self::Slices { width, rows, depth, to, from }
        })
    }

    /// An array has as many dimensions as it has, so none can be folded into another.
    fn of_arrays(to: &NativePlace, from: &NativePlace) -> CuResult<Self> {
        let (width, rows, depth) = to.size();
        let (width, rows, depth) = (width as usize, rows as usize, depth as usize);
        let in_first_slice =
            |place: &NativePlace| !matches!(place, DevicePlace::Array(ArrayBox { z: 1.., .. }));
        let (to_pitch, from_pitch) = (Pitch::of(to)?, Pitch::of(from)?);
        Ok(if depth == 1 && in_first_slice(to) && in_first_slice(from) {
            Self::Rows { width, rows, to_pitch: to_pitch.row, from_pitch: from_pitch.row }
        } else {
            Self::Slices { width, rows, depth, to: to_pitch, from: from_pitch }
        })
    }
}

impl Start {
    fn of(place: &NativePlace) -> Self {
        match place {
            DevicePlace::Memory(region) => Self::Device(region.address),
            DevicePlace::Array(part) => {
                let (x, y, z) = (part.x as usize, part.y as usize, part.z as usize);
                Self::Array { array: part.array, x, y, z }
            }
        }
    }

    fn kind(self) -> CUmemorytype {
        match self {
            Self::Host(_) => CUmemorytype::CU_MEMORYTYPE_HOST,
            Self::Device(_) => CUmemorytype::CU_MEMORYTYPE_DEVICE,
            Self::Array { .. } => CUmemorytype::CU_MEMORYTYPE_ARRAY,
        }
    }

    fn host(self) -> *mut c_void {
        if let Self::Host(address) = self { address.cast() } else { core::ptr::null_mut() }
    }

    fn device(self) -> u64 {
        if let Self::Device(address) = self { address } else { 0 }
    }

    fn array(self) -> (Native<Array>, usize, usize, usize) {
        if let Self::Array { array, x, y, z } = self { (array, x, y, z) } else { (Native::NULL, 0, 0, 0) }
    }
}

/// The contiguous host memory for what lies at a place of the device.
fn packed(place: &NativePlace) -> CuResult<NativePlace> {
    let (width, height, depth) = place.size();
    let slice_pitch = width.checked_mul(height).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(DevicePlace::Memory(Region { address: 0, row_pitch: width, slice_pitch, width, height, depth }))
}

impl CopyCalls for Driver {
    causeway_api_macros::driver_calls!(copy);

    fn copy_within_device(
        &self,
        destination: NativePlace,
        source: NativePlace,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(&destination, &source)?;
        // SAFETY: no host memory takes part.
        unsafe { self.copy(shape, Start::of(&destination), Start::of(&source), stream) }
    }

    /// A copy whose ends are in different contexts, which matters where one is an array.
    fn copy_between_contexts(
        &self,
        destination: NativePlace,
        to_context: Native<Context>,
        source: NativePlace,
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
    pub(super) unsafe fn copy_in(
        &self,
        destination: &NativePlace,
        source: *const u8,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(destination, &packed(destination)?)?;
        // SAFETY: the shape covers the place's bytes of host memory, which the caller vouches for.
        unsafe { self.copy(shape, Start::of(destination), Start::Host(source.cast_mut()), stream) }
    }

    /// # Safety
    /// `destination` must stay writable for the place's bytes until the copy is done.
    pub(super) unsafe fn copy_out(
        &self,
        source: &NativePlace,
        destination: *mut u8,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(&packed(source)?, source)?;
        // SAFETY: the shape covers the place's bytes of host memory, which the caller vouches for.
        unsafe { self.copy(shape, Start::Host(destination), Start::of(source), stream) }
    }

    /// A copy on the device as a node of a graph has it.
    pub(super) fn copy_node(destination: &NativePlace, source: &NativePlace) -> CuResult<CUDA_MEMCPY3D> {
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
        let (to, from) = (Start::of(destination), Start::of(source));
        let ((to_array, to_x, to_y, to_z), (from_array, from_x, from_y, from_z)) = (to.array(), from.array());
        Ok(CUDA_MEMCPY3D {
            srcXInBytes: from_x,
            srcY: from_y,
            srcZ: from_z,
            srcMemoryType: from.kind(),
            srcDevice: from.device(),
            srcArray: from_array.as_raw(),
            srcPitch: from_pitch.row,
            srcHeight: from_pitch.rows,
            dstXInBytes: to_x,
            dstY: to_y,
            dstZ: to_z,
            dstMemoryType: to.kind(),
            dstDevice: to.device(),
            dstArray: to_array.as_raw(),
            dstPitch: to_pitch.row,
            dstHeight: to_pitch.rows,
            WidthInBytes: size[0],
            Height: size[1],
            Depth: size[2],
            ..CUDA_MEMCPY3D::default()
        })
    }

    /// # Safety
    /// Host memory must be valid for the shape's bytes until the copy is done.
    unsafe fn copy(&self, shape: Shape, to: Start, from: Start, stream: Native<Stream>) -> CuResult<()> {
        let (driver, stream) = (self.functions, stream.as_raw());
        let ((to_array, to_x, to_y, to_z), (from_array, from_x, from_y, from_z)) = (to.array(), from.array());
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
                    let copy = CUDA_MEMCPY3D {
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
                    };
                    driver.cuMemcpy3DAsync_v2(&copy, stream)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(width: u64, height: u64, depth: u64, row_pitch: u64, slice_pitch: u64) -> NativePlace {
        Region { address: 0x1000, row_pitch, slice_pitch, width, height, depth }.into()
    }

    fn array(z: u64, width: u64, height: u64, depth: u64) -> NativePlace {
        DevicePlace::Array(ArrayBox { array: Native::from_value(5), x: 8, y: 2, z, width, height, depth })
    }

    #[test]
    fn a_shape_has_as_few_dimensions_as_it_can() {
        let shape = |place: NativePlace| Shape::of(&place, &packed(&place).unwrap());
        assert_eq!(shape(Region::linear(1, 9).into()), Ok(Shape::Linear { bytes: 9 }));
        assert_eq!(shape(region(4, 0, 1, 8, 8)), Ok(Shape::Nothing));
        assert_eq!(shape(region(4, 3, 2, 4, 12)), Ok(Shape::Linear { bytes: 24 }));
        let rows = |rows, to_pitch| Shape::Rows { width: 4, rows, to_pitch, from_pitch: 4 };
        assert_eq!(shape(region(4, 3, 1, 8, 0)), Ok(rows(3, 8)));
        assert_eq!(shape(region(4, 3, 2, 8, 24)), Ok(rows(6, 8)));
        assert_eq!(shape(region(4, 1, 5, 0, 64)), Ok(rows(5, 64)));
        let slices = Shape::Slices {
            width: 4,
            rows: 3,
            depth: 2,
            to: Pitch { row: 8, rows: 5 },
            from: Pitch { row: 4, rows: 3 },
        };
        assert_eq!(shape(region(4, 3, 2, 8, 40)), Ok(slices));
    }

    #[test]
    fn arrays_keep_their_dimensions() {
        let shape = |place: NativePlace| Shape::of(&place, &packed(&place).unwrap());
        assert_eq!(
            shape(array(0, 4, 3, 1)),
            Ok(Shape::Rows { width: 4, rows: 3, to_pitch: 0, from_pitch: 4 })
        );
        let slices = |depth| Shape::Slices {
            width: 4,
            rows: 3,
            depth,
            to: Pitch::OF_ARRAY,
            from: Pitch { row: 4, rows: 3 },
        };
        assert_eq!(shape(array(1, 4, 3, 1)), Ok(slices(1)));
        assert_eq!(shape(array(0, 4, 3, 2)), Ok(slices(2)));
        assert_eq!(Shape::of(&array(0, 4, 0, 1), &array(3, 4, 0, 1)), Ok(Shape::Nothing));
    }

    #[test]
    fn shapes_that_the_driver_cannot_express_are_refused() {
        let other = region(4, 3, 2, 8, 40);
        assert!(Shape::of(&region(4, 3, 2, 8, 41), &other).is_err());
        assert!(Shape::of(&region(4, 3, 2, 0, 40), &other).is_err());
        assert!(Shape::of(&region(4, 3, 1, 8, 40), &other).is_err());
        assert!(Shape::of(&array(0, 4, 3, 1), &other).is_err());
        assert!(Shape::of(&region(u64::MAX, 2, 1, 8, 8), &region(u64::MAX, 2, 1, 8, 8)).is_err());
    }
}
