//! The calls of the declaration list, each handed to the part of the device that it concerns.

use super::attributes::PRIORITIES;
use super::graph::Node;
use super::launch::Launch;
use super::operation::{Operation, Pattern, Value};
use super::stream::StreamKind;
use super::{SoftwareGpu, handles, occupancy, virtual_memory};
use crate::{Calls, CuResult, NativePlace};
use causeway_api::handle::{
    Allocation, Array, Context, Event, Function, Graph as GraphHandle, GraphExec, Kernel, Library, LinkState,
    MemoryPool, MipmappedArray, Module, Native, Stream,
};
use causeway_api::sys::{
    CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY3D_DESCRIPTOR, CUctx_flags, CUdevice, CUdeviceptr,
    CUfunc_cache, CUfunction_attribute, CUjitInputType, CUlimit, CUmemPool_attribute, CUoccupancy_flags,
    CUresult, CUsharedconfig, CUstream_flags,
};
use causeway_api::types::{
    AddressAccess, AllocationProperties, Fill, FunctionInfo, GraphEdge, JitOptions, JitReport,
    LaunchAttribute, LaunchShape, Region, ValueOperation,
};

impl SoftwareGpu {
    /// Fills `height` rows of `width` elements, `pitch` bytes apart.
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
        let element = pattern.bytes().len() as u64;
        let pitch = if height > 1 { pitch as u64 } else { 0 };
        if !address.is_multiple_of(element) || !pitch.is_multiple_of(element) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let width = element.checked_mul(width as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let region =
            Region { address, row_pitch: pitch, slice_pitch: 0, width, height: height as u64, depth: 1 };
        self.check_region(&region)?;
        self.scheduler.issue(stream, Operation::Fill { region, pattern })
    }
}

impl Calls for SoftwareGpu {
    // Hints about caches: there is nothing that they could change.

    fn cuCtxSetCacheConfig(&self, _config: CUfunc_cache) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    fn cuCtxResetPersistingL2Cache(&self) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    fn cuCtxSetSharedMemConfig(&self, _config: CUsharedconfig) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    fn cuKernelSetCacheConfig(
        &self,
        kernel: Native<Kernel>,
        _config: CUfunc_cache,
        device: CUdevice,
    ) -> CuResult<()> {
        self.check_device(device)?;
        self.modules.function(kernel.value()).map(drop)
    }

    fn cuFuncSetCacheConfig(&self, function: Native<Function>, _config: CUfunc_cache) -> CuResult<()> {
        self.modules.function(function.value()).map(drop)
    }

    fn cuFuncSetSharedMemConfig(&self, function: Native<Function>, _config: CUsharedconfig) -> CuResult<()> {
        self.modules.function(function.value()).map(drop)
    }

    // Contexts.

    fn primary_context_retain(&self, device: CUdevice, _flags: u32) -> CuResult<Native<Context>> {
        self.check_device(device)?;
        Ok(Native::from_value(self.contexts.retain_primary(&self.scheduler, device).id))
    }

    fn primary_context_release(&self, context: Native<Context>, device: CUdevice) -> CuResult<()> {
        self.check_device(device)?;
        if let Some(context) = self.contexts.release_primary(device, context)? {
            self.tear_down(&context);
        }
        Ok(())
    }

    fn context_create(&self, device: CUdevice, flags: u32) -> CuResult<Native<Context>> {
        self.check_device(device)?;
        if flags & !CUctx_flags::CU_CTX_FLAGS_MASK.0 != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Native::from_value(self.contexts.create(&self.scheduler, device).id))
    }

    fn context_limit_get(&self, limit: CUlimit) -> CuResult<usize> {
        self.contexts.current()?.limit(limit)
    }

    fn context_limit_set(&self, limit: CUlimit, value: usize) -> CuResult<()> {
        self.contexts.current()?.set_limit(limit, value)
    }

    // All devices share their memory, so there is nothing to enable; the client keeps count of it.

    fn cuCtxEnablePeerAccess(&self, _peer: Native<Context>, _flags: u32) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    fn cuCtxDisablePeerAccess(&self, _peer: Native<Context>) -> CuResult<()> {
        self.contexts.current().map(drop)
    }

    // Modules, libraries and functions.

    fn module_load(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Native<Module>> {
        let context = self.contexts.current()?;
        self.modules.load_module(&context, form, options, image).map(Native::from_value)
    }

    fn jit_report(&self, report: u64) -> CuResult<JitReport> {
        Ok(self.modules.reports.take(report))
    }

    fn module_unload(&self, module: Native<Module>) -> CuResult<()> {
        self.modules.unload_module(module.value())
    }

    fn module_function(
        &self,
        module: Native<Module>,
        name: &str,
    ) -> CuResult<(Native<Function>, FunctionInfo)> {
        let (id, info) = self.modules.module_function(module.value(), name)?;
        Ok((Native::from_value(id), info))
    }

    fn module_global(&self, module: Native<Module>, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        self.modules.module_global(module.value(), name)
    }

    fn module_function_names(&self, module: Native<Module>) -> CuResult<Vec<String>> {
        self.modules.module_names(module.value())
    }

    fn cuModuleGetFunctionCount(&self, module: Native<Module>) -> CuResult<u32> {
        Ok(self.modules.module_names(module.value())?.len() as u32)
    }

    fn library_load(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Native<Library>> {
        self.modules.load_library(form, options, image).map(Native::from_value)
    }

    fn library_unload(&self, library: Native<Library>) -> CuResult<()> {
        self.modules.unload_library(library.value())
    }

    fn library_kernel(
        &self,
        library: Native<Library>,
        name: &str,
    ) -> CuResult<(Native<Kernel>, FunctionInfo)> {
        let (id, info) = self.modules.library_kernel(library.value(), name)?;
        Ok((Native::from_value(id), info))
    }

    fn library_module(&self, library: Native<Library>) -> CuResult<Native<Module>> {
        let context = self.contexts.current()?;
        self.modules.library_module(library.value(), &context).map(Native::from_value)
    }

    fn library_global(&self, library: Native<Library>, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        self.modules.library_global(library.value(), name, &*self.contexts.current()?)
    }

    fn library_kernel_names(&self, library: Native<Library>) -> CuResult<Vec<String>> {
        self.modules.library_names(library.value())
    }

    fn cuLibraryGetKernelCount(&self, library: Native<Library>) -> CuResult<u32> {
        Ok(self.modules.library_names(library.value())?.len() as u32)
    }

    fn kernel_function(&self, kernel: Native<Kernel>) -> CuResult<Native<Function>> {
        let context = self.contexts.current()?;
        self.modules.kernel_function(kernel.value(), &context).map(Native::from_value)
    }

    fn link_create(&self, options: &JitOptions) -> CuResult<Native<LinkState>> {
        self.contexts.current()?;
        Ok(Native::from_value(self.links.create(options)))
    }

    fn link_add(
        &self,
        state: Native<LinkState>,
        kind: CUjitInputType,
        _name: &str,
        _options: &JitOptions,
        data: &[u8],
    ) -> CuResult<()> {
        self.links.add(state.value(), kind, data, &self.modules.reports)
    }

    fn link_complete(&self, state: Native<LinkState>) -> CuResult<usize> {
        self.links.complete(state.value(), &self.modules.reports)
    }

    fn link_result(&self, state: Native<LinkState>, start: usize, length: usize) -> CuResult<Vec<u8>> {
        self.links.piece(state.value(), start, length)
    }

    fn link_destroy(&self, state: Native<LinkState>) -> CuResult<()> {
        self.links.destroy(state.value())
    }

    fn function_attribute_set(
        &self,
        function: Native<Function>,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        self.modules.function(function.value())?.set_attribute(attribute, value)
    }

    fn kernel_attribute_set(
        &self,
        kernel: Native<Kernel>,
        device: CUdevice,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        self.check_device(device)?;
        self.modules.function(kernel.value())?.set_attribute(attribute, value)
    }

    fn cuFuncLoad(&self, function: Native<Function>) -> CuResult<()> {
        let context = self.contexts.current()?;
        let function = self.modules.function(function.value())?;
        self.modules.module_of(&function, &context).map(drop)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &self,
        function: Native<Function>,
        threads: i32,
        dynamic_shared: usize,
    ) -> CuResult<i32> {
        let needs = self.modules.function(function.value())?.needs();
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
        let needs = self.modules.function(function.value())?.needs();
        occupancy::available_shared(&needs, blocks, threads)
    }

    // Memory.

    fn cuMemGetInfo_v2(&self) -> CuResult<(usize, usize)> {
        self.contexts.current()?;
        Ok(self.memory.info())
    }

    fn memory_allocate(&self, size: usize) -> CuResult<CUdeviceptr> {
        self.memory.allocate(&*self.contexts.current()?, size)
    }

    fn memory_allocate_async(
        &self,
        size: usize,
        pool: Native<MemoryPool>,
        stream: Native<Stream>,
    ) -> CuResult<CUdeviceptr> {
        let stream = self.stream(stream)?;
        self.memory.allocate_async(&*self.context_of(stream)?, size, pool.value(), stream)
    }

    fn memory_free_async(&self, address: CUdeviceptr, stream: Native<Stream>) -> CuResult<()> {
        self.memory.free_async(address, self.stream(stream)?)
    }

    fn memory_block_create(
        &self,
        address: CUdeviceptr,
        size: usize,
        device: CUdevice,
        accessors: &[i32],
    ) -> CuResult<Native<Allocation>> {
        self.check_device(device)?;
        accessors.iter().try_for_each(|accessor| self.check_device(*accessor))?;
        self.virtual_memory.create_block(address, size as u64, device).map(Native::from_value)
    }

    fn memory_block_release(
        &self,
        block: Native<Allocation>,
        address: CUdeviceptr,
        size: usize,
    ) -> CuResult<()> {
        let unmapped = self.virtual_memory.unmap(address, size as u64);
        self.virtual_memory.release(block.value()).and(unmapped)
    }

    fn address_window_open(&self) -> CuResult<()> {
        // Reserved from the start.
        Ok(())
    }

    fn address_access(&self, address: CUdeviceptr, size: usize, access: &[AddressAccess]) -> CuResult<()> {
        access.iter().try_for_each(|entry| self.check_device(entry.location_id))?;
        self.virtual_memory.set_access(address, size as u64, access)
    }

    fn allocation_create(
        &self,
        size: usize,
        properties: AllocationProperties,
    ) -> CuResult<Native<Allocation>> {
        virtual_memory::check(&properties)?;
        self.check_device(properties.location_id)?;
        self.virtual_memory.create(size as u64, properties.location_id).map(Native::from_value)
    }

    fn allocation_release(&self, allocation: Native<Allocation>) -> CuResult<()> {
        self.virtual_memory.release(allocation.value())
    }

    fn allocation_map(
        &self,
        allocation: Native<Allocation>,
        address: CUdeviceptr,
        size: usize,
        offset: usize,
    ) -> CuResult<()> {
        self.virtual_memory.map(allocation.value(), address, size as u64, offset as u64)
    }

    fn allocation_unmap(&self, address: CUdeviceptr, size: usize) -> CuResult<()> {
        self.virtual_memory.unmap(address, size as u64)
    }

    fn allocation_granularity(&self, properties: AllocationProperties, _option: u32) -> CuResult<usize> {
        virtual_memory::check(&properties)?;
        self.check_device(properties.location_id)?;
        Ok(virtual_memory::GRANULARITY as usize)
    }

    fn memory_pool_create(&self, device: CUdevice, limit: usize) -> CuResult<Native<MemoryPool>> {
        self.check_device(device)?;
        Ok(Native::from_value(self.memory.create_pool(limit)))
    }

    fn memory_pool_default(&self, device: CUdevice) -> CuResult<Native<MemoryPool>> {
        self.check_device(device)?;
        Ok(Native::from_value(self.memory.default_pool(device)))
    }

    fn memory_pool_attribute_get(
        &self,
        pool: Native<MemoryPool>,
        attribute: CUmemPool_attribute,
    ) -> CuResult<u64> {
        self.memory.pool(pool.value())?.attribute(attribute)
    }

    fn memory_pool_attribute_set(
        &self,
        pool: Native<MemoryPool>,
        attribute: CUmemPool_attribute,
        value: u64,
    ) -> CuResult<()> {
        self.memory.pool(pool.value())?.set_attribute(attribute, value)
    }

    fn memory_pool_current_set(&self, device: CUdevice, pool: Native<MemoryPool>) -> CuResult<()> {
        self.check_device(device)?;
        self.memory.set_current_pool(device, pool.value())
    }

    fn cuMemPoolTrimTo(&self, pool: Native<MemoryPool>, keep: usize) -> CuResult<()> {
        self.memory.trim_pool(pool.value(), keep)
    }

    fn cuMemPoolDestroy(&self, pool: Native<MemoryPool>) -> CuResult<()> {
        self.memory.destroy_pool(pool.value())
    }

    // Arrays.

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

    // Copies and fills.

    fn copy_within_device(
        &self,
        destination: NativePlace,
        source: NativePlace,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        let stream = self.stream(stream)?;
        self.context_of(stream)?;
        if destination.size() != source.size() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let (destination, source) = (self.region_of(&destination)?, self.region_of(&source)?);
        self.scheduler.issue(stream, Operation::Copy { destination, source })
    }

    /// All contexts share one memory.
    fn copy_between_contexts(
        &self,
        destination: NativePlace,
        _destination_context: Native<Context>,
        source: NativePlace,
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

    // Streams and events.

    fn stream_create(&self, flags: u32, priority: i32) -> CuResult<Native<Stream>> {
        let kind = match CUstream_flags(flags) {
            CUstream_flags::CU_STREAM_DEFAULT => StreamKind::Blocking,
            CUstream_flags::CU_STREAM_NON_BLOCKING => StreamKind::NonBlocking,
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let context = self.contexts.current()?;
        let stream = handles::next();
        let (lowest, highest) = PRIORITIES;
        self.scheduler.add_stream(stream, &context, kind, priority.clamp(highest, lowest));
        Ok(Native::from_value(stream))
    }

    fn stream_destroy(&self, stream: Native<Stream>) -> CuResult<()> {
        self.scheduler.remove_stream(stream.value())
    }

    fn stream_wait_event(&self, stream: Native<Stream>, event: Native<Event>, flags: u32) -> CuResult<()> {
        self.scheduler.wait_event(self.stream(stream)?, event.value(), flags)
    }

    fn stream_attribute_get(&self, stream: Native<Stream>, attribute: u32) -> CuResult<LaunchAttribute> {
        let priority = self.scheduler.priority(self.stream(stream)?)?;
        super::attributes::of_stream(attribute, priority)
    }

    fn cuStreamCopyAttributes(&self, destination: Native<Stream>, source: Native<Stream>) -> CuResult<()> {
        // None of them can be set, so all streams have the same.
        self.context_of(self.stream(destination)?)?;
        self.context_of(self.stream(source)?).map(drop)
    }

    fn cuCtxSetFlags(&self, _flags: u32) -> CuResult<()> {
        // They say how a thread of the program waits, and what a device of its own would do for host memory.
        self.contexts.current().map(drop)
    }

    fn cuStreamWriteValue32_v2(
        &self,
        stream: Native<Stream>,
        address: CUdeviceptr,
        value: u32,
        flags: u32,
    ) -> CuResult<()> {
        self.scheduler.write_value(self.stream(stream)?, address, Value::Bits32(value), flags)
    }

    fn cuStreamWriteValue64_v2(
        &self,
        stream: Native<Stream>,
        address: CUdeviceptr,
        value: u64,
        flags: u32,
    ) -> CuResult<()> {
        self.scheduler.write_value(self.stream(stream)?, address, Value::Bits64(value), flags)
    }

    fn cuStreamWaitValue32_v2(
        &self,
        stream: Native<Stream>,
        address: CUdeviceptr,
        value: u32,
        flags: u32,
    ) -> CuResult<()> {
        self.scheduler.wait_value(self.stream(stream)?, address, Value::Bits32(value), flags)
    }

    fn cuStreamWaitValue64_v2(
        &self,
        stream: Native<Stream>,
        address: CUdeviceptr,
        value: u64,
        flags: u32,
    ) -> CuResult<()> {
        self.scheduler.wait_value(self.stream(stream)?, address, Value::Bits64(value), flags)
    }

    fn event_create(&self, flags: u32) -> CuResult<Native<Event>> {
        self.scheduler.create_event(&*self.contexts.current()?, flags).map(Native::from_value)
    }

    fn event_destroy(&self, event: Native<Event>) -> CuResult<()> {
        self.scheduler.destroy_event(event.value())
    }

    fn event_record(&self, event: Native<Event>, stream: Native<Stream>, flags: u32) -> CuResult<()> {
        self.scheduler.record_event(event.value(), self.stream(stream)?, flags)
    }

    fn event_elapsed(&self, start: Native<Event>, end: Native<Event>) -> CuResult<f32> {
        self.contexts.current()?;
        self.scheduler.elapsed(start.value(), end.value())
    }

    // Execution and graphs.

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
        let function = self.modules.function(function.value())?;
        let module = self.modules.module_of(&function, &context)?;
        let launch = Launch::new(function, module, shape, attributes, parameters)?;
        self.scheduler.issue(stream, Operation::Launch(launch))
    }

    fn graph_create(&self) -> CuResult<Native<GraphHandle>> {
        Ok(Native::from_value(self.graphs.create()))
    }

    fn graph_destroy(&self, graph: Native<GraphHandle>) -> CuResult<()> {
        self.graphs.remove(graph.value())
    }

    fn graph_add_empty(&self, graph: Native<GraphHandle>, _after: &[GraphEdge]) -> CuResult<()> {
        self.graphs.append(graph.value(), Node::Empty)
    }

    fn graph_add_kernel(
        &self,
        graph: Native<GraphHandle>,
        _after: &[GraphEdge],
        function: Native<Function>,
        _is_kernel: bool,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
        parameters: &[u8],
    ) -> CuResult<()> {
        let node = self.kernel_node(function, shape, attributes, parameters)?;
        self.graphs.append(graph.value(), node)
    }

    fn graph_add_copy(
        &self,
        graph: Native<GraphHandle>,
        _after: &[GraphEdge],
        destination: NativePlace,
        source: NativePlace,
    ) -> CuResult<()> {
        self.graphs.append(graph.value(), self.copy_node(&destination, &source)?)
    }

    fn graph_add_fill(&self, graph: Native<GraphHandle>, _after: &[GraphEdge], fill: Fill) -> CuResult<()> {
        self.graphs.append(graph.value(), self.fill_node(&fill)?)
    }

    fn graph_add_record(
        &self,
        graph: Native<GraphHandle>,
        _after: &[GraphEdge],
        event: Native<Event>,
    ) -> CuResult<()> {
        self.graphs.append(graph.value(), Node::Record(event.value()))
    }

    fn graph_add_values(
        &self,
        graph: Native<GraphHandle>,
        _after: &[GraphEdge],
        operations: &[ValueOperation],
    ) -> CuResult<()> {
        self.graphs.append(graph.value(), self.values_node(operations)?)
    }

    fn graph_instantiate(
        &self,
        graph: Native<GraphHandle>,
        nodes: u32,
        flags: u64,
    ) -> CuResult<Native<GraphExec>> {
        self.graphs.instantiate(graph.value(), nodes, flags).map(Native::from_value)
    }

    fn graph_exec_destroy(&self, exec: Native<GraphExec>) -> CuResult<()> {
        self.graphs.remove_executable(exec.value())
    }

    fn graph_exec_kernel(
        &self,
        exec: Native<GraphExec>,
        graph: Native<GraphHandle>,
        node: u32,
        function: Native<Function>,
        _is_kernel: bool,
        shape: LaunchShape,
        parameters: &[u8],
    ) -> CuResult<()> {
        let work = self.kernel_node(function, shape, &[], parameters)?;
        self.graphs.change(exec.value(), graph.value(), node, work)
    }

    fn graph_exec_copy(
        &self,
        exec: Native<GraphExec>,
        graph: Native<GraphHandle>,
        node: u32,
        destination: NativePlace,
        source: NativePlace,
    ) -> CuResult<()> {
        let work = self.copy_node(&destination, &source)?;
        self.graphs.change(exec.value(), graph.value(), node, work)
    }

    fn graph_exec_fill(
        &self,
        exec: Native<GraphExec>,
        graph: Native<GraphHandle>,
        node: u32,
        fill: Fill,
    ) -> CuResult<()> {
        self.graphs.change(exec.value(), graph.value(), node, self.fill_node(&fill)?)
    }

    fn graph_exec_record(
        &self,
        exec: Native<GraphExec>,
        graph: Native<GraphHandle>,
        node: u32,
        event: Native<Event>,
    ) -> CuResult<()> {
        self.graphs.change(exec.value(), graph.value(), node, Node::Record(event.value()))
    }

    fn graph_exec_values(
        &self,
        exec: Native<GraphExec>,
        graph: Native<GraphHandle>,
        node: u32,
        operations: &[ValueOperation],
    ) -> CuResult<()> {
        self.graphs.change(exec.value(), graph.value(), node, self.values_node(operations)?)
    }

    fn graph_exec_enable(
        &self,
        exec: Native<GraphExec>,
        graph: Native<GraphHandle>,
        node: u32,
        enabled: u32,
    ) -> CuResult<()> {
        self.graphs.enable(exec.value(), graph.value(), node, enabled != 0)
    }

    fn graph_upload(&self, exec: Native<GraphExec>, stream: Native<Stream>) -> CuResult<()> {
        // There is nothing to bring anywhere: the operations are ready where they are.
        self.context_of(self.stream(stream)?)?;
        self.graphs.check(exec.value())
    }

    fn graph_launch(&self, exec: Native<GraphExec>, stream: Native<Stream>) -> CuResult<()> {
        self.graphs.launch(exec.value(), &self.scheduler, self.stream(stream)?)
    }
}
