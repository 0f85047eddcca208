//! Journal of a session: the commands that made what it has now, so that another worker can make it again.
//!
//! A command whose effect is over when its work is done leaves nothing here: launches, copies, waits. What makes an
//! object stays until the object is destroyed, what changes a setting until it is changed again. What cannot be carried
//! out a second time with the same result, as far as a program can see that, is noted as a hindrance while it lasts.
//!
//! Kept is no more than what the session itself has: a client that makes no end of objects is stopped by their table.

use causeway_api::calls::{Opcode, Request};
use causeway_wire::codec::Decoder;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::incoming::Buffer;

/// A command that is carried out again.
#[derive(Clone)]
pub struct Entry {
    /// The client's handle of the context that it is carried out in; 0 where it needs none any more.
    pub context: u64,
    /// Which command.
    pub opcode: Opcode,
    /// Its arguments, encoded.
    pub arguments: Box<[u8]>,
    /// The bytes that belong to it.
    pub image: Option<Arc<Buffer>>,
    /// What it has answered and must answer again: addresses that the client knows.
    pub reply: Option<Box<[u8]>>,
    /// With which object it goes, as it does with its context.
    parent: u64,
}

impl Entry {
    /// One that another worker has had.
    pub fn again(
        context: u64,
        opcode: Opcode,
        arguments: Box<[u8]>,
        image: Option<Arc<Buffer>>,
        reply: Option<Box<[u8]>>,
    ) -> Self {
        Self { context, opcode, arguments, image, reply, parent: 0 }
    }
}

/// By what an entry, or a hindrance, is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    /// A handle of the client, or a number of the back end for textures.
    Object(u64),
    /// What has been set last: the command, and of what.
    Setting(u16, u64, u64),
    /// Memory at an address.
    Address(u64),
    /// A command of which each counts.
    Each(u64),
    /// For as long as the session lasts.
    Session(u16),
}

/// A range of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its first address.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// The device to which it belongs.
    pub device: i32,
}

#[derive(Default)]
struct Table {
    entries: BTreeMap<u64, (Key, Entry)>,
    by_key: FxHashMap<Key, u64>,
    /// How many entries go with an object.
    children: FxHashMap<u64, usize>,
    newest: u64,
    /// What cannot be carried, and what that is for people.
    hindrances: BTreeMap<Key, &'static str>,
    /// The last records of events: stream, flags, context.
    recorded: FxHashMap<u64, (u64, u32, u64)>,
    /// Device memory, by the handles of blocks and by the addresses of mappings.
    memory: BTreeMap<Key, MemoryRange>,
}

/// The journal of one session, where one is kept.
#[derive(Default)]
pub struct Journal(Option<Mutex<Table>>);

/// The last record of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// The event.
    pub event: u64,
    /// The stream.
    pub stream: u64,
    /// The flags of the record.
    pub flags: u32,
    /// In which context.
    pub context: u64,
}

impl Table {
    fn put(&mut self, key: Key, entry: Entry) {
        self.forget(key);
        self.by_key.insert(key, self.newest);
        *self.children.entry(entry.parent).or_default() += 1;
        self.entries.insert(self.newest, (key, entry));
        self.newest += 1;
    }

    /// Like [`Self::put`], in the place of an entry of the same key, where there is one.
    fn set(&mut self, key: Key, entry: Entry) {
        match self.by_key.get(&key).and_then(|at| self.entries.get_mut(at)) {
            Some((_, known)) => *known = entry,
            None => self.put(key, entry),
        }
    }

    fn remove(&mut self, key: Key) {
        self.hindrances.remove(&key);
        self.memory.remove(&key);
        self.forget(key);
    }

    fn forget(&mut self, key: Key) {
        let Some((_, entry)) = self.by_key.remove(&key).and_then(|at| self.entries.remove(&at)) else {
            return;
        };
        if let Some(count) = self.children.get_mut(&entry.parent) {
            *count -= 1;
            if *count == 0 {
                self.children.remove(&entry.parent);
            }
        }
    }

    /// An object has ended, with all that goes with it.
    fn remove_with_children(&mut self, object: u64) {
        let mut removed = vec![object];
        while let Some(object) = removed.pop() {
            let of_object = |(_, entry): &&(Key, Entry)| entry.parent == object;
            // Most have none, and there may be many entries.
            let children: Vec<Key> = match self.children.get(&object) {
                Some(_) => self.entries.values().filter(of_object).map(|(key, _)| *key).collect(),
                None => Vec::new(),
            };
            for key in children {
                self.remove(key);
                if let Key::Object(child) = key {
                    self.recorded.remove(&child);
                    removed.push(child);
                }
            }
            self.remove(Key::Object(object));
            self.recorded.remove(&object);
        }
    }

    /// A context has ended: what was made in it has ended, but memory that belongs to its device.
    fn end_context(&mut self, context: u64) {
        let of_context = self.entries.values_mut().filter(|(_, entry)| entry.context == context);
        let mut removed = Vec::new();
        for (key, entry) in of_context {
            if is_of_device(entry.opcode) { entry.context = 0 } else { removed.push(*key) }
        }
        for key in removed {
            match key {
                Key::Object(object) => self.remove_with_children(object),
                other => self.remove(other),
            }
        }
        self.remove_with_children(context);
        self.recorded.retain(|_, (.., of)| *of != context);
    }

    fn range(&mut self, key: Key, address: u64, bytes: usize, device: i32) {
        self.memory.insert(key, MemoryRange { address, bytes: bytes as u64, device });
    }

    /// The addresses are mapped no more.
    fn unmap(&mut self, address: u64, bytes: u64) {
        let is_in = |start: u64| start.wrapping_sub(address) < bytes;
        let of_range = |(key, _): &&(Key, Entry)| match *key {
            Key::Address(start) => is_in(start),
            Key::Setting(_, start, _) if key.opcode() == Some(Opcode::address_access as u16) => is_in(start),
            _ => false,
        };
        let removed: Vec<(Key, u64)> =
            self.entries.values().filter(of_range).map(|(key, entry)| (*key, entry.parent)).collect();
        for (key, allocation) in removed {
            self.remove(key);
            let is_released = Key::Setting(Opcode::allocation_release as u16, allocation, 0);
            if allocation != 0 && self.by_key.contains_key(&is_released) && !self.is_mapped(allocation) {
                self.remove(is_released);
                self.remove(Key::Object(allocation));
            }
        }
    }

    fn is_mapped(&self, allocation: u64) -> bool {
        self.entries.values().any(|(key, entry)| matches!(key, Key::Address(_)) && entry.parent == allocation)
    }
}

impl Key {
    fn opcode(self) -> Option<u16> {
        match self {
            Self::Setting(opcode, ..) => Some(opcode),
            _ => None,
        }
    }
}

/// Whether what a command makes belongs to a device, and not to the context that it was made in.
fn is_of_device(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::memory_block_create
            | Opcode::allocation_create
            | Opcode::allocation_map
            | Opcode::allocation_release
            | Opcode::address_access
            | Opcode::address_window_open
            | Opcode::memory_pool_create
            | Opcode::memory_pool_default
            | Opcode::memory_pool_attribute_set
            | Opcode::memory_pool_current_set
            | Opcode::library_load
            | Opcode::library_kernel
            | Opcode::primary_context_retain
            | Opcode::context_create
    )
}

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
            | Request::stream_query(_)
            | Request::stream_wait_event(_)
            | Request::stream_attribute_get(_)
            | Request::stream_memory_barrier(_)
            | Request::cuStreamWriteValue32_v2(_)
            | Request::cuStreamWaitValue32_v2(_)
            | Request::cuStreamWriteValue64_v2(_)
            | Request::cuStreamWaitValue64_v2(_)
            | Request::event_synchronize(_)
            | Request::event_query(_)
            | Request::event_watch(_)
            | Request::event_elapsed(_)
            | Request::host_function(_)
            | Request::context_synchronize(_)
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
    /// One that is kept, as the session may go to another worker.
    pub fn recording() -> Self {
        Self(Some(Mutex::default()))
    }

    /// Whether one is kept.
    pub fn is_recording(&self) -> bool {
        self.0.is_some()
    }

    /// Takes note of a command that was carried out well in `context`; `reply` is what it has answered, if that is known,
    /// and `image` the bytes that belong to it.
    pub fn note(
        &self,
        request: &Request<'_>,
        opcode: Opcode,
        context: u64,
        arguments: &[u8],
        reply: &[u8],
        image: Option<Arc<Buffer>>,
    ) {
        let Some(table) = &self.0 else { return };
        if is_over_when_done(request) {
            return;
        }
        let number = opcode as u16;
        let entry = |parent: u64| Entry {
            context,
            opcode,
            arguments: arguments.into(),
            image: image.clone(),
            reply: None,
            parent,
        };
        let with_reply = |parent: u64| Entry { reply: Some(reply.into()), ..entry(parent) };
        let address_of = |reply: &[u8]| Decoder::new(reply).value::<u64>().unwrap_or(0);
        let mut table = table.lock();
        match request {
            // Contexts.
            Request::primary_context_retain(retain) => {
                table.put(Key::Object(retain.context.value()), Entry { context: 0, ..entry(0) });
            }
            Request::context_create(create) => {
                table.put(Key::Object(create.context.value()), Entry { context: 0, ..entry(0) });
            }
            Request::primary_context_release(release) => table.end_context(release.context.value()),
            Request::primary_context_reset(reset) => table.end_context(reset.context.value()),
            Request::context_destroy(destroy) => table.end_context(destroy.context.value()),
            Request::context_limit_set(set) => {
                table.set(Key::Setting(number, context, u64::from(set.limit.0)), entry(context));
            }
            Request::cuCtxSetFlags(_)
            | Request::cuCtxSetCacheConfig(_)
            | Request::cuCtxSetSharedMemConfig(_) => {
                table.set(Key::Setting(number, context, 0), entry(context));
            }
            Request::cuCtxEnablePeerAccess(enable) => {
                table.set(Key::Setting(number, context, enable.peerContext.value()), entry(context));
            }
            Request::cuCtxDisablePeerAccess(disable) => {
                let enable = Opcode::cuCtxEnablePeerAccess as u16;
                table.remove(Key::Setting(enable, context, disable.peerContext.value()));
            }
            // Code.
            Request::module_load(load) => table.put(Key::Object(load.module.value()), entry(0)),
            Request::module_unload(unload) => table.remove_with_children(unload.module.value()),
            Request::module_function(function) => {
                table.put(Key::Object(function.function.value()), entry(function.module.value()));
            }
            Request::module_global(global) => {
                let key = Key::Setting(number, global.module.value(), address_of(reply));
                table.set(key, with_reply(global.module.value()));
            }
            Request::library_load(load) => table.put(Key::Object(load.library.value()), entry(0)),
            Request::library_unload(unload) => table.remove_with_children(unload.library.value()),
            Request::library_kernel(kernel) => {
                table.put(Key::Object(kernel.kernel.value()), entry(kernel.library.value()));
            }
            Request::library_module(module) => {
                table.put(Key::Object(module.module.value()), entry(module.library.value()));
            }
            Request::library_global(global) => {
                let key = Key::Setting(number, global.library.value(), address_of(reply));
                table.set(key, with_reply(global.library.value()));
            }
            Request::kernel_function(function) => {
                table.put(Key::Object(function.function.value()), entry(function.kernel.value()));
            }
            Request::function_attribute_set(set) => {
                let function = set.function.value();
                table.set(Key::Setting(number, function, set.attribute.0.into()), entry(function));
            }
            Request::kernel_attribute_set(set) => {
                let what = u64::from(set.attribute.0) << 32 | u64::from(set.device.cast_unsigned());
                table.set(Key::Setting(number, set.kernel.value(), what), entry(set.kernel.value()));
            }
            Request::cuFuncSetCacheConfig(set) => {
                table.set(Key::Setting(number, set.hfunc.value(), 0), entry(set.hfunc.value()));
            }
            Request::cuFuncSetSharedMemConfig(set) => {
                table.set(Key::Setting(number, set.hfunc.value(), 0), entry(set.hfunc.value()));
            }
            Request::cuKernelSetCacheConfig(set) => {
                let what = u64::from(set.dev.cast_unsigned());
                table.set(Key::Setting(number, set.kernel.value(), what), entry(set.kernel.value()));
            }
            // Streams and events.
            Request::stream_create(create) => table.put(Key::Object(create.stream.value()), entry(0)),
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
                let what = Decoder::new(arguments.get(8..).unwrap_or_default()).value::<u32>().unwrap_or(0);
                table.set(Key::Setting(number, set.stream.value(), what.into()), entry(set.stream.value()));
            }
            Request::event_create(create) => table.put(Key::Object(create.event.value()), entry(0)),
            Request::event_destroy(destroy) => table.remove_with_children(destroy.event.value()),
            Request::event_record(record) => {
                let what = (record.stream.value(), record.flags, context);
                table.recorded.insert(record.event.value(), what);
            }
            // Memory.
            Request::memory_block_create(block) => {
                let key = Key::Object(block.block.value());
                table.put(key, entry(0));
                table.range(key, block.address, block.size, block.device);
            }
            Request::memory_block_release(block) => table.remove(Key::Object(block.block.value())),
            Request::address_window_open(_) => table.set(Key::Setting(number, 0, 0), entry(0)),
            Request::allocation_create(create) => {
                table.put(Key::Object(create.allocation.value()), entry(0));
            }
            Request::allocation_release(release) => {
                let allocation = release.allocation.value();
                if table.is_mapped(allocation) {
                    table.put(Key::Setting(number, allocation, 0), entry(0));
                } else {
                    table.remove(Key::Object(allocation));
                }
            }
            Request::allocation_map(map) => {
                let key = Key::Address(map.address);
                table.put(key, entry(map.allocation.value()));
                table.range(key, map.address, map.size, -1);
            }
            Request::allocation_unmap(unmap) => table.unmap(unmap.address, unmap.size as u64),
            Request::address_access(access) => {
                table.put(Key::Setting(number, access.address, access.size as u64), entry(0));
            }
            Request::memory_pool_create(create) => table.put(Key::Object(create.pool.value()), entry(0)),
            Request::memory_pool_default(pool) => table.put(Key::Object(pool.pool.value()), entry(0)),
            Request::memory_pool_attribute_set(set) => {
                let pool = set.pool.value();
                table.set(Key::Setting(number, pool, set.attribute.0.into()), entry(pool));
            }
            Request::memory_pool_current_set(set) => {
                let device = u64::from(set.device.cast_unsigned());
                table.put(Key::Setting(number, device, 0), entry(set.pool.value()));
            }
            Request::cuMemPoolDestroy(destroy) => table.remove_with_children(destroy.pool.value()),
            Request::memory_allocate(_) => {
                let what = "device memory whose address the server has chosen";
                table.hindrances.insert(Key::Address(address_of(reply)), what);
            }
            Request::memory_allocate_async(_) => {
                let what = "memory of a pool whose address the server has chosen";
                table.hindrances.insert(Key::Address(address_of(reply)), what);
            }
            Request::memory_free(free) => table.remove(Key::Address(free.address)),
            Request::memory_free_async(free) => table.remove(Key::Address(free.address)),
            // Graphs: those that are only there to be launched have been described already.
            Request::graph_create(create) => table.put(Key::Object(create.graph.value()), entry(0)),
            Request::graph_add_empty(add) => table.put_each(entry(add.graph.value())),
            Request::graph_add_kernel(add) => table.put_each(entry(add.graph.value())),
            Request::graph_add_copy(add) => table.put_each(entry(add.graph.value())),
            Request::graph_add_fill(add) => table.put_each(entry(add.graph.value())),
            Request::graph_add_record(add) => table.put_each(entry(add.graph.value())),
            Request::graph_add_values(add) => table.put_each(entry(add.graph.value())),
            Request::graph_add_edges(add) => table.put_each(entry(add.graph.value())),
            Request::graph_instantiate(exec) => {
                table.put(Key::Object(exec.exec.value()), entry(exec.graph.value()));
            }
            Request::graph_destroy(destroy) => table.graph_ends(destroy.graph.value(), entry(0)),
            Request::graph_exec_destroy(destroy) => table.exec_ends(destroy.exec.value()),
            Request::graph_exec_kernel(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_copy(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_fill(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_record(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_values(update) => table.exec_updated(update.exec.value()),
            Request::graph_exec_enable(update) => table.exec_updated(update.exec.value()),
            // What has a number or an address of the server's own, or bytes that only the device knows.
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
                table.hindrances.insert(Key::Object(address_of(reply)), "a texture or surface object");
            }
            Request::texture_destroy(texture) => table.remove(Key::Object(texture.object)),
            Request::surface_destroy(surface) => table.remove(Key::Object(surface.object)),
            Request::link_create(link) => {
                table.hindrances.insert(Key::Object(link.state.value()), "a linker of device code at work");
            }
            Request::link_add(_) | Request::link_complete(_) | Request::link_result(_) => {}
            Request::link_destroy(link) => table.remove(Key::Object(link.state.value())),
            Request::mirror_create(_) => {
                let what = "memory of the program that kernels reach (pinned, mapped or managed memory)";
                table.hindrances.insert(Key::Address(address_of(reply)), what);
            }
            Request::mirror_free(free) => table.remove(Key::Address(free.mirror)),
            Request::mirror_write(_) | Request::mirror_changes(_) | Request::mirror_read(_) => {}
            _ => {
                table.hindrances.insert(Key::Session(number), opcode.name());
            }
        }
    }

    /// What cannot be carried to another worker, for people; nothing where all can.
    pub fn hindrance(&self) -> Option<String> {
        let table = self.0.as_ref()?.lock();
        let (key, what) = table.hindrances.iter().next()?;
        let more = match table.hindrances.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} thing(s) more of that kind"),
        };
        Some(match key {
            Key::Session(_) => format!(
                "its program has called {what}, whose effect cannot be carried to another server{more}"
            ),
            Key::Address(address) => format!(
                "it has {what} at {address:#x}, which cannot be carried to another server{more}; once the program has freed \
                 that, it can move"
            ),
            Key::Object(object) => format!(
                "it has {what} ({object:#x}), which cannot be carried to another server{more}; once the program has \
                 destroyed that, it can move"
            ),
            Key::Setting(..) | Key::Each(_) => what.to_string(),
        })
    }

    /// Whether code is loaded.
    pub fn has_code(&self) -> bool {
        let is_code =
            |(_, entry): &(Key, Entry)| matches!(entry.opcode, Opcode::module_load | Opcode::library_load);
        self.0.as_ref().is_some_and(|table| table.lock().entries.values().any(is_code))
    }

    /// The commands, in the order in which they are to be carried out again.
    pub fn entries(&self) -> Vec<Entry> {
        let Some(table) = &self.0 else { return Vec::new() };
        table.lock().entries.values().map(|(_, entry)| entry.clone()).collect()
    }

    /// The last records of events.
    pub fn recorded(&self) -> Vec<Recorded> {
        let Some(table) = &self.0 else { return Vec::new() };
        let of = |(&event, &(stream, flags, context)): (&u64, &(u64, u32, u64))| Recorded {
            event,
            stream,
            flags,
            context,
        };
        table.lock().recorded.iter().map(of).collect()
    }

    /// All device memory, each byte once.
    pub fn memory(&self) -> Vec<MemoryRange> {
        let Some(table) = &self.0 else { return Vec::new() };
        table.lock().memory.values().copied().collect()
    }
}

impl Table {
    fn put_each(&mut self, entry: Entry) {
        self.put(Key::Each(self.newest), entry);
    }

    /// A graph is described no more, which those that were made executable from it do not need.
    fn graph_ends(&mut self, graph: u64, entry: Entry) {
        let is_used = |(key, made): &(Key, Entry)| matches!(key, Key::Object(_)) && made.parent == graph;
        if self.entries.values().any(is_used) {
            self.put(Key::Setting(Opcode::graph_destroy as u16, graph, 0), entry);
        } else {
            self.remove_with_children(graph);
        }
    }

    fn exec_ends(&mut self, exec: u64) {
        let graph = self.by_key.get(&Key::Object(exec)).and_then(|at| self.entries.get(at));
        let graph = graph.map(|(_, entry)| entry.parent);
        self.remove_with_children(exec);
        let Some(graph) = graph else { return };
        let ended = Key::Setting(Opcode::graph_destroy as u16, graph, 0);
        let is_used = |(key, made): &(Key, Entry)| matches!(key, Key::Object(_)) && made.parent == graph;
        if self.by_key.contains_key(&ended) && !self.entries.values().any(is_used) {
            self.remove(ended);
            self.remove_with_children(graph);
        }
    }

    fn exec_updated(&mut self, exec: u64) {
        self.hindrances.insert(Key::Object(exec), "an executable graph that was updated");
    }
}
