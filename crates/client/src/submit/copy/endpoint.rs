//! Endpoints of a copy: the box that a program describes, its owning context, and the synchronisation mode.

use crate::model::region::{Endpoint, HostRegion};
use crate::model::{array, context, memory};
use crate::submit::device_memory;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUmemorytype, CUresult};
use causeway_api::types::{DeviceLocation, Region};
use core::ffi::c_void;

/// When a copying call returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// When CUDA's synchronous copies do.
    Synchronous,
    /// When the copy has been put into its stream.
    Asynchronous,
    /// As [`Asynchronous`](Self::Asynchronous), but the source need not wait for its turn in the stream.
    SourceAtOnce,
    /// As an asynchronous one; memory that is not pinned stays valid and as it is until the stream has passed
    /// the copy, too, since a launch of a graph copies and not the call that made the copy's node.
    InGraph,
}

/// One side of a copy of up to three dimensions, as the program describes it.
#[derive(Clone, Copy)]
pub struct CopyBox {
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

impl CopyBox {
    /// Where a box of this width, height and depth lies.
    pub fn endpoint(&self, [width, height, depth]: [usize; 3]) -> Result<Endpoint, CUresult> {
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        if self.kind == CUmemorytype::CU_MEMORYTYPE_ARRAY {
            let part = array::resolve(self.array)?.part(self.offset, [width, height, depth])?;
            return Ok(Endpoint::Device(DeviceLocation::Array(part)));
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
            // Memory of a device that the program calls its own.
            CUmemorytype::CU_MEMORYTYPE_HOST => {
                (device_memory::is_of_device(self.host as usize), self.host as u64)
            }
            CUmemorytype::CU_MEMORYTYPE_DEVICE => (true, self.device),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (memory::is_known(self.device), self.device),
            _ => return Err(invalid),
        };
        if address == 0 {
            return Err(invalid);
        }
        let address = address.checked_add(start as u64).ok_or(invalid)?;
        if is_device {
            device_memory::check_range(address, length as u64)?;
            let region = Region {
                address,
                row_pitch: pitch as u64,
                slice_pitch: slice as u64,
                width: width as u64,
                height: height as u64,
                depth: depth as u64,
            };
            return Ok(Endpoint::Device(region.into()));
        }
        let address = address as *mut u8;
        Ok(Endpoint::Host(HostRegion { address, row_pitch: pitch, slice_pitch: slice, width, height, depth }))
    }
}

/// Destination and source of a copy; nothing when it has no bytes.
pub fn endpoints(copy: &CUDA_MEMCPY3D) -> Result<Option<(Endpoint, Endpoint)>, CUresult> {
    let size = [copy.WidthInBytes, copy.Height, copy.Depth];
    if size.contains(&0) {
        return Ok(None);
    }
    let (destination, source) = copy_boxes(copy)?;
    Ok(Some((destination.endpoint(size)?, source.endpoint(size)?)))
}

/// Destination and source of a three-dimensional copy.
fn copy_boxes(copy: &CUDA_MEMCPY3D) -> Result<(CopyBox, CopyBox), CUresult> {
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let source = CopyBox {
        kind: copy.srcMemoryType,
        host: copy.srcHost.cast_mut(),
        device: copy.srcDevice,
        array: copy.srcArray,
        offset: [copy.srcXInBytes, copy.srcY, copy.srcZ],
        pitch: copy.srcPitch,
        height: copy.srcHeight,
    };
    let destination = CopyBox {
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

/// The context that a place on a device belongs to; nothing for the program's memory, and for addresses that
/// only the stream's server can judge.
pub(super) fn owning_context(endpoint: &Endpoint) -> Option<Handle<Context>> {
    match endpoint {
        Endpoint::Host(_) => None,
        Endpoint::Device(DeviceLocation::Array(part)) => array::context_of(part.array),
        Endpoint::Device(DeviceLocation::Memory(region)) => owner_of(region.address),
    }
}

/// The context of the memory at an address; nothing for addresses that only a server can judge.
pub fn owner_of(address: CUdeviceptr) -> Option<Handle<Context>> {
    let piece = memory::find(address)?;
    let known = Some(piece.context).filter(|context| !context.is_null());
    known.or_else(|| context::primary(piece.device).ok().map(|primary| primary.handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(pitch: usize, height: usize, offset: [usize; 3]) -> CopyBox {
        let kind = CUmemorytype::CU_MEMORYTYPE_DEVICE;
        let (host, array) = (core::ptr::null_mut(), core::ptr::null_mut());
        CopyBox { kind, host, device: 0x5000, array, offset, pitch, height }
    }

    #[test]
    fn offset_moves_the_box_and_pitch_has_a_default() {
        let Ok(Endpoint::Device(DeviceLocation::Memory(region))) =
            side(64, 10, [4, 2, 3]).endpoint([8, 5, 2])
        else {
            panic!()
        };
        assert_eq!(
            (region.address, region.row_pitch, region.slice_pitch),
            (0x5000 + 4 + 128 + 1920, 64, 640)
        );
        let Ok(Endpoint::Device(DeviceLocation::Memory(region))) = side(0, 0, [0; 3]).endpoint([8, 5, 2])
        else {
            panic!()
        };
        assert!(region.is_contiguous());
    }

    #[test]
    fn boxes_that_do_not_fit_are_refused() {
        assert!(side(7, 0, [0; 3]).endpoint([8, 2, 1]).is_err());
        assert!(side(8, 1, [0; 3]).endpoint([8, 2, 2]).is_err());
        assert!(side(usize::MAX, 2, [0; 3]).endpoint([8, 2, 2]).is_err());
        let null = CopyBox { device: 0, ..side(8, 2, [0; 3]) };
        assert!(null.endpoint([8, 2, 1]).is_err());
    }
}
