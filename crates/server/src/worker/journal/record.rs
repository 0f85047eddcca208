//! Recording of a journal: what each command leaves behind.

use super::table::{Entry, Key, Table};
use super::{Executed, Journal};
use causeway_api::calls::{Opcode, Request};
use causeway_wire::codec::Decoder;

/// Whether a command leaves nothing behind that outlives its work: work itself, and questions.
fn is_over_when_done(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::launch(_)
            | Request::copy_to_device(_)
            | Request::copy_from_device(_)
            | Request::copy_from_device_now(_)
            | Request::copy_within_device(_)
            | Request::copy_between_contexts(_)
            | Request::cuMemsetD8Async(_)
            | Request::cuMemsetD16Async(_)
            | Request::cuMemsetD32Async(_)
            | Request::cuMemsetD2D8Async(_)
            | Request::cuMemsetD2D16Async(_)
            | Request::cuMemsetD2D32Async(_)
            | Request::graph_launch(_)
            | Request::graph_upload(_)
            | Request::stream_synchronize(_)
            | Request::stream_synchronize_mirrored(_)
            | Request::stream_query(_)
            | Request::stream_wait_event(_)
            | Request::stream_attribute_get(_)
            | Request::stream_memory_barrier(_)
            | Request::cuStreamWriteValue32_v2(_)
            | Request::cuStreamWaitValue32_v2(_)
            | Request::cuStreamWriteValue64_v2(_)
            | Request::cuStreamWaitValue64_v2(_)
            | Request::event_synchronize(_)
            | Request::event_synchronize_mirrored(_)
            | Request::event_query(_)
            | Request::event_watch(_)
            | Request::event_elapsed(_)
            | Request::host_function(_)
            | Request::context_synchronize(_)
            | Request::context_synchronize_mirrored(_)
            | Request::context_limit_get(_)
            | Request::context_layout(_)
            | Request::cuCtxGetExecAffinity(_)
            | Request::cuCtxResetPersistingL2Cache(_)
            | Request::cuMemGetInfo_v2(_)
            | Request::cuMemPoolTrimTo(_)
            | Request::memory_pool_attribute_get(_)
            | Request::allocation_granularity(_)
            | Request::module_function_names(_)
            | Request::library_kernel_names(_)
            | Request::cuModuleGetFunctionCount(_)
            | Request::cuLibraryGetKernelCount(_)
            | Request::cuFuncLoad(_)
            | Request::jit_report(_)
            | Request::logs_dump(_)
            | Request::cuLogsCurrent(_)
            | Request::occupancy_clusters(_)
            | Request::occupancy_cluster_size(_)
            | Request::cuOccupancyMaxActiveBlocksPerMultiprocessor(_)
            | Request::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(_)
            | Request::cuOccupancyAvailableDynamicSMemPerBlock(_)
            | Request::cuDeviceGetTexture1DLinearMaxWidth(_)
            | Request::cuDeviceGetP2PAtomicCapabilities(_)
            | Request::cuFlushGPUDirectRDMAWrites(_)
            | Request::cuTensorMapEncodeTiled(_)
            | Request::cuTensorMapEncodeIm2col(_)
            | Request::cuTensorMapEncodeIm2colWide(_)
            | Request::cuTensorMapReplaceAddress(_)
            | Request::resource_of_device(_)
    )
}

impl Journal {
    /// Records what a command leaves behind.
    pub fn record(&self, command: &Executed<'_>) {
        let Some(table) = &self.0 else { return };
        if is_over_when_done(command.request) {
            return;
        }
        let table = &mut *table.lock();
        let is_recorded = command.record_context(table)
            || command.record_code(table)
            || command.record_stream_or_event(table)
            || command.record_memory(table)
            || command.record_graph(table)
            || command.record_other(table);
        if !is_recorded {
            table.hindrances.insert(Key::Session(command.number()), command.opcode.name());
        }
    }
}

/// Each function records the commands of a kind, and returns false for others.
impl Executed<'_> {
    fn number(&self) -> u16 {
        self.opcode as u16
    }

    fn entry(&self, parent: u64) -> Entry {
        Entry {
            context: self.context,
            opcode: self.opcode,
            arguments: self.arguments.into(),
            image: self.image.clone(),
            reply: None,
            parent,
        }
    }

    fn entry_with_reply(&self, parent: u64) -> Entry {
        Entry { reply: Some(self.reply.into()), ..self.entry(parent) }
    }

    /// The address or number that it has answered.
    fn replied_address(&self) -> u64 {
        Decoder::new(self.reply).value::<u64>().unwrap_or(0)
    }

    /// Contexts and their settings.
    fn record_context(&self, table: &mut Table) -> bool {
        match self.request {
            Request::primary_context_retain(retain) => {
                table.put(Key::Object(retain.context.value()), Entry { context: 0, ..self.entry(0) });
            }
            Request::context_create(create) => {
                table.put(Key::Object(create.context.value()), Entry { context: 0, ..self.entry(0) });
            }
            Request::primary_context_release(release) => table.end_context(release.context.value()),
            Request::primary_context_reset(reset) => table.end_context(reset.context.value()),
            Request::context_destroy(destroy) => table.end_context(destroy.context.value()),
            Request::context_limit_set(set) => {
                table.set(
                    Key::Setting(self.number(), self.context, u64::from(set.limit.0)),
                    self.entry(self.context),
                );
            }
            Request::cuCtxSetFlags(_)
            | Request::cuCtxSetCacheConfig(_)
            | Request::cuCtxSetSharedMemConfig(_) => {
                table.set(Key::Setting(self.number(), self.context, 0), self.entry(self.context));
            }
            Request::cuCtxEnablePeerAccess(enable) => {
                table.set(
                    Key::Setting(self.number(), self.context, enable.peerContext.value()),
                    self.entry(self.context),
                );
            }
            Request::cuCtxDisablePeerAccess(disable) => {
                let enable = Opcode::cuCtxEnablePeerAccess as u16;
                table.remove(Key::Setting(enable, self.context, disable.peerContext.value()));
            }
            _ => return false,
        }
        true
    }

    /// Modules, libraries, functions and kernels.
    fn record_code(&self, table: &mut Table) -> bool {
        match self.request {
            Request::module_load(load) => table.put(Key::Object(load.module.value()), self.entry(0)),
            Request::module_unload(unload) => table.remove_with_children(unload.module.value()),
            Request::module_function(function) => {
                table.put(Key::Object(function.function.value()), self.entry(function.module.value()));
            }
            Request::module_global(global) => {
                let key = Key::Setting(self.number(), global.module.value(), self.replied_address());
                table.set(key, self.entry_with_reply(global.module.value()));
            }
            Request::library_load(load) => table.put(Key::Object(load.library.value()), self.entry(0)),
            Request::library_unload(unload) => table.remove_with_children(unload.library.value()),
            Request::library_kernel(kernel) => {
                table.put(Key::Object(kernel.kernel.value()), self.entry(kernel.library.value()));
            }
            Request::library_module(module) => {
                table.put(Key::Object(module.module.value()), self.entry(module.library.value()));
            }
            Request::library_global(global) => {
                let key = Key::Setting(self.number(), global.library.value(), self.replied_address());
                table.set(key, self.entry_with_reply(global.library.value()));
            }
            Request::kernel_function(function) => {
                table.put(Key::Object(function.function.value()), self.entry(function.kernel.value()));
            }
            Request::function_attribute_set(set) => {
                // A kernel has its own on each device, which is that of the context.
                let (function, what) =
                    (set.function.value(), u64::from(set.attribute.0) ^ self.context << 32);
                table.set(Key::Setting(self.number(), function, what), self.entry(function));
            }
            Request::kernel_attribute_set(set) => {
                let what = u64::from(set.attribute.0) << 32 | u64::from(set.device.cast_unsigned());
                table.set(
                    Key::Setting(self.number(), set.kernel.value(), what),
                    self.entry(set.kernel.value()),
                );
            }
            Request::cuFuncSetCacheConfig(set) => {
                table.set(Key::Setting(self.number(), set.hfunc.value(), 0), self.entry(set.hfunc.value()));
            }
            Request::cuFuncSetSharedMemConfig(set) => {
                table.set(Key::Setting(self.number(), set.hfunc.value(), 0), self.entry(set.hfunc.value()));
            }
            Request::cuKernelSetCacheConfig(set) => {
                let what = u64::from(set.dev.cast_unsigned());
                table.set(
                    Key::Setting(self.number(), set.kernel.value(), what),
                    self.entry(set.kernel.value()),
                );
            }
            _ => return false,
        }
        true
    }

    /// Streams and events.
    fn record_stream_or_event(&self, table: &mut Table) -> bool {
        match self.request {
            Request::stream_create(create) => table.put(Key::Object(create.stream.value()), self.entry(0)),
            Request::stream_destroy(destroy) => {
                let stream = destroy.stream.value();
                table.remove_with_children(stream);
                // What was recorded there is done by the time that the stream has ended.
                for (of, ..) in table.recorded.values_mut() {
                    if *of == stream {
                        *of = 0;
                    }
                }
            }
            Request::stream_attribute_set(set) => {
                // The attribute's number follows the handle.
                let what =
                    Decoder::new(self.arguments.get(8..).unwrap_or_default()).value::<u32>().unwrap_or(0);
                table.set(
                    Key::Setting(self.number(), set.stream.value(), what.into()),
                    self.entry(set.stream.value()),
                );
            }
            Request::event_create(create) => table.put(Key::Object(create.event.value()), self.entry(0)),
            Request::event_destroy(destroy) => table.remove_with_children(destroy.event.value()),
            Request::event_record(record) => {
                // A record that a newer one has overtaken has an event of the engine's own, and counts no more.
                if table.by_key.contains_key(&Key::Object(record.event.value())) {
                    let what = (record.stream.value(), record.flags, self.context);
                    table.recorded.insert(record.event.value(), what);
                }
            }
            _ => return false,
        }
        true
    }

    /// Memory: blocks, allocations, addresses and pools.
    fn record_memory(&self, table: &mut Table) -> bool {
        match self.request {
            Request::memory_block_create(block) => {
                let key = Key::Object(block.block.value());
                table.put(key, self.entry(0));
                table.range(key, block.address, block.size, block.device);
            }
            Request::memory_block_release(block) => table.remove(Key::Object(block.block.value())),
            Request::address_window_open(_) => table.set(Key::Setting(self.number(), 0, 0), self.entry(0)),
            Request::allocation_create(create) => {
                table.put(Key::Object(create.allocation.value()), self.entry(0));
            }
            Request::allocation_release(release) => {
                let allocation = release.allocation.value();
                if table.is_mapped(allocation) {
                    table.put(Key::Setting(self.number(), allocation, 0), self.entry(0));
                } else {
                    table.remove(Key::Object(allocation));
                }
            }
            Request::allocation_map(map) => {
                let key = Key::Address(map.address);
                table.put(key, self.entry(map.allocation.value()));
                table.range(key, map.address, map.size, -1);
            }
            Request::allocation_unmap(unmap) => table.unmap(unmap.address, unmap.size as u64),
            Request::address_access(access) => {
                table.put(Key::Setting(self.number(), access.address, access.size as u64), self.entry(0));
            }
            Request::memory_pool_create(create) => table.put(Key::Object(create.pool.value()), self.entry(0)),
            Request::memory_pool_default(pool) => table.put(Key::Object(pool.pool.value()), self.entry(0)),
            Request::memory_pool_attribute_set(set) => {
                let pool = set.pool.value();
                table.set(Key::Setting(self.number(), pool, set.attribute.0.into()), self.entry(pool));
            }
            Request::memory_pool_current_set(set) => {
                let device = u64::from(set.device.cast_unsigned());
                table.put(Key::Setting(self.number(), device, 0), self.entry(set.pool.value()));
            }
            Request::cuMemPoolDestroy(destroy) => table.remove_with_children(destroy.pool.value()),
            Request::memory_allocate(_) => {
                let what = "device memory whose address the server has chosen";
                table.hindrances.insert(Key::Address(self.replied_address()), what);
            }
            Request::memory_allocate_async(_) => {
                let what = "memory of a pool whose address the server has chosen";
                table.hindrances.insert(Key::Address(self.replied_address()), what);
            }
            Request::memory_free(free) => table.remove(Key::Address(free.address)),
            Request::memory_free_async(free) => table.remove(Key::Address(free.address)),
            _ => return false,
        }
        true
    }

    /// Graphs: those that are only there to be launched have been described already.
    fn record_graph(&self, table: &mut Table) -> bool {
        match self.request {
            Request::graph_create(create) => table.put(Key::Object(create.graph.value()), self.entry(0)),
            Request::graph_add_empty(add) => table.put_each(self.entry(add.graph.value())),
            Request::graph_add_kernel(add) => table.put_each(self.entry(add.graph.value())),
            Request::graph_add_copy(add) => table.put_each(self.entry(add.graph.value())),
            Request::graph_add_fill(add) => table.put_each(self.entry(add.graph.value())),
            Request::graph_add_record(add) => table.put_each(self.entry(add.graph.value())),
            Request::graph_add_values(add) => table.put_each(self.entry(add.graph.value())),
            Request::graph_add_edges(add) => table.put_each(self.entry(add.graph.value())),
            Request::graph_instantiate(exec) => {
                table.put(Key::Object(exec.exec.value()), self.entry(exec.graph.value()));
            }
            Request::graph_destroy(destroy) => table.graph_ends(destroy.graph.value(), self.entry(0)),
            Request::graph_exec_destroy(destroy) => table.exec_ends(destroy.exec.value()),
            Request::graph_exec_kernel(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_copy(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_fill(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_record(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_values(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_enable(update) => table.exec_updated(update.exec.value()),
            _ => return false,
        }
        true
    }

    /// What has a number or an address of the server's own, or bytes that only the device knows.
    fn record_other(&self, table: &mut Table) -> bool {
        match self.request {
            Request::cuArray3DCreate_v2(array) => {
                table.hindrances.insert(Key::Object(array.pHandle.value()), "a CUDA array");
            }
            Request::cuMipmappedArrayCreate(array) => {
                table.hindrances.insert(Key::Object(array.pHandle.value()), "a mipmapped array");
            }
            Request::cuArrayGetPlane(_) | Request::cuMipmappedArrayGetLevel(_) => {}
            Request::cuArrayDestroy(array) => table.remove(Key::Object(array.hArray.value())),
            Request::cuMipmappedArrayDestroy(array) => {
                table.remove(Key::Object(array.hMipmappedArray.value()));
            }
            Request::texture_create(_) | Request::surface_create(_) => {
                table.hindrances.insert(Key::Object(self.replied_address()), "a texture or surface object");
            }
            Request::texture_destroy(texture) => table.remove(Key::Object(texture.object)),
            Request::surface_destroy(surface) => table.remove(Key::Object(surface.object)),
            Request::link_create(link) => {
                table.hindrances.insert(Key::Object(link.state.value()), "a linker of device code at work");
            }
            Request::link_add(_) | Request::link_complete(_) | Request::link_result(_) => {}
            Request::link_destroy(link) => table.remove(Key::Object(link.state.value())),
            // Pages of the client. The child of a fork hands its own over under the same numbers; a session with a
            // link that passes descriptors moves nowhere.
            Request::client_memory_map(map) => table.put(Key::Address(map.address), self.entry(0)),
            Request::client_file_map(map) => table.put(Key::Address(map.address), self.entry(0)),
            Request::client_memory_unmap(unmap) => table.remove(Key::Address(unmap.address)),
            Request::mirror_create(_) => {
                table.put(Key::Address(self.replied_address()), self.entry_with_reply(0))
            }
            Request::mirror_free(free) => table.remove(Key::Address(free.mirror)),
            // Elsewhere all mirrors are looked through, until a client says more of them.
            Request::mirror_search(_) => {}
            Request::mirror_write(_) | Request::mirror_changes(_) | Request::mirror_read(_) => {}
            _ => return false,
        }
        true
    }
}
