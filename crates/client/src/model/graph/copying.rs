//! Copies of nodes: as `cuda.h` describes them, from places that the session knows.

use crate::model::handles::RawHandle as _;
use crate::model::region::Endpoint;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUmemorytype};
use causeway_api::types::DeviceLocation;
use core::ffi::c_void;

/// A copy as the program describes it.
#[derive(Clone, Copy)]
pub struct Copying {
    /// The description.
    pub parameters: CUDA_MEMCPY3D,
    /// The context that it was given for.
    pub context: Handle<Context>,
}

// SAFETY: addresses of the program, which only code reads from that says why it may.
unsafe impl Send for Copying {}
// SAFETY: addresses of the program, which only code reads from that says why it may.
unsafe impl Sync for Copying {}

/// One side of a copy as `cuda.h` describes it.
struct CopyBox {
    kind: CUmemorytype,
    host: *mut c_void,
    device: CUdeviceptr,
    array: CUarray,
    /// Bytes, rows and slices before the box.
    offset: [usize; 3],
    /// Bytes from a row to the next.
    pitch: usize,
    /// Rows from a slice to the next.
    rows: usize,
    /// Width in bytes, height and depth.
    size: [usize; 3],
}

impl CopyBox {
    /// A place; nothing when its slices do not begin with a row.
    fn of(endpoint: &Endpoint) -> Option<Self> {
        let nowhere = Self {
            kind: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            host: core::ptr::null_mut(),
            device: 0,
            array: core::ptr::null_mut(),
            offset: [0; 3],
            pitch: 0,
            rows: 0,
            size: [0; 3],
        };
        let rows = |pitch: usize, slice_pitch: usize, depth: usize| match (depth, pitch) {
            (..=1, _) => Some(0),
            (_, 0) => None,
            _ => slice_pitch.is_multiple_of(pitch).then(|| slice_pitch / pitch),
        };
        match endpoint {
            Endpoint::Device(DeviceLocation::Memory(region)) => {
                let size = [region.width as usize, region.height as usize, region.depth as usize];
                let pitch = region.row_pitch as usize;
                let rows = rows(pitch, region.slice_pitch as usize, size[2])?;
                Some(Self { device: region.address, pitch, rows, size, ..nowhere })
            }
            Endpoint::Device(DeviceLocation::Array(part)) => {
                let kind = CUmemorytype::CU_MEMORYTYPE_ARRAY;
                let offset = [part.x as usize, part.y as usize, part.z as usize];
                let size = [part.width as usize, part.height as usize, part.depth as usize];
                Some(Self { kind, array: part.array.as_raw(), offset, size, ..nowhere })
            }
            Endpoint::Host(region) => {
                let kind = CUmemorytype::CU_MEMORYTYPE_HOST;
                let rows = rows(region.row_pitch, region.slice_pitch, region.depth)?;
                let size = [region.width, region.height, region.depth];
                let host = region.address.cast();
                Some(Self { kind, host, pitch: region.row_pitch, rows, size, ..nowhere })
            }
        }
    }
}

impl Copying {
    /// A copy between places, as `cuda.h` describes it; nothing when it cannot.
    pub fn between(destination: &Endpoint, source: &Endpoint, context: Handle<Context>) -> Option<Self> {
        let (to, from) = (CopyBox::of(destination)?, CopyBox::of(source)?);
        let parameters = CUDA_MEMCPY3D {
            dstXInBytes: to.offset[0],
            dstY: to.offset[1],
            dstZ: to.offset[2],
            dstMemoryType: to.kind,
            dstHost: to.host,
            dstDevice: to.device,
            dstArray: to.array,
            dstPitch: to.pitch,
            dstHeight: to.rows,
            srcXInBytes: from.offset[0],
            srcY: from.offset[1],
            srcZ: from.offset[2],
            srcMemoryType: from.kind,
            srcHost: from.host,
            srcDevice: from.device,
            srcArray: from.array,
            srcPitch: from.pitch,
            srcHeight: from.rows,
            WidthInBytes: from.size[0],
            Height: from.size[1],
            Depth: from.size[2],
            ..CUDA_MEMCPY3D::default()
        };
        Some(Self { parameters, context })
    }

    /// Whether the copy is of one dimension; others cannot be changed in an executable graph.
    pub fn is_linear(&self) -> bool {
        self.parameters.Height <= 1 && self.parameters.Depth <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::region::HostRegion;
    use causeway_api::types::Region;

    #[test]
    fn a_captured_copy_is_described_as_the_program_would() {
        let region =
            Region { address: 0x5000, row_pitch: 64, slice_pitch: 640, width: 8, height: 5, depth: 2 };
        let host = HostRegion::linear(0x9000 as *mut u8, 80);
        let context = Handle::NULL;
        let copying =
            Copying::between(&Endpoint::Device(region.into()), &Endpoint::Device(region.into()), context)
                .unwrap();
        let described = copying.parameters;
        assert_eq!((described.dstPitch, described.dstHeight, described.Depth), (64, 10, 2));
        assert!(!copying.is_linear());
        let source = Region::linear(0x5000, 80);
        let copying =
            Copying::between(&Endpoint::Host(host), &Endpoint::Device(source.into()), context).unwrap();
        assert_eq!(copying.parameters.dstMemoryType, CUmemorytype::CU_MEMORYTYPE_HOST);
        assert!(copying.is_linear() && copying.parameters.WidthInBytes == 80);
        let odd = Region { slice_pitch: 641, ..region };
        assert!(
            Copying::between(&Endpoint::Device(odd.into()), &Endpoint::Device(region.into()), context)
                .is_none()
        );
    }
}
