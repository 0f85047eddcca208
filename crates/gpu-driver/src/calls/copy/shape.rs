//! Copy shape: the fewest dimensions that describe a copy, and the offsets of its ends.

use causeway_api::handle::{Array, Native};
use causeway_api::sys::{CUmemorytype, CUresult};
use causeway_api::types::{ArrayBox, DeviceLocation, Region};
use causeway_gpu::{CuResult, NativeLocation};
use core::ffi::c_void;

/// Where an end of a copy begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Host(*mut u8),
    Device(u64),
    Array { array: Native<Array>, x: usize, y: usize, z: usize },
}

/// How far it is from a row to the next, and from a slice to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pitch {
    /// Bytes from a row to the next.
    pub(crate) row: usize,
    /// Rows from a slice to the next.
    pub(crate) rows: usize,
}

/// The two ends of a copy, reduced to as few dimensions as they have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Nothing,
    Linear { bytes: usize },
    Rows { width: usize, rows: usize, to_pitch: usize, from_pitch: usize },
    Slices { width: usize, rows: usize, depth: usize, to: Pitch, from: Pitch },
}

impl Pitch {
    /// That of an array is the device's own business.
    const OF_ARRAY: Self = Self { row: 0, rows: 0 };

    pub(crate) fn of(location: &NativeLocation) -> CuResult<Self> {
        let DeviceLocation::Memory(region) = location else { return Ok(Self::OF_ARRAY) };
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
    pub(crate) fn of(to: &NativeLocation, from: &NativeLocation) -> CuResult<Self> {
        if to.size() != from.size() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let bytes = to.bytes().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)? as usize;
        if bytes == 0 {
            return Ok(Self::Nothing);
        }
        match (to, from) {
            (DeviceLocation::Memory(to), DeviceLocation::Memory(from)) => Self::of_memory(to, from, bytes),
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
    fn of_arrays(to: &NativeLocation, from: &NativeLocation) -> CuResult<Self> {
        let (width, rows, depth) = to.size();
        let (width, rows, depth) = (width as usize, rows as usize, depth as usize);
        let in_first_slice =
            |location: &NativeLocation| !matches!(location, DeviceLocation::Array(ArrayBox { z: 1.., .. }));
        let (to_pitch, from_pitch) = (Pitch::of(to)?, Pitch::of(from)?);
        Ok(if depth == 1 && in_first_slice(to) && in_first_slice(from) {
            Self::Rows { width, rows, to_pitch: to_pitch.row, from_pitch: from_pitch.row }
        } else {
            Self::Slices { width, rows, depth, to: to_pitch, from: from_pitch }
        })
    }
}

impl Start {
    pub(crate) fn of(location: &NativeLocation) -> Self {
        match location {
            DeviceLocation::Memory(region) => Self::Device(region.address),
            DeviceLocation::Array(part) => {
                let (x, y, z) = (part.x as usize, part.y as usize, part.z as usize);
                Self::Array { array: part.array, x, y, z }
            }
        }
    }

    pub(crate) fn kind(self) -> CUmemorytype {
        match self {
            Self::Host(_) => CUmemorytype::CU_MEMORYTYPE_HOST,
            Self::Device(_) => CUmemorytype::CU_MEMORYTYPE_DEVICE,
            Self::Array { .. } => CUmemorytype::CU_MEMORYTYPE_ARRAY,
        }
    }

    pub(crate) fn host(self) -> *mut c_void {
        if let Self::Host(address) = self { address.cast() } else { core::ptr::null_mut() }
    }

    pub(crate) fn device(self) -> u64 {
        if let Self::Device(address) = self { address } else { 0 }
    }

    pub(crate) fn array(self) -> (Native<Array>, usize, usize, usize) {
        if let Self::Array { array, x, y, z } = self { (array, x, y, z) } else { (Native::NULL, 0, 0, 0) }
    }
}

/// The contiguous host memory for what lies at a place of the device.
pub(crate) fn packed(location: &NativeLocation) -> CuResult<NativeLocation> {
    let (width, height, depth) = location.size();
    let slice_pitch = width.checked_mul(height).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(DeviceLocation::Memory(Region { address: 0, row_pitch: width, slice_pitch, width, height, depth }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(width: u64, height: u64, depth: u64, row_pitch: u64, slice_pitch: u64) -> NativeLocation {
        Region { address: 0x1000, row_pitch, slice_pitch, width, height, depth }.into()
    }

    fn array(z: u64, width: u64, height: u64, depth: u64) -> NativeLocation {
        DeviceLocation::Array(ArrayBox { array: Native::from_value(5), x: 8, y: 2, z, width, height, depth })
    }

    #[test]
    fn a_shape_has_as_few_dimensions_as_it_can() {
        let shape = |location: NativeLocation| Shape::of(&location, &packed(&location).unwrap());
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
        let shape = |location: NativeLocation| Shape::of(&location, &packed(&location).unwrap());
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
