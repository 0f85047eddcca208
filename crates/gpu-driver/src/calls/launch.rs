//! Kernel launches.

use crate::driver::Driver;
use causeway_api::handle::{Function, Native, Stream};
use causeway_api::sys::{
    CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT, CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT, CU_LAUNCH_PARAM_END_AS_INT,
    CUlaunchAttribute, CUlaunchAttributeID as Id, CUlaunchConfig, CUresult,
};
use causeway_api::types::{LaunchAttribute, LaunchShape};
use causeway_gpu::CuResult;
use causeway_gpu::calls::LaunchCalls;
use core::ffi::c_void;

/// The attributes that a client may set. The others hold handles or addresses of the program, which must not
/// reach the driver as they are.
const PLAIN_ATTRIBUTES: &[Id] = &[
    Id::CU_LAUNCH_ATTRIBUTE_IGNORE,
    Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    Id::CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY,
    Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    Id::CU_LAUNCH_ATTRIBUTE_PRIORITY,
    Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    Id::CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    Id::CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    Id::CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
];

/// Whether an attribute holds numbers alone.
pub(crate) fn is_plain(id: u32) -> bool {
    PLAIN_ATTRIBUTES.contains(&Id(id))
}

/// An attribute as the driver has it.
pub(crate) fn attribute(attribute: &LaunchAttribute) -> CuResult<CUlaunchAttribute> {
    let id = Id(attribute.id);
    if !is_plain(attribute.id) {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut native = CUlaunchAttribute { id, ..CUlaunchAttribute::default() };
    const { assert!(size_of::<causeway_api::sys::CUlaunchAttributeValue>() == 64) };
    // SAFETY: the union is 64 bytes of plain numbers for the attributes that were let through.
    unsafe {
        core::ptr::copy_nonoverlapping(
            attribute.value.as_ptr(),
            (&raw mut native.value).cast::<u8>(),
            attribute.value.len(),
        );
    }
    Ok(native)
}

/// A buffer with all parameters of a kernel, in the form in which the driver takes it whole.
pub(crate) struct ParameterBuffer {
    list: [*mut c_void; 5],
    bytes: usize,
}

impl ParameterBuffer {
    pub(crate) fn new(params: &[u8]) -> Self {
        let list = [
            CU_LAUNCH_PARAM_BUFFER_POINTER_AS_INT as usize as *mut c_void,
            params.as_ptr().cast_mut().cast(),
            CU_LAUNCH_PARAM_BUFFER_SIZE_AS_INT as usize as *mut c_void,
            core::ptr::null_mut(),
            CU_LAUNCH_PARAM_END_AS_INT as usize as *mut c_void,
        ];
        Self { list, bytes: params.len() }
    }

    /// What is passed as `extra`, null for a kernel without parameters; valid while `self` stays where it is
    /// and the parameters live.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut *mut c_void {
        if self.bytes == 0 {
            return core::ptr::null_mut();
        }
        self.list[3] = (&raw mut self.bytes).cast();
        self.list.as_mut_ptr()
    }
}

impl LaunchCalls for Driver {
    causeway_api_macros::driver_calls!(launch);

    /// Launches a function or a kernel; the driver takes one for the other and reads the parameters from one
    /// buffer laid out as `cuFuncGetParamInfo` says, whose size it checks.
    fn launch(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        stream: Native<Stream>,
        attributes: &[LaunchAttribute],
        params: &[u8],
    ) -> CuResult<()> {
        let mut parameters = ParameterBuffer::new(params);
        let extra = parameters.as_mut_ptr();
        let (grid, block) = (shape.grid, shape.block);
        if attributes.is_empty() {
            // SAFETY: `extra` names a buffer and its size, both alive during the call, in which the driver
            // copies.
            return unsafe {
                self.functions.cuLaunchKernel(
                    function.as_raw(),
                    grid[0],
                    grid[1],
                    grid[2],
                    block[0],
                    block[1],
                    block[2],
                    shape.shared_bytes,
                    stream.as_raw(),
                    core::ptr::null_mut(),
                    extra,
                )
            };
        }
        let mut attributes = attributes.iter().map(attribute).collect::<CuResult<Vec<_>>>()?;
        let config = configuration(&shape, stream, &mut attributes);
        // SAFETY: `extra` names a buffer and its size, from which the driver copies during the call; the
        // configuration and its attributes are locals too.
        unsafe { self.functions.cuLaunchKernelEx(&config, function.as_raw(), core::ptr::null_mut(), extra) }
    }

    /// How many clusters of a launch fit onto the device at the same time.
    fn occupancy_clusters(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
    ) -> CuResult<i32> {
        query_occupancy(&shape, attributes, |config, clusters| {
            // SAFETY: the function is the driver's own; the configuration and the result live through the
            // call.
            unsafe { self.functions.cuOccupancyMaxActiveClusters(clusters, function.as_raw(), config) }
        })
    }

    /// The largest cluster of a launch that fits onto the device.
    fn occupancy_cluster_size(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
    ) -> CuResult<i32> {
        query_occupancy(&shape, attributes, |config, size| {
            // SAFETY: the function is the driver's own; the configuration and the result live through the
            // call.
            unsafe { self.functions.cuOccupancyMaxPotentialClusterSize(size, function.as_raw(), config) }
        })
    }
}

/// What `ask` answers about a launch of this shape.
fn query_occupancy(
    shape: &LaunchShape,
    attributes: &[LaunchAttribute],
    ask: impl FnOnce(&CUlaunchConfig, &mut i32) -> CuResult<()>,
) -> CuResult<i32> {
    let mut attributes = attributes.iter().map(attribute).collect::<CuResult<Vec<_>>>()?;
    let config = configuration(shape, Native::NULL, &mut attributes);
    let mut answer = 0;
    ask(&config, &mut answer)?;
    Ok(answer)
}

/// A launch as the driver has it; it points to `attributes`.
fn configuration(
    shape: &LaunchShape,
    stream: Native<Stream>,
    attributes: &mut [CUlaunchAttribute],
) -> CUlaunchConfig {
    let (grid, block) = (shape.grid, shape.block);
    CUlaunchConfig {
        gridDimX: grid[0],
        gridDimY: grid[1],
        gridDimZ: grid[2],
        blockDimX: block[0],
        blockDimY: block[1],
        blockDimZ: block[2],
        sharedMemBytes: shape.shared_bytes,
        hStream: stream.as_raw(),
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_with_handles_are_refused() {
        let mut value = [0; 64];
        value[0] = 3;
        let cluster = attribute(&LaunchAttribute { id: 4, value }).unwrap();
        // SAFETY: the attribute is a cluster dimension.
        assert_eq!(unsafe { cluster.value.clusterDim.x }, 3);
        for id in [7, 12, 13, 99] {
            assert!(attribute(&LaunchAttribute { id, value }).is_err(), "attribute {id}");
        }
    }
}
