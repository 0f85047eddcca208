//! Copies and fills as calls of the driver.

use super::Run;
use crate::driver::{self, Copy2D, Copy3D, Error, Handle};
use crate::program::{BufferKind, CopyForm, Region};
use core::ffi::c_void;
use core::ptr::null_mut;

/// How work is given to the driver.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// An asynchronous entry point, for a stream.
    Stream(Handle),
    /// The synchronous entry point.
    Blocking,
}

impl Run<'_> {
    pub(super) fn fill(&self, to: &Region, value: u32, element: usize, way: Way) -> Result<(), Error> {
        let driver = &self.machine.driver;
        let address = self.device(to);
        let (width, pitch, height) = (to.width / element, to.pitch, to.height);
        let byte = value as u8;
        // SAFETY: the region lies in its buffer.
        unsafe {
            match (way, element, to.is_linear()) {
                (Way::Stream(stream), 1, true) => driver.cuMemsetD8Async(address, byte, width, stream),
                (Way::Stream(stream), 1, false) => {
                    driver.cuMemsetD2D8Async(address, pitch, byte, width, height, stream)
                }
                (Way::Stream(stream), _, true) => driver.cuMemsetD32Async(address, value, width, stream),
                (Way::Stream(stream), _, false) => {
                    driver.cuMemsetD2D32Async(address, pitch, value, width, height, stream)
                }
                (Way::Blocking, 1, true) => driver.cuMemsetD8_v2(address, byte, width),
                (Way::Blocking, 1, false) => driver.cuMemsetD2D8_v2(address, pitch, byte, width, height),
                (Way::Blocking, _, true) => driver.cuMemsetD32_v2(address, value, width),
                (Way::Blocking, _, false) => driver.cuMemsetD2D32_v2(address, pitch, value, width, height),
            }
        }
    }

    /// The address of a region for kernels.
    pub(super) fn device(&self, region: &Region) -> u64 {
        self.places[region.buffer].device() + region.offset as u64
    }

    /// Whether copies name a region by its device address, and that, or its address for the host.
    fn side(&self, region: &Region) -> (bool, u64) {
        let kind = self.program.buffers[region.buffer].kind;
        if kind.is_device() || kind == BufferKind::Managed {
            (true, self.device(region))
        } else {
            (false, self.places[region.buffer].named() as u64 + region.offset as u64)
        }
    }

    pub(super) fn copy(&self, to: &Region, from: &Region, form: CopyForm, way: Way) -> Result<(), Error> {
        let driver = &self.machine.driver;
        let ((to_device, to_address), (from_device, from_address)) = (self.side(to), self.side(from));
        let size = to.width;
        let pointer = |address: u64| core::ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        let memory = |is_device| if is_device { driver::MEMORY_DEVICE } else { driver::MEMORY_HOST };
        // SAFETY: both regions lie in their buffers, which live until the copy is done.
        unsafe {
            match form {
                CopyForm::Directed | CopyForm::Unified => match (way, to_device, from_device) {
                    (Way::Stream(stream), true, true)
                        if self.are_peers(to, from) && form == CopyForm::Directed =>
                    {
                        let context = |region: &Region| {
                            self.machine.contexts[self.program.buffers[region.buffer].device]
                        };
                        driver.cuMemcpyPeerAsync(
                            to_address,
                            context(to),
                            from_address,
                            context(from),
                            size,
                            stream,
                        )
                    }
                    (Way::Stream(stream), true, false) if form == CopyForm::Directed => {
                        driver.cuMemcpyHtoDAsync_v2(to_address, pointer(from_address), size, stream)
                    }
                    (Way::Stream(stream), false, true) if form == CopyForm::Directed => {
                        driver.cuMemcpyDtoHAsync_v2(pointer(to_address), from_address, size, stream)
                    }
                    (Way::Stream(stream), true, true) if form == CopyForm::Directed => {
                        driver.cuMemcpyDtoDAsync_v2(to_address, from_address, size, stream)
                    }
                    (Way::Stream(stream), ..) => driver.cuMemcpyAsync(to_address, from_address, size, stream),
                    (Way::Blocking, true, false) if form == CopyForm::Directed => {
                        driver.cuMemcpyHtoD_v2(to_address, pointer(from_address), size)
                    }
                    (Way::Blocking, false, true) if form == CopyForm::Directed => {
                        driver.cuMemcpyDtoH_v2(pointer(to_address), from_address, size)
                    }
                    (Way::Blocking, true, true) if form == CopyForm::Directed => {
                        driver.cuMemcpyDtoD_v2(to_address, from_address, size)
                    }
                    (Way::Blocking, ..) => driver.cuMemcpy(to_address, from_address, size),
                },
                CopyForm::Rows => {
                    let copy = Copy2D {
                        src_x: 0,
                        src_y: 0,
                        src_type: memory(from_device),
                        src_host: pointer(from_address),
                        src_device: from_address,
                        src_array: null_mut(),
                        src_pitch: from.pitch,
                        dst_x: 0,
                        dst_y: 0,
                        dst_type: memory(to_device),
                        dst_host: pointer(to_address),
                        dst_device: to_address,
                        dst_array: null_mut(),
                        dst_pitch: to.pitch,
                        width: to.width,
                        height: to.height,
                    };
                    match way {
                        Way::Stream(stream) => driver.cuMemcpy2DAsync_v2(&raw const copy, stream),
                        Way::Blocking => driver.cuMemcpy2D_v2(&raw const copy),
                    }
                }
                CopyForm::Slices => {
                    let copy = Copy3D {
                        src_x: 0,
                        src_y: 0,
                        src_z: 0,
                        src_lod: 0,
                        src_type: memory(from_device),
                        src_host: pointer(from_address),
                        src_device: from_address,
                        src_array: null_mut(),
                        reserved0: null_mut(),
                        src_pitch: from.pitch,
                        src_height: from.slice_rows,
                        dst_x: 0,
                        dst_y: 0,
                        dst_z: 0,
                        dst_lod: 0,
                        dst_type: memory(to_device),
                        dst_host: pointer(to_address),
                        dst_device: to_address,
                        dst_array: null_mut(),
                        reserved1: null_mut(),
                        dst_pitch: to.pitch,
                        dst_height: to.slice_rows,
                        width: to.width,
                        height: to.height,
                        depth: to.depth,
                    };
                    match way {
                        Way::Stream(stream) => driver.cuMemcpy3DAsync_v2(&raw const copy, stream),
                        Way::Blocking => driver.cuMemcpy3D_v2(&raw const copy),
                    }
                }
            }
        }
    }

    fn are_peers(&self, to: &Region, from: &Region) -> bool {
        let device = |region: &Region| self.program.buffers[region.buffer].device;
        device(to) != device(from)
    }
}
