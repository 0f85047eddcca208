//! Copies within the device, and fills.

use crate::SoftwareGpu;
use crate::operation::{Operation, Pattern};
use causeway_api::handle::{Context, Native, Stream};
use causeway_api::sys::{CUdeviceptr, CUresult};
use causeway_gpu::calls::CopyCalls;
use causeway_gpu::{CuResult, NativeLocation};

impl SoftwareGpu {
    /// A copy between places of the same size, which are checked.
    pub(super) fn copy_operation(
        &self,
        destination: &NativeLocation,
        source: &NativeLocation,
    ) -> CuResult<Operation> {
        if destination.size() != source.size() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Operation::Copy { destination: self.region_of(destination)?, source: self.region_of(source)? })
    }

    /// A fill of `height` rows of `width` elements, `pitch` bytes apart, in memory that is checked.
    pub(super) fn fill_operation(
        &self,
        address: CUdeviceptr,
        pitch: u64,
        pattern: Pattern,
        (width, height): (u64, u64),
    ) -> CuResult<Operation> {
        let region = pattern.region(address, pitch, width, height)?;
        self.check_region(&region)?;
        Ok(Operation::Fill { region, pattern })
    }

    fn fill(
        &self,
        address: CUdeviceptr,
        pitch: usize,
        pattern: Pattern,
        (width, height): (usize, usize),
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let stream = self.stream(stream)?;
        self.context_of(stream)?;
        let fill = self.fill_operation(address, pitch as u64, pattern, (width as u64, height as u64))?;
        self.scheduler.issue(stream, fill)
    }
}

impl CopyCalls for SoftwareGpu {
    fn copy_within_device(
        &self,
        destination: NativeLocation,
        source: NativeLocation,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let stream = self.stream(stream)?;
        self.context_of(stream)?;
        let copy = self.copy_operation(&destination, &source)?;
        self.scheduler.issue(stream, copy)
    }

    /// All contexts share one memory.
    fn copy_between_contexts(
        &self,
        destination: NativeLocation,
        _destination_context: Native<Context>,
        source: NativeLocation,
        _source_context: Native<Context>,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.copy_within_device(destination, source, stream)
    }

    fn cuMemsetD8Async(
        &self,
        address: CUdeviceptr,
        value: u8,
        count: usize,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.fill(address, 0, Pattern::D8(value.to_ne_bytes()), (count, 1), stream)
    }

    fn cuMemsetD16Async(
        &self,
        address: CUdeviceptr,
        value: u16,
        count: usize,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.fill(address, 0, Pattern::D16(value.to_ne_bytes()), (count, 1), stream)
    }

    fn cuMemsetD32Async(
        &self,
        address: CUdeviceptr,
        value: u32,
        count: usize,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.fill(address, 0, Pattern::D32(value.to_ne_bytes()), (count, 1), stream)
    }

    fn cuMemsetD2D8Async(
        &self,
        address: CUdeviceptr,
        pitch: usize,
        value: u8,
        width: usize,
        height: usize,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.fill(address, pitch, Pattern::D8(value.to_ne_bytes()), (width, height), stream)
    }

    fn cuMemsetD2D16Async(
        &self,
        address: CUdeviceptr,
        pitch: usize,
        value: u16,
        width: usize,
        height: usize,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.fill(address, pitch, Pattern::D16(value.to_ne_bytes()), (width, height), stream)
    }

    fn cuMemsetD2D32Async(
        &self,
        address: CUdeviceptr,
        pitch: usize,
        value: u32,
        width: usize,
        height: usize,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.fill(address, pitch, Pattern::D32(value.to_ne_bytes()), (width, height), stream)
    }
}
