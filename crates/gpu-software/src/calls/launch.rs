//! Launches, and how many blocks of one fit.

use crate::context::Context;
use crate::launch::{self, Launch};
use crate::operation::Operation;
use crate::{SoftwareGpu, attributes, occupancy};
use causeway_api::handle::{Function, Native, Stream};
use causeway_api::sys::{CUdevice, CUoccupancy_flags, CUresult};
use causeway_api::types::{LaunchAttribute, LaunchShape};
use causeway_gpu::CuResult;
use causeway_gpu::calls::LaunchCalls;

impl SoftwareGpu {
    /// A launch of a function in a context, checked.
    pub(super) fn launch_of(
        &self,
        context: &Context,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
        parameters: &[u8],
    ) -> CuResult<Launch> {
        let function = self.modules.function(function.value())?;
        let module = self.modules.module_of(&function, context)?;
        let textures = self.textures().table();
        let on = (context, self.capability);
        Launch::new(function, module, shape, attributes, parameters, textures, on)
    }

    /// The current context's device, which a kernel's attributes depend on; the first one where there is
    /// none.
    fn current_device(&self) -> CUdevice {
        self.contexts.current().map_or(0, |context| context.device)
    }
}

impl LaunchCalls for SoftwareGpu {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &self,
        function: Native<Function>,
        threads: i32,
        dynamic_shared: usize,
    ) -> CuResult<i32> {
        let device = self.current_device();
        let needs = self.modules.function(function.value())?.needs(device);
        occupancy::active_blocks(&needs, threads, dynamic_shared)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &self,
        function: Native<Function>,
        threads: i32,
        dynamic_shared: usize,
        flags: u32,
    ) -> CuResult<i32> {
        if flags & !CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE.0 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, dynamic_shared)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(
        &self,
        function: Native<Function>,
        blocks: i32,
        threads: i32,
    ) -> CuResult<usize> {
        let device = self.current_device();
        let needs = self.modules.function(function.value())?.needs(device);
        occupancy::available_shared(&needs, blocks, threads)
    }

    fn occupancy_clusters(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
    ) -> CuResult<i32> {
        let (function, device) = (self.modules.function(function.value())?, self.current_device());
        let cluster = launch::resolve_cluster(&function, device, shape.grid, attributes)?;
        // As NVIDIA's driver (580) has it, where nobody asks for clusters.
        let Some(cluster) = cluster else { return Ok(0) };
        let shared = shape.shared_bytes as usize;
        let blocks = occupancy::active_blocks(&function.needs(device), threads(&shape), shared)?;
        let each = occupancy::active_clusters(blocks.cast_unsigned(), cluster.iter().product());
        Ok((each * attributes::cores()).cast_signed())
    }

    fn occupancy_cluster_size(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
    ) -> CuResult<i32> {
        let (function, device) = (self.modules.function(function.value())?, self.current_device());
        launch::resolve_cluster(&function, device, shape.grid, attributes)?;
        let shared = shape.shared_bytes as usize;
        let blocks = occupancy::active_blocks(&function.needs(device), threads(&shape), shared)?;
        Ok(if blocks == 0 { 0 } else { function.max_cluster_blocks(device).cast_signed() })
    }

    fn launch(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        stream: Native<Stream>,
        attributes: &[LaunchAttribute],
        parameters: &[u8],
    ) -> CuResult<()> {
        let stream = self.stream(stream)?;
        let context = self.context_of(stream)?;
        let launch = self.launch_of(&context, function, shape, attributes, parameters)?;
        self.scheduler.issue(stream, Operation::Launch(launch))
    }
}

/// Threads of a block, as many as can be counted.
fn threads(shape: &LaunchShape) -> i32 {
    let threads = shape.block.iter().fold(1_u32, |threads, &count| threads.saturating_mul(count));
    i32::try_from(threads).unwrap_or(i32::MAX)
}
