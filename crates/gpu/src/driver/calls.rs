//! The operations of the declaration list, in its order. What is longer than a call or two is in the module of its
//! subject.

use super::function::c_text;
use super::{Driver, context};
use crate::{Calls, CuResult, NativePlace, NativeSource};
use causeway_api::handle::{
    Allocation, Context, Event, Function, Graph, GraphExec, GreenContext, Kernel, Library, LinkState,
    MemoryPool, Module, Native, ResourceDescription, Stream,
};
use causeway_api::sys::{
    CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC, CUdevice, CUdeviceptr, CUfunction_attribute, CUjitInputType,
    CUlimit, CUlogIterator, CUmemPool_attribute,
};
use causeway_api::types::{
    AddressAccess, AllocationProperties, DeviceResource, Fill, FunctionInfo, GraphEdge, JitOptions,
    JitReport, LaunchAttribute, LaunchShape, ValueOperation,
};

// SAFETY of the calls below: handles are the driver's own, looked up before; pointers are to locals or to
// NUL-terminated text that lives during the call.
#[expect(clippy::undocumented_unsafe_blocks, reason = "said once for all, above")]
impl Calls for Driver {
    causeway_api_macros::driver_calls!();

    fn primary_context_retain(&self, device: CUdevice, flags: u32) -> CuResult<Native<Context>> {
        self.primary_retain(device, flags)
    }

    fn primary_context_release(&self, _context: Native<Context>, device: CUdevice) -> CuResult<()> {
        self.primary_release(device)
    }

    fn context_create(&self, device: CUdevice, flags: u32) -> CuResult<Native<Context>> {
        self.create_context(device, flags)
    }

    fn context_layout(&self) -> CuResult<Vec<u8>> {
        self.read_layout()
    }

    fn context_limit_get(&self, limit: CUlimit) -> CuResult<usize> {
        let mut value = 0;
        unsafe { self.functions.cuCtxGetLimit(&mut value, limit)? };
        Ok(value)
    }

    fn context_limit_set(&self, limit: CUlimit, value: usize) -> CuResult<()> {
        unsafe { self.functions.cuCtxSetLimit(limit, value) }
    }

    fn module_load(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Native<Module>> {
        self.load_module(form, options, image)
    }

    fn jit_report(&self, report: u64) -> CuResult<JitReport> {
        Ok(self.reports.take(report))
    }

    fn module_unload(&self, module: Native<Module>) -> CuResult<()> {
        unsafe { self.functions.cuModuleUnload(module.as_raw()) }
    }

    fn module_function(
        &self,
        module: Native<Module>,
        name: &str,
    ) -> CuResult<(Native<Function>, FunctionInfo)> {
        self.find_function(module, name)
    }

    fn module_global(&self, module: Native<Module>, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        let (name, mut address, mut size) = (c_text(name)?, 0, 0);
        unsafe {
            self.functions.cuModuleGetGlobal_v2(&mut address, &mut size, module.as_raw(), name.as_ptr())?;
        }
        Ok((address, size))
    }

    fn module_function_names(&self, module: Native<Module>) -> CuResult<Vec<String>> {
        self.function_names(module)
    }

    fn library_load(&self, form: u32, options: &JitOptions, image: &[u8]) -> CuResult<Native<Library>> {
        self.load_library(form, options, image)
    }

    fn library_unload(&self, library: Native<Library>) -> CuResult<()> {
        unsafe { self.functions.cuLibraryUnload(library.as_raw()) }
    }

    fn library_kernel(
        &self,
        library: Native<Library>,
        name: &str,
    ) -> CuResult<(Native<Kernel>, FunctionInfo)> {
        self.find_kernel(library, name)
    }

    fn library_module(&self, library: Native<Library>) -> CuResult<Native<Module>> {
        let mut raw = core::ptr::null_mut();
        unsafe { self.functions.cuLibraryGetModule(&mut raw, library.as_raw())? };
        Ok(Native::from_raw(raw))
    }

    fn library_global(&self, library: Native<Library>, name: &str) -> CuResult<(CUdeviceptr, usize)> {
        let (name, mut address, mut size) = (c_text(name)?, 0, 0);
        unsafe {
            self.functions.cuLibraryGetGlobal(&mut address, &mut size, library.as_raw(), name.as_ptr())?;
        }
        Ok((address, size))
    }

    fn library_kernel_names(&self, library: Native<Library>) -> CuResult<Vec<String>> {
        self.kernel_names(library)
    }

    fn kernel_function(&self, kernel: Native<Kernel>) -> CuResult<Native<Function>> {
        let mut raw = core::ptr::null_mut();
        unsafe { self.functions.cuKernelGetFunction(&mut raw, kernel.as_raw())? };
        Ok(Native::from_raw(raw))
    }

    fn library_unified_function(&self, library: Native<Library>, symbol: &str) -> CuResult<u64> {
        let (symbol, mut address) = (c_text(symbol)?, core::ptr::null_mut());
        unsafe {
            self.functions.cuLibraryGetUnifiedFunction(
                &raw mut address,
                library.as_raw(),
                symbol.as_ptr(),
            )?;
        }
        Ok(address as u64)
    }

    fn link_create(&self, options: &JitOptions) -> CuResult<Native<LinkState>> {
        self.create_link(options)
    }

    fn link_add(
        &self,
        state: Native<LinkState>,
        kind: CUjitInputType,
        name: &str,
        options: &JitOptions,
        data: &[u8],
    ) -> CuResult<()> {
        self.add_to_link(state, kind, name, options, data)
    }

    fn link_complete(&self, state: Native<LinkState>) -> CuResult<usize> {
        self.complete_link(state)
    }

    fn link_result(&self, state: Native<LinkState>, start: usize, length: usize) -> CuResult<Vec<u8>> {
        self.link_piece(state, start, length)
    }

    fn link_destroy(&self, state: Native<LinkState>) -> CuResult<()> {
        self.destroy_link(state)
    }

    fn function_attribute_set(
        &self,
        function: Native<Function>,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        unsafe { self.functions.cuFuncSetAttribute(function.as_raw(), attribute, value) }
    }

    fn kernel_attribute_set(
        &self,
        kernel: Native<Kernel>,
        device: CUdevice,
        attribute: CUfunction_attribute,
        value: i32,
    ) -> CuResult<()> {
        unsafe { self.functions.cuKernelSetAttribute(attribute, value, kernel.as_raw(), device) }
    }

    fn memory_allocate(&self, size: usize) -> CuResult<CUdeviceptr> {
        let mut address = 0;
        unsafe { self.functions.cuMemAlloc_v2(&mut address, size)? };
        Ok(address)
    }

    fn memory_allocate_async(
        &self,
        size: usize,
        pool: Native<MemoryPool>,
        stream: Native<Stream>,
    ) -> CuResult<CUdeviceptr> {
        self.allocate_from(size, pool, stream)
    }

    fn memory_free_async(&self, address: CUdeviceptr, stream: Native<Stream>) -> CuResult<()> {
        unsafe { self.functions.cuMemFreeAsync(address, stream.as_raw()) }
    }

    fn copy_within_device(
        &self,
        destination: NativePlace,
        source: NativePlace,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.copy_across(&destination, &source, stream)
    }

    fn copy_between_contexts(
        &self,
        destination: NativePlace,
        destination_context: Native<Context>,
        source: NativePlace,
        source_context: Native<Context>,
        stream: Native<Stream>,
    ) -> CuResult<()> {
        self.copy_to_peer((&destination, destination_context), (&source, source_context), stream)
    }

    fn memory_block_create(
        &self,
        address: CUdeviceptr,
        size: usize,
        device: CUdevice,
        accessors: &[i32],
    ) -> CuResult<Native<Allocation>> {
        self.create_block(address, size, device, accessors)
    }

    fn memory_block_release(
        &self,
        block: Native<Allocation>,
        address: CUdeviceptr,
        size: usize,
    ) -> CuResult<()> {
        self.release_block(block, address, size)
    }

    fn address_window_open(&self) -> CuResult<()> {
        self.open_window()
    }

    fn address_access(&self, address: CUdeviceptr, size: usize, access: &[AddressAccess]) -> CuResult<()> {
        self.set_access(address, size, access)
    }

    fn allocation_create(
        &self,
        size: usize,
        properties: AllocationProperties,
    ) -> CuResult<Native<Allocation>> {
        self.create_allocation(size, &properties)
    }

    fn allocation_release(&self, allocation: Native<Allocation>) -> CuResult<()> {
        unsafe { self.functions.cuMemRelease(allocation.value()) }
    }

    fn allocation_map(
        &self,
        allocation: Native<Allocation>,
        address: CUdeviceptr,
        size: usize,
        offset: usize,
    ) -> CuResult<()> {
        unsafe { self.functions.cuMemMap(address, size, offset, allocation.value(), 0) }
    }

    fn allocation_unmap(&self, address: CUdeviceptr, size: usize) -> CuResult<()> {
        unsafe { self.functions.cuMemUnmap(address, size) }
    }

    fn allocation_granularity(&self, properties: AllocationProperties, option: u32) -> CuResult<usize> {
        self.granularity(&properties, option)
    }

    fn memory_pool_create(&self, device: CUdevice, limit: usize) -> CuResult<Native<MemoryPool>> {
        self.create_pool(device, limit)
    }

    fn memory_pool_default(&self, device: CUdevice) -> CuResult<Native<MemoryPool>> {
        self.default_pool(device)
    }

    fn memory_pool_attribute_get(
        &self,
        pool: Native<MemoryPool>,
        attribute: CUmemPool_attribute,
    ) -> CuResult<u64> {
        self.pool_attribute(pool, attribute)
    }

    fn memory_pool_attribute_set(
        &self,
        pool: Native<MemoryPool>,
        attribute: CUmemPool_attribute,
        value: u64,
    ) -> CuResult<()> {
        self.set_pool_attribute(pool, attribute, value)
    }

    fn memory_pool_current_set(&self, device: CUdevice, pool: Native<MemoryPool>) -> CuResult<()> {
        self.set_pool(device, pool)
    }

    fn stream_create(&self, flags: u32, priority: i32) -> CuResult<Native<Stream>> {
        let context = context::current(self.functions)?;
        let mut raw = core::ptr::null_mut();
        unsafe { self.functions.cuStreamCreateWithPriority(&mut raw, flags, priority)? };
        let stream = Native::from_raw(raw);
        self.streams.add(stream, context);
        Ok(stream)
    }

    fn stream_destroy(&self, stream: Native<Stream>) -> CuResult<()> {
        self.streams.remove(stream);
        unsafe { self.functions.cuStreamDestroy_v2(stream.as_raw()) }
    }

    fn stream_wait_event(&self, stream: Native<Stream>, event: Native<Event>, flags: u32) -> CuResult<()> {
        unsafe { self.functions.cuStreamWaitEvent(stream.as_raw(), event.as_raw(), flags) }
    }

    fn event_create(&self, flags: u32) -> CuResult<Native<Event>> {
        let mut raw = core::ptr::null_mut();
        unsafe { self.functions.cuEventCreate(&mut raw, flags)? };
        Ok(Native::from_raw(raw))
    }

    fn event_destroy(&self, event: Native<Event>) -> CuResult<()> {
        self.events.destroy(self.functions, event)
    }

    fn event_record(&self, event: Native<Event>, stream: Native<Stream>, flags: u32) -> CuResult<()> {
        self.events.with_watched(|| unsafe {
            match flags {
                0 => self.functions.cuEventRecord(event.as_raw(), stream.as_raw()),
                _ => self.functions.cuEventRecordWithFlags(event.as_raw(), stream.as_raw(), flags),
            }
        })
    }

    fn event_elapsed(&self, start: Native<Event>, end: Native<Event>) -> CuResult<f32> {
        let mut milliseconds = 0.0;
        unsafe { self.functions.cuEventElapsedTime(&mut milliseconds, start.as_raw(), end.as_raw())? };
        Ok(milliseconds)
    }

    fn occupancy_clusters(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
    ) -> CuResult<i32> {
        self.clusters(function, &shape, attributes)
    }

    fn launch(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        stream: Native<Stream>,
        attributes: &[LaunchAttribute],
        params: &[u8],
    ) -> CuResult<()> {
        self.launch_function(function, &shape, stream, attributes, params)
    }

    fn occupancy_cluster_size(
        &self,
        function: Native<Function>,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
    ) -> CuResult<i32> {
        self.cluster_size(function, &shape, attributes)
    }

    fn texture_create(
        &self,
        source: NativeSource,
        texture: &CUDA_TEXTURE_DESC,
        view: Option<&CUDA_RESOURCE_VIEW_DESC>,
    ) -> CuResult<u64> {
        self.create_texture(&source, texture, view)
    }

    fn surface_create(&self, source: NativeSource) -> CuResult<u64> {
        self.create_surface(&source)
    }

    fn texture_destroy(&self, object: u64) -> CuResult<()> {
        self.destroy_texture(object)
    }

    fn surface_destroy(&self, object: u64) -> CuResult<()> {
        self.destroy_surface(object)
    }

    fn resource_of_device(&self, device: CUdevice, kind: u32) -> CuResult<DeviceResource> {
        self.device_resource(device, kind)
    }

    fn resource_of_context(&self, context: Native<Context>, kind: u32) -> CuResult<DeviceResource> {
        self.context_resource(context, kind)
    }

    fn resource_of_green_context(&self, green: Native<GreenContext>, kind: u32) -> CuResult<DeviceResource> {
        self.green_resource(green, kind)
    }

    fn resource_split(
        &self,
        input: u64,
        wanted: u32,
        flags: u32,
        minimum: u32,
    ) -> CuResult<(u32, Vec<DeviceResource>, DeviceResource)> {
        self.split_resource(input, wanted, flags, minimum)
    }

    fn resource_description(&self, resources: &[u64]) -> CuResult<Native<ResourceDescription>> {
        self.describe_resources(resources)
    }

    fn green_context_create(
        &self,
        description: Native<ResourceDescription>,
        device: CUdevice,
        flags: u32,
    ) -> CuResult<(Native<GreenContext>, Native<Context>)> {
        self.create_green_context(description, device, flags)
    }

    fn green_context_destroy(&self, green: Native<GreenContext>, context: Native<Context>) -> CuResult<()> {
        self.destroy_green_context(green, context)
    }

    fn green_stream_create(
        &self,
        green: Native<GreenContext>,
        flags: u32,
        priority: i32,
    ) -> CuResult<Native<Stream>> {
        self.create_green_stream(green, flags, priority)
    }

    fn stream_attribute_get(&self, stream: Native<Stream>, attribute: u32) -> CuResult<LaunchAttribute> {
        self.stream_attribute(stream, attribute)
    }

    fn stream_attribute_set(&self, stream: Native<Stream>, attribute: LaunchAttribute) -> CuResult<()> {
        self.set_stream_attribute(stream, &attribute)
    }

    fn stream_memory_barrier(&self, stream: Native<Stream>, operation: u32, flags: u32) -> CuResult<()> {
        self.stream_barrier(stream, operation, flags)
    }

    fn logs_dump(&self, start: Option<&CUlogIterator>, size: usize) -> CuResult<(Vec<u8>, CUlogIterator)> {
        self.dump_logs(start, size)
    }

    fn graph_create(&self) -> CuResult<Native<Graph>> {
        self.create_graph()
    }

    fn graph_destroy(&self, graph: Native<Graph>) -> CuResult<()> {
        self.destroy_graph(graph)
    }

    fn graph_add_empty(&self, graph: Native<Graph>, after: &[GraphEdge]) -> CuResult<()> {
        self.add_empty(graph, after)
    }

    fn graph_add_kernel(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        function: Native<Function>,
        is_kernel: bool,
        shape: LaunchShape,
        attributes: &[LaunchAttribute],
        params: &[u8],
    ) -> CuResult<()> {
        self.add_kernel(graph, after, (function, is_kernel), &shape, attributes, params)
    }

    fn graph_add_copy(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        destination: NativePlace,
        source: NativePlace,
    ) -> CuResult<()> {
        self.add_copy(graph, after, &destination, &source)
    }

    fn graph_add_fill(&self, graph: Native<Graph>, after: &[GraphEdge], fill: Fill) -> CuResult<()> {
        self.add_fill(graph, after, &fill)
    }

    fn graph_add_record(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        event: Native<Event>,
    ) -> CuResult<()> {
        self.add_record(graph, after, event)
    }

    fn graph_add_values(
        &self,
        graph: Native<Graph>,
        after: &[GraphEdge],
        operations: &[ValueOperation],
    ) -> CuResult<()> {
        self.add_values(graph, after, operations)
    }

    fn graph_conditional_handle(&self, graph: Native<Graph>, initial: u32, flags: u32) -> CuResult<u64> {
        self.conditional_handle(graph, initial, flags)
    }

    fn graph_add_conditional(&self, graph: Native<Graph>, handle: u64, kind: u32, size: u32) -> CuResult<()> {
        self.add_conditional(graph, handle, kind, size)
    }

    fn graph_body(&self, graph: Native<Graph>, node: u32, index: u32) -> CuResult<Native<Graph>> {
        self.body(graph, node, index)
    }

    fn graph_add_edges(&self, graph: Native<Graph>, node: u32, after: &[GraphEdge]) -> CuResult<()> {
        self.add_edges(graph, node, after)
    }

    fn graph_instantiate(&self, graph: Native<Graph>, nodes: u32, flags: u64) -> CuResult<Native<GraphExec>> {
        self.instantiate(graph, nodes, flags)
    }

    fn graph_exec_destroy(&self, exec: Native<GraphExec>) -> CuResult<()> {
        unsafe { self.functions.cuGraphExecDestroy(exec.as_raw()) }
    }

    fn graph_exec_kernel(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        function: Native<Function>,
        is_kernel: bool,
        shape: LaunchShape,
        params: &[u8],
    ) -> CuResult<()> {
        self.set_kernel(exec, (graph, node), (function, is_kernel), &shape, params)
    }

    fn graph_exec_copy(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        destination: NativePlace,
        source: NativePlace,
    ) -> CuResult<()> {
        self.set_copy(exec, (graph, node), &destination, &source)
    }

    fn graph_exec_fill(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        fill: Fill,
    ) -> CuResult<()> {
        self.set_fill(exec, (graph, node), &fill)
    }

    fn graph_exec_record(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        event: Native<Event>,
    ) -> CuResult<()> {
        self.set_record(exec, (graph, node), event)
    }

    fn graph_exec_values(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        operations: &[ValueOperation],
    ) -> CuResult<()> {
        self.set_values(exec, (graph, node), operations)
    }

    fn graph_exec_enable(
        &self,
        exec: Native<GraphExec>,
        graph: Native<Graph>,
        node: u32,
        enabled: u32,
    ) -> CuResult<()> {
        self.enable_node(exec, (graph, node), enabled)
    }

    fn graph_upload(&self, exec: Native<GraphExec>, stream: Native<Stream>) -> CuResult<()> {
        unsafe { self.functions.cuGraphUpload(exec.as_raw(), stream.as_raw()) }
    }

    fn graph_launch(&self, exec: Native<GraphExec>, stream: Native<Stream>) -> CuResult<()> {
        unsafe { self.functions.cuGraphLaunch(exec.as_raw(), stream.as_raw()) }
    }
}
