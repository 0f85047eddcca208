//! Command dispatch: which part of the engine, or of the back end, executes each. A part of the engine, or
//! the back end.
//!
//! Slow commands are carried out by other threads while the engine goes on.

use std::sync::Arc;

use causeway_api::calls::{EngineRequest, Executor, Request};
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_gpu::{CuResult, dispatch};
use causeway_wire::codec::Encode;

use crate::worker::engine::state::{Engine, State};
use crate::worker::incoming::Buffer;
use crate::worker::memory::mirrors::Found;
use crate::worker::session::{Head, ReplyTime};
use crate::worker::{exports, waits};

impl Engine {
    /// Carries out a command in the current context.
    pub(super) fn execute(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &Request<'_>,
        payload: Option<Buffer>,
        arguments: &[u8],
    ) -> CuResult<ReplyTime> {
        state.reply.clear();
        if let Some(context) = request.ended_context() {
            state.fences.context_ends(self.session.gpu(), context);
            self.peers.context_ends(context);
            state.in_flight.context_ends(&self.session, head, context)?;
        }
        let memory = self.session.device_memory();
        let reservation = memory.reserve_for(request)?;
        let outcome = match request.executor() {
            Executor::Engine(own) => self.execute_own(state, head, request, own, payload)?,
            Executor::BackEnd => {
                self.dispatch(state, request)?;
                ReplyTime::Now
            }
            Executor::Background { is_serial } => {
                self.execute_in_background(state, head, request, is_serial, payload, arguments);
                ReplyTime::Later
            }
        };
        memory.carried_out(request, head.context, &state.reply, reservation);
        // Those in the background note themselves.
        if self.journal.is_recording() && !matches!(request.executor(), Executor::Background { .. }) {
            self.journal.note(request, head.opcode, head.context.value(), arguments, &state.reply, None);
        }
        Ok(outcome)
    }

    /// Carries out a command of the engine's own, `own`, with the back end's help where `request` is
    /// dispatched to it.
    fn execute_own(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &Request<'_>,
        own: EngineRequest<'_, '_>,
        payload: Option<Buffer>,
    ) -> CuResult<ReplyTime> {
        let (session, gpu) = (&self.session, self.session.gpu());
        self.note_sharing(&own);
        match own {
            EngineRequest::stream_synchronize(wait) => return waits::synchronize_stream(session, head, wait),
            EngineRequest::event_synchronize(wait) => return waits::synchronize_event(session, head, wait),
            EngineRequest::context_synchronize(_) => return waits::synchronize_context(session, head),
            EngineRequest::memory_free(free) => return waits::free_memory(session, head, free),
            EngineRequest::mirror_free(free) => return waits::free_mirror(session, &self.memory, head, free),
            EngineRequest::client_memory_unmap(unmap) => {
                return waits::unmap_client_memory(session, &self.memory, head, unmap);
            }
            EngineRequest::cuArrayDestroy(destroy) => return waits::destroy_array(session, head, destroy),
            EngineRequest::green_context_destroy(destroy) => {
                return waits::destroy_green_context(session, head, destroy);
            }
            EngineRequest::cuMipmappedArrayDestroy(destroy) => {
                return waits::destroy_mipmapped_array(session, head, destroy);
            }
            EngineRequest::primary_context_reset(reset) => {
                return waits::reset_primary_context(session, &self.memory, head, reset);
            }
            EngineRequest::context_destroy(destroy) => {
                return waits::destroy_context(session, &self.memory, head, destroy);
            }
            EngineRequest::cuMemGetInfo_v2(_) => {
                let (free, total) = gpu.cuMemGetInfo_v2()?;
                session.device_memory().visible(free, total).encode(&mut state.reply);
            }
            EngineRequest::memory_free_async(free) => {
                let stream = session.objects().native(free.stream)?;
                self.dispatch(state, request)?;
                waits::release_after(session, stream, session.device_memory().take_address(free.address));
            }
            EngineRequest::stream_query(query) => {
                waits::query_stream(session, &mut state.reply, head, query)?
            }
            EngineRequest::event_query(query) => waits::query_event(session, &mut state.reply, head, query)?,
            EngineRequest::event_watch(watch) => waits::watch_event(session, watch)?,
            EngineRequest::copy_from_device_now(copy) => {
                self.downloads.copy_now(session, &mut state.in_flight, head, copy)?;
                return Ok(ReplyTime::Later);
            }
            EngineRequest::copy_from_device(copy) => {
                self.downloads.copy(session, &mut state.in_flight, &self.rdma, head, copy)?
            }
            EngineRequest::copy_to_device(copy) => {
                self.uploads.copy(session, &mut state.in_flight, &self.rdma, head, copy, payload)?;
                if copy.publish {
                    let stream = session.objects().native(copy.stream)?;
                    state.fences.set(gpu, head.context, copy.stream, stream)?;
                }
            }
            EngineRequest::mirror_create(create) => {
                self.memory.mirrors.create(gpu, head.context, create)?.encode(&mut state.reply);
            }
            EngineRequest::managed_variable(variable) => {
                let library = session.objects().native(variable.library)?;
                let (address, memory) = gpu.managed_variable(library, variable.name)?;
                (address, memory.len()).encode(&mut state.reply);
                self.memory.mirrors.adopt(address, memory)?;
            }
            EngineRequest::client_memory_map(map) => {
                self.memory.shared.map(gpu, head.context, map.address, map.size, map.number)?;
            }
            EngineRequest::client_file_map(map) => {
                let (address, number) = (map.address, map.number);
                self.memory.shared.map_file(gpu, head.context, address, map.size, map.offset, number)?;
            }
            EngineRequest::client_allocation_create(create) => {
                let made = self.memory.shared.allocate(gpu, create.size, create.number)?;
                session.objects().insert(create.allocation, made)?;
            }
            EngineRequest::mirror_of_allocation(mirror) => {
                let allocation = session.objects().native(mirror.allocation)?;
                self.memory.mirrors.create_of_allocation(gpu, allocation, mirror.address, mirror.size)?;
            }
            EngineRequest::mirror_write(write) => self.memory.mirrors.write(write.changes)?,
            EngineRequest::mirror_changes(query) => {
                let start = query.start;
                if self.memory.mirrors.are_few() {
                    self.report_changes(head, start);
                } else {
                    // Other commands go on meanwhile; the client sends no changes for what is looked through.
                    let engine = Arc::clone(self);
                    self.searcher.run(move || engine.report_changes(head, start));
                }
                return Ok(ReplyTime::Later);
            }
            EngineRequest::mirror_read(read) => {
                self.downloads.read_mirror(session, &self.memory.mirrors, read)?
            }
            EngineRequest::allocation_export(export) => {
                exports::export_allocation(session, head, export)?;
                return Ok(ReplyTime::Later);
            }
            EngineRequest::allocation_import(import) => {
                exports::import_allocation(session, head, import);
                return Ok(ReplyTime::Later);
            }
            EngineRequest::event_export(export) => {
                exports::export_event(session, head, export)?;
                return Ok(ReplyTime::Later);
            }
            EngineRequest::event_import(import) => {
                exports::import_event(session, head, import)?;
                return Ok(ReplyTime::Later);
            }
            EngineRequest::peer_ticket(_) => {
                self.peers.issue_ticket(session, head);
                return Ok(ReplyTime::Later);
            }
            EngineRequest::peer_connect(connect) => {
                self.peers.connect(session, head, connect);
                return Ok(ReplyTime::Later);
            }
            EngineRequest::peer_offer(offer) => self.peers.offer(session, head, offer)?,
            EngineRequest::peer_copy(copy) => self.peers.copy(session, head, copy)?,
            EngineRequest::peer_export(export) => {
                self.peers.export(session, head, export)?;
                return Ok(ReplyTime::Later);
            }
            EngineRequest::peer_import(import) => {
                self.peers.import(session, head, import)?;
                return Ok(ReplyTime::Later);
            }
            EngineRequest::peer_copy_imported(copy) => self.peers.copy_imported(session, head, copy)?,
            EngineRequest::peer_release(ended) => self.peers.release(session, ended.import),
            EngineRequest::export_withdraw(export) => session.exchange().withdraw(export.token.0),
            EngineRequest::host_function(call) => {
                self.host_functions.enqueue(session, session.objects().native(call.stream)?, call.token)?;
            }
            EngineRequest::stream_destroy(destroy) => {
                let stream = session.objects().native(destroy.stream)?;
                // What cannot be reclaimed is set aside, and the stream can go.
                let _ = state.in_flight.reclaim(gpu, head.context, stream);
                state.fences.stream_ends(gpu, destroy.stream);
                self.dispatch(state, request)?;
            }
            EngineRequest::primary_context_release(release) => {
                // What is registered in the context must not be known to anybody once that has ended.
                self.memory.end_context(release.context);
                self.dispatch(state, request)?;
                session.device_memory().context_ended(release.context);
            }
            // The client was told that the load went well, and learnt the error when it used the module.
            EngineRequest::module_unload(unload) => {
                if !session.objects().forget_failed(unload.module.value()) {
                    self.dispatch(state, request)?;
                }
            }
            EngineRequest::library_unload(unload) => {
                if !session.objects().forget_failed(unload.library.value()) {
                    self.dispatch(state, request)?;
                }
            }
            EngineRequest::memory_block_create(block) => {
                self.dispatch(state, request)?;
                self.rdma.blocks().add(block);
            }
            EngineRequest::memory_block_release(block) => {
                self.rdma.blocks().remove(block);
                self.dispatch(state, request)?;
            }
        }
        Ok(ReplyTime::Now)
    }

    /// Answers with what kernels have changed in mirrors from an address on.
    fn report_changes(&self, head: Head, start: u64) {
        let session = &self.session;
        let found = session
            .enter_context(head.context)
            .and_then(|()| self.memory.mirrors.changes(session.gpu(), start));
        match found {
            Ok(Found { next, changes, ranges }) => session.reply_with(head, |out| {
                next.encode(out);
                // A `Vec<u8>` as the codec has it, without a step for each byte.
                (changes.len() as u32).encode(out);
                out.extend_from_slice(changes.as_bytes());
                ranges.encode(out);
            }),
            Err(error) => session.reply(head, Err(error), &[]),
        }
    }

    /// Has the back end carry out a command, whose results go to the reply.
    fn dispatch(&self, state: &mut State, request: &Request<'_>) -> CuResult<()> {
        let mut reply = core::mem::take(&mut state.reply);
        let outcome = dispatch(self.session.gpu(), self.session.objects(), request, &[], &mut reply);
        state.reply = reply;
        outcome
    }
}

impl Engine {
    /// Carries out a slow command on another thread. When nobody waits for it, what names an object that it makes is
    /// held up until it has ended. `is_serial`: it is one of those that NVIDIA's driver wants on one thread, the linker's.
    pub(super) fn execute_in_background(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &Request<'_>,
        is_serial: bool,
        payload: Option<Buffer>,
        arguments: &[u8],
    ) {
        let arguments = arguments.to_vec();
        if head.call == 0 {
            state.queue.begin_making(request);
        }
        let engine = Arc::clone(self);
        let job = move || engine.carry_out(head, &arguments, payload);
        if is_serial { self.linker.run(job) } else { self.session.in_background(job) }
    }

    fn carry_out(&self, head: Head, arguments: &[u8], payload: Option<Buffer>) {
        let mut reply = Vec::new();
        // It was decoded before, so this cannot fail; an answer is owed all the same.
        let Ok(request) = Request::decode(head.opcode, arguments) else {
            return self.session.reply(head, Err(CUresult::CUDA_ERROR_UNKNOWN), &[]);
        };
        let payload = payload.map(Arc::new);
        let bytes = match (&payload, request.payload()) {
            (Some(buffer), _) => buffer.contents(),
            (None, Some(Payload::Inline(bytes))) => bytes.into(),
            (None, _) => Default::default(),
        };
        let session = &self.session;
        let outcome = session
            .enter_context(head.context)
            .and_then(|()| dispatch(session.gpu(), session.objects(), &request, &bytes, &mut reply));
        if outcome.is_ok() && self.journal.is_recording() {
            let image = payload.clone().or_else(|| {
                let Some(Payload::Inline(bytes)) = request.payload() else { return None };
                Some(Arc::new(Buffer::Plain(bytes.to_vec())))
            });
            self.journal.note(&request, head.opcode, head.context.value(), arguments, &reply, image);
        }
        match outcome {
            Err(error) if head.call == 0 => {
                tracing::debug!(command = head.opcode.name(), status = error.0, "failed; its use will tell");
                request.makes(|handle| session.objects().fail(handle, error));
            }
            outcome => session.reply(head, outcome, &reply),
        }
        if head.call == 0 {
            request.makes(|handle| self.made.lock().push(handle));
            session.wake();
        }
        drop(bytes);
        if let (Some(Payload::Image { hash, .. }), Some(buffer)) = (request.payload(), payload) {
            self.uploads.keep(Buffer::Shared(buffer), hash);
        }
    }
}
