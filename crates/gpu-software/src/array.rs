//! Arrays: memory with a descriptor. Rows lie side by side, slices and layers too.

use super::context::Context;
use super::handles;
use super::memory::Memory;
use super::texture_limits::{self, CUBE, GATHER, LAYERED, SURFACE};
use causeway_api::sys::{
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUarray_format as Format, CUresult,
};
use causeway_api::types::{ArrayBox, DeviceLocation, Region, channel_bytes};
use causeway_gpu::{CuResult, NativeLocation};
use causeway_ptx::texture::Image;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// One array.
pub(super) struct Array {
    pub(super) descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    address: u64,
    element: u64,
}

/// A mipmapped array: its levels, the largest first.
struct Mipmapped {
    levels: Vec<u64>,
}

/// All arrays of the device.
#[derive(Default)]
pub(super) struct Arrays {
    arrays: Mutex<HashMap<u64, Arc<Array>>>,
    mipmapped: Mutex<HashMap<u64, Mipmapped>>,
}

/// Bytes of an element.
fn element_bytes(format: Format, channels: u32) -> CuResult<u64> {
    let channel = channel_bytes(format).ok_or(match format {
        Format(0 | 4..=7 | 11..=15) => CUresult::CUDA_ERROR_INVALID_VALUE,
        // Formats of textures and of video.
        _ => CUresult::CUDA_ERROR_NOT_SUPPORTED,
    })?;
    match channels {
        1 | 2 | 4 => Ok(channel * u64::from(channels)),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Elements, rows and slices of an array; at least one of each.
fn extent(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CuResult<[u64; 3]> {
    let layered = descriptor.Flags & LAYERED != 0;
    let (width, height, depth) = (descriptor.Width, descriptor.Height, descriptor.Depth);
    let flat_with_depth = height == 0 && depth != 0 && !layered;
    if width == 0 || flat_with_depth || layered && depth == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if descriptor.Flags & !(LAYERED | SURFACE | CUBE | GATHER) != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if !texture_limits::fits(descriptor) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok([width as u64, height.max(1) as u64, depth.max(1) as u64])
}

impl Array {
    fn bytes(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CuResult<u64> {
        let element = element_bytes(descriptor.Format, descriptor.NumChannels)?;
        let [width, height, depth] = extent(descriptor)?;
        // At most 2^17 in each direction and 16 bytes an element: this cannot overflow.
        Ok(element * width * height * depth)
    }

    /// Its texels.
    pub(super) fn image(&self) -> CuResult<Image> {
        let size = extent(&self.descriptor)?;
        let row_pitch = size[0] * self.element;
        let size_of_image = size.map(|size| size as u32);
        Ok(Image { address: self.address, size: size_of_image, row_pitch, slice_pitch: row_pitch * size[1] })
    }

    fn region(&self, part: &ArrayBox<impl Copy>) -> CuResult<Region> {
        let [width, height, depth] = extent(&self.descriptor)?;
        let row_pitch = width * self.element;
        let fits =
            [(part.x, part.width, row_pitch), (part.y, part.height, height), (part.z, part.depth, depth)]
                .iter()
                .all(|(at, size, max)| at.checked_add(*size).is_some_and(|end| end <= *max));
        let on_elements = part.x.is_multiple_of(self.element) && part.width.is_multiple_of(self.element);
        if !fits || !on_elements {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let slice_pitch = row_pitch * height;
        let address = self.address + part.x + part.y * row_pitch + part.z * slice_pitch;
        Ok(Region {
            address,
            row_pitch,
            slice_pitch,
            width: part.width,
            height: part.height,
            depth: part.depth,
        })
    }
}

impl Arrays {
    /// Makes an array in a context, with whose memory it is freed at the latest.
    pub(super) fn create(
        &self,
        memory: &Memory,
        context: &Context,
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
    ) -> CuResult<u64> {
        let element = element_bytes(descriptor.Format, descriptor.NumChannels)?;
        let address = memory.allocate(context, Array::bytes(descriptor)? as usize)?;
        let id = handles::next();
        self.arrays.lock().insert(id, Arc::new(Array { descriptor: *descriptor, address, element }));
        Ok(id)
    }

    /// The array of this number.
    pub(super) fn get(&self, id: u64) -> CuResult<Arc<Array>> {
        self.arrays.lock().get(&id).cloned().ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Frees an array.
    pub(super) fn destroy(&self, memory: &Memory, id: u64) -> CuResult<()> {
        let array = self.arrays.lock().remove(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        memory.free(array.address)
    }

    /// How much memory an array takes.
    pub(super) fn requirements(&self, id: u64) -> CuResult<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
        let array = self.get(id)?;
        Ok(CUDA_ARRAY_MEMORY_REQUIREMENTS {
            size: Array::bytes(&array.descriptor)? as usize,
            alignment: 512,
            reserved: [0; 4],
        })
    }

    /// Makes a mipmapped array of up to `count` levels, each half as large as the one before.
    pub(super) fn create_mipmapped(
        &self,
        memory: &Memory,
        context: &Context,
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
        count: u32,
    ) -> CuResult<u64> {
        let largest = extent(descriptor)?.into_iter().max().unwrap_or(1);
        let count = count.clamp(1, 1 + largest.ilog2());
        let halved = |size: usize, level: u32| if size == 0 { 0 } else { (size >> level).max(1) };
        let layered = descriptor.Flags & (LAYERED | CUBE) != 0;
        let mut levels = Vec::new();
        for level in 0..count {
            let depth = if layered { descriptor.Depth } else { halved(descriptor.Depth, level) };
            let part = CUDA_ARRAY3D_DESCRIPTOR {
                Width: halved(descriptor.Width, level),
                Height: halved(descriptor.Height, level),
                Depth: depth,
                ..*descriptor
            };
            match self.create(memory, context, &part) {
                Ok(array) => levels.push(array),
                Err(error) => {
                    for array in levels {
                        // The error to report is the one that ended the making.
                        let _ = self.destroy(memory, array);
                    }
                    return Err(error);
                }
            }
        }
        let id = handles::next();
        self.mipmapped.lock().insert(id, Mipmapped { levels });
        Ok(id)
    }

    /// A level of a mipmapped array.
    pub(super) fn level(&self, id: u64, level: u32) -> CuResult<u64> {
        let mipmapped = self.mipmapped.lock();
        let found = mipmapped.get(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        found.levels.get(level as usize).copied().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
    }

    /// All levels of a mipmapped array, the largest first.
    pub(super) fn levels(&self, id: u64) -> CuResult<Vec<Arc<Array>>> {
        let levels = match self.mipmapped.lock().get(&id) {
            Some(mipmapped) => mipmapped.levels.clone(),
            None => return Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
        };
        levels.into_iter().map(|array| self.get(array)).collect()
    }

    /// Frees a mipmapped array with all levels.
    pub(super) fn destroy_mipmapped(&self, memory: &Memory, id: u64) -> CuResult<()> {
        let mipmapped = self.mipmapped.lock().remove(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        mipmapped.levels.iter().try_for_each(|array| self.destroy(memory, *array))
    }

    /// The memory that a place of a copy means.
    pub(super) fn region(&self, location: &NativeLocation) -> CuResult<Region> {
        match location {
            DeviceLocation::Memory(region) => Ok(*region),
            DeviceLocation::Array(part) => self.get(part.array.value())?.region(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(width: usize, height: usize, depth: usize, flags: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Format: Format::CU_AD_FORMAT_HALF,
            NumChannels: 4,
            Flags: flags,
        }
    }

    #[test]
    fn arrays_that_make_no_sense_are_refused() {
        assert_eq!(Array::bytes(&descriptor(10, 0, 0, 0)), Ok(80));
        assert_eq!(Array::bytes(&descriptor(10, 3, 2, 0)), Ok(480));
        assert_eq!(Array::bytes(&descriptor(10, 0, 2, LAYERED)), Ok(160));
        for (width, height, depth, flags) in
            [(0, 1, 1, 0), (10, 0, 2, 0), (10, 2, 0, LAYERED), (200_000, 0, 0, 0)]
        {
            let refused = Array::bytes(&descriptor(width, height, depth, flags));
            assert_eq!(refused, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        }
        let three = CUDA_ARRAY3D_DESCRIPTOR { NumChannels: 3, ..descriptor(1, 1, 1, 0) };
        assert!(Array::bytes(&three).is_err());
    }

    #[test]
    fn a_box_is_cut_out_of_rows_and_slices() {
        let array = Array { descriptor: descriptor(10, 4, 3, 0), address: 0x1000, element: 8 };
        let part = ArrayBox { array: (), x: 16, y: 1, z: 2, width: 32, height: 3, depth: 1 };
        let region = array.region(&part).unwrap();
        assert_eq!((region.address, region.row_pitch, region.slice_pitch), (0x1000 + 16 + 80 + 640, 80, 320));
        for wrong in [
            ArrayBox { x: 56, ..part },
            ArrayBox { y: 2, ..part },
            ArrayBox { depth: 2, ..part },
            ArrayBox { x: 4, ..part },
            ArrayBox { y: u64::MAX, ..part },
        ] {
            assert!(array.region(&wrong).is_err(), "{wrong:?}");
        }
    }
}
