//! Arrays.

use crate::SoftwareGpu;
use causeway_api::handle::{Array, MipmappedArray, Native};
use causeway_api::sys::{CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUdevice};
use causeway_gpu::CuResult;
use causeway_gpu::calls::ArrayCalls;

impl ArrayCalls for SoftwareGpu {
    fn cuArray3DCreate_v2(&self, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CuResult<Native<Array>> {
        let context = self.contexts.current()?;
        self.arrays.create(&self.memory, &context, descriptor).map(Native::from_value)
    }

    fn cuArray3DGetDescriptor_v2(&self, array: Native<Array>) -> CuResult<CUDA_ARRAY3D_DESCRIPTOR> {
        Ok(self.arrays.get(array.value())?.descriptor)
    }

    fn cuArrayGetMemoryRequirements(
        &self,
        array: Native<Array>,
        device: CUdevice,
    ) -> CuResult<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
        self.check_device(device)?;
        self.arrays.requirements(array.value())
    }

    fn cuArrayDestroy(&self, array: Native<Array>) -> CuResult<()> {
        self.arrays.destroy(&self.memory, array.value())
    }

    fn cuMipmappedArrayCreate(
        &self,
        descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
        levels: u32,
    ) -> CuResult<Native<MipmappedArray>> {
        let context = self.contexts.current()?;
        self.arrays.create_mipmapped(&self.memory, &context, descriptor, levels).map(Native::from_value)
    }

    fn cuMipmappedArrayGetLevel(&self, array: Native<MipmappedArray>, level: u32) -> CuResult<Native<Array>> {
        self.arrays.level(array.value(), level).map(Native::from_value)
    }

    fn cuMipmappedArrayDestroy(&self, array: Native<MipmappedArray>) -> CuResult<()> {
        self.arrays.destroy_mipmapped(&self.memory, array.value())
    }
}
