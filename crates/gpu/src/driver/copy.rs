//! Copies between regions: which of the driver's copy calls fits, and its arguments.

use super::Driver;
use crate::CuResult;
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUmemorytype, CUresult};
use causeway_api::types::Region;

/// One end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Host(*mut u8),
    Device(u64),
}

/// The two ends of a copy, reduced to as few dimensions as they have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Nothing,
    Linear { bytes: usize },
    Rows { width: usize, rows: usize, to_pitch: usize, from_pitch: usize },
    Slices { width: usize, rows: usize, depth: usize, to: SlicePitch, from: SlicePitch },
}

/// The pitches of an end of three dimensions, in the driver's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlicePitch {
    /// Bytes from a row to the next.
    row: usize,
    /// Rows from a slice to the next.
    rows: usize,
}

impl SlicePitch {
    fn of(region: &Region) -> CuResult<Self> {
        // The driver knows slices as multiples of rows only, and so does the API the client's call came from.
        if region.row_pitch == 0 || !region.slice_pitch.is_multiple_of(region.row_pitch) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Self { row: region.row_pitch as usize, rows: (region.slice_pitch / region.row_pitch) as usize })
    }
}

impl Shape {
    fn of(to: &Region, from: &Region) -> CuResult<Self> {
        let size = |region: &Region| (region.width, region.height, region.depth);
        if size(to) != size(from) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = to.bytes().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? as usize;
        if bytes == 0 {
            return Ok(Self::Nothing);
        }
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
            Self::Slices { width, rows, depth, to: SlicePitch::of(to)?, from: SlicePitch::of(from)? }
        })
    }
}

/// The driver's memory type, host address and device address of a place.
fn parts(place: Place) -> (CUmemorytype, *mut core::ffi::c_void, u64) {
    match place {
        Place::Host(address) => (CUmemorytype::CU_MEMORYTYPE_HOST, address.cast(), 0),
        Place::Device(address) => (CUmemorytype::CU_MEMORYTYPE_DEVICE, core::ptr::null_mut(), address),
    }
}

/// The contiguous host memory for a region of device memory.
fn packed(region: &Region) -> CuResult<Region> {
    let slice_pitch = region.width.checked_mul(region.height).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(Region { address: 0, row_pitch: region.width, slice_pitch, ..*region })
}

impl Driver {
    /// # Safety
    /// `source` must stay readable for the region's bytes until the copy is done.
    pub(super) unsafe fn copy_in(
        &self,
        destination: &Region,
        source: *const u8,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(destination, &packed(destination)?)?;
        // SAFETY: the shape covers the region's bytes of host memory, which the caller vouches for.
        unsafe {
            self.copy(shape, Place::Device(destination.address), Place::Host(source.cast_mut()), stream)
        }
    }

    /// # Safety
    /// `destination` must stay writable for the region's bytes until the copy is done.
    pub(super) unsafe fn copy_out(
        &self,
        source: &Region,
        destination: *mut u8,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(&packed(source)?, source)?;
        // SAFETY: the shape covers the region's bytes of host memory, which the caller vouches for.
        unsafe { self.copy(shape, Place::Host(destination), Place::Device(source.address), stream) }
    }

    pub(super) fn copy_across(
        &self,
        destination: &Region,
        source: &Region,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let shape = Shape::of(destination, source)?;
        let (to, from) = (Place::Device(destination.address), Place::Device(source.address));
        // SAFETY: no host memory takes part.
        unsafe { self.copy(shape, to, from, stream) }
    }

    /// # Safety
    /// Host memory must be valid for the shape's bytes until the copy is done.
    unsafe fn copy(&self, shape: Shape, to: Place, from: Place, stream: Native<Stream>) -> CuResult<()> {
        let (driver, stream) = (self.functions, stream.as_raw());
        let (to_kind, to_host, to_device) = parts(to);
        let (from_kind, from_host, from_device) = parts(from);
        // SAFETY: descriptors are locals that the driver reads during the call; the caller vouches for host
        // memory, and the driver checks device addresses.
        unsafe {
            match (shape, to, from) {
                (Shape::Nothing, ..) => Ok(()),
                (Shape::Linear { bytes }, Place::Device(to), Place::Host(from)) => {
                    driver.cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream)
                }
                (Shape::Linear { bytes }, Place::Host(to), Place::Device(from)) => {
                    driver.cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, stream)
                }
                // This form, unlike cuMemcpyDtoDAsync, also takes addresses of two devices.
                (Shape::Linear { bytes }, _, _) => {
                    driver.cuMemcpyAsync(to_device, from_device, bytes, stream)
                }
                (Shape::Rows { width, rows, to_pitch, from_pitch }, ..) => {
                    let copy = CUDA_MEMCPY2D {
                        srcMemoryType: from_kind,
                        srcHost: from_host,
                        srcDevice: from_device,
                        srcPitch: from_pitch,
                        dstMemoryType: to_kind,
                        dstHost: to_host,
                        dstDevice: to_device,
                        dstPitch: to_pitch,
                        WidthInBytes: width,
                        Height: rows,
                        ..CUDA_MEMCPY2D::default()
                    };
                    driver.cuMemcpy2DAsync_v2(&copy, stream)
                }
                (Shape::Slices { width, rows, depth, to, from }, ..) => {
                    let copy = CUDA_MEMCPY3D {
                        srcMemoryType: from_kind,
                        srcHost: from_host,
                        srcDevice: from_device,
                        srcPitch: from.row,
                        srcHeight: from.rows,
                        dstMemoryType: to_kind,
                        dstHost: to_host,
                        dstDevice: to_device,
                        dstPitch: to.row,
                        dstHeight: to.rows,
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

    fn region(width: u64, height: u64, depth: u64, row_pitch: u64, slice_pitch: u64) -> Region {
        Region { address: 0x1000, row_pitch, slice_pitch, width, height, depth }
    }

    #[test]
    fn a_shape_has_as_few_dimensions_as_it_can() {
        let shape = |region: Region| Shape::of(&region, &packed(&region).unwrap());
        assert_eq!(shape(Region::linear(1, 9)), Ok(Shape::Linear { bytes: 9 }));
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
            to: SlicePitch { row: 8, rows: 5 },
            from: SlicePitch { row: 4, rows: 3 },
        };
        assert_eq!(shape(region(4, 3, 2, 8, 40)), Ok(slices));
    }

    #[test]
    fn shapes_that_the_driver_cannot_express_are_refused() {
        let other = region(4, 3, 2, 8, 40);
        assert!(Shape::of(&region(4, 3, 2, 8, 41), &other).is_err());
        assert!(Shape::of(&region(4, 3, 2, 0, 40), &other).is_err());
        assert!(Shape::of(&region(4, 3, 1, 8, 40), &other).is_err());
        assert!(Shape::of(&region(u64::MAX, 2, 1, 8, 8), &region(u64::MAX, 2, 1, 8, 8)).is_err());
    }
}
