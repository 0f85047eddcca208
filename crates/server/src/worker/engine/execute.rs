//! Command dispatch: which part of the engine executes a command, or whether the back end does.
//!
//! Slow commands are carried out by other threads while the engine goes on.

use std::sync::Arc;

use causeway_api::calls::{
    EngineRequest, Executor, Request, copy_to_device, managed_variable, memory_free_async,
    primary_context_release, stream_destroy,
};
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_gpu::{CuResult, dispatch};
use causeway_wire::codec::Encode;

use crate::worker::engine::state::{Engine, State};
use crate::worker::incoming::Buffer;
use crate::worker::journal::Executed;
use crate::worker::memory::mirrors::Found;
use crate::worker::session::{Head, ReplyTime};
use crate::worker::{exports, waits};

/// A command that is answered when this has been carried out.
fn now(outcome: CuResult<()>) -> CuResult<ReplyTime> {
    outcome.map(|()| ReplyTime::Now)
}

/// A command that a completion answers, if this could be carried out.
fn later(outcome: CuResult<()>) -> CuResult<ReplyTime> {
    outcome.map(|()| ReplyTime::Later)
}

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
            state.events.context_ends(context);
            self.peers.context_ends(context);
            state.in_flight.context_ends(&self.session, head, context)?;
        }
        let memory = self.session.device_memory();
        let reservation = memory.reserve_for(request)?;
        let outcome = match request.executor() {
            Executor::Engine(own) => self.execute_engine_command(state, head, request, own, payload)?,
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
        state.events.carried_out(request, head.context);
        // Those in the background note themselves.
        if self.journal.is_recording() && !matches!(request.executor(), Executor::Background { .. }) {
            self.journal.record(&Executed {
                request,
                opcode: head.opcode,
                context: head.context.value(),
                arguments,
                reply: &state.reply,
                image: None,
            });
        }
        Ok(outcome)
    }

    /// Executes a command of the engine's own, `own`, with the back end's help where `request` is dispatched
    /// to it.
    fn execute_engine_command(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &Request<'_>,
        own: EngineRequest<'_, '_>,
        payload: Option<Buffer>,
    ) -> CuResult<ReplyTime> {
        let (session, memory) = (&self.session, &self.memory);
        self.note_sharing(&own);
        match own {
            // Waits and queries.
            EngineRequest::stream_synchronize(wait) => {
                waits::synchronize_stream(session, wait.stream, waits::reply_when_done(session, head))
            }
            EngineRequest::event_synchronize(wait) => {
                waits::synchronize_event(session, wait.event, waits::reply_when_done(session, head))
            }
            EngineRequest::context_synchronize(_) => {
                waits::synchronize_context(session, waits::reply_when_done(session, head))
            }
            EngineRequest::stream_synchronize_mirrored(wait) => {
                let then = waits::reply_when_compared(session, memory, head);
                waits::synchronize_stream(session, wait.stream, then)
            }
            EngineRequest::event_synchronize_mirrored(wait) => {
                let then = waits::reply_when_compared(session, memory, head);
                waits::synchronize_event(session, wait.event, then)
            }
            EngineRequest::context_synchronize_mirrored(_) => {
                waits::synchronize_context(session, waits::reply_when_compared(session, memory, head))
            }
            EngineRequest::stream_query(query) => {
                now(waits::query_stream(session, &mut state.reply, head, query))
            }
            EngineRequest::event_query(query) => {
                now(waits::query_event(session, &mut state.reply, head, query))
            }
            EngineRequest::event_watch(watch) => now(waits::watch_event(session, watch)),
            EngineRequest::host_function(call) => {
                let stream = session.objects().native(call.stream)?;
                now(self.host_functions.enqueue(session, stream, call.token))
            }
            // What ends once the work that uses it has.
            EngineRequest::memory_free(free) => waits::free_memory(session, head, free),
            EngineRequest::memory_free_async(free) => now(self.free_async(state, request, free)),
            EngineRequest::mirror_free(free) => waits::free_mirror(session, memory, head, free),
            EngineRequest::client_memory_unmap(unmap) => {
                waits::unmap_client_memory(session, memory, head, unmap)
            }
            EngineRequest::cuArrayDestroy(destroy) => waits::destroy_array(session, head, destroy),
            EngineRequest::cuMipmappedArrayDestroy(destroy) => {
                waits::destroy_mipmapped_array(session, head, destroy)
            }
            EngineRequest::green_context_destroy(destroy) => {
                waits::destroy_green_context(session, head, destroy)
            }
            EngineRequest::primary_context_reset(reset) => {
                waits::reset_primary_context(session, memory, head, reset)
            }
            EngineRequest::context_destroy(destroy) => waits::destroy_context(session, memory, head, destroy),
            EngineRequest::primary_context_release(release) => {
                now(self.release_primary_context(state, request, release))
            }
            EngineRequest::stream_destroy(destroy) => now(self.destroy_stream(state, head, request, destroy)),
            EngineRequest::module_unload(unload) => now(self.unload(state, request, unload.module.value())),
            EngineRequest::library_unload(unload) => now(self.unload(state, request, unload.library.value())),
            // Copies.
            EngineRequest::copy_from_device_now(copy) => {
                later(self.downloads.copy_now(session, &mut state.in_flight, head, copy))
            }
            EngineRequest::copy_from_device(copy) => {
                now(self.downloads.copy(session, &mut state.in_flight, &self.rdma, head, copy))
            }
            EngineRequest::copy_to_device(copy) => now(self.copy_to_device(state, head, copy, payload)),
            // Memory that the client and the device share.
            EngineRequest::mirror_create(create) => {
                let created = memory.mirrors.create(session.gpu(), head.context, create);
                now(created.map(|address| address.encode(&mut state.reply)))
            }
            EngineRequest::mirror_of_allocation(mirror) => {
                let allocation = session.objects().native(mirror.allocation)?;
                let (address, size) = (mirror.address, mirror.size);
                now(memory.mirrors.create_of_allocation(session.gpu(), allocation, address, size))
            }
            EngineRequest::mirror_search(search) => {
                now(memory.mirrors.set_searched(&search.mirrors, search.searched))
            }
            EngineRequest::mirror_write(write) => now(memory.mirrors.write(write.changes)),
            EngineRequest::mirror_changes(query) => {
                if query.start == 0 {
                    // The state is this thread's, and with it all that is launched.
                    session.gpu().load_kernels_if_quiet();
                }
                self.find_changes(head, query.start);
                Ok(ReplyTime::Later)
            }
            EngineRequest::mirror_read(read) => {
                now(self.downloads.read_mirror(session, &memory.mirrors, read))
            }
            EngineRequest::managed_variable(variable) => now(self.find_managed_variable(state, variable)),
            EngineRequest::client_memory_map(map) => {
                now(memory.shared.map(session.gpu(), head.context, map.address, map.size, map.number))
            }
            EngineRequest::client_file_map(map) => {
                let (address, number) = (map.address, map.number);
                let (gpu, context) = (session.gpu(), head.context);
                now(memory.shared.map_file(gpu, context, address, map.size, map.offset, number))
            }
            EngineRequest::client_allocation_create(create) => {
                let made = memory.shared.allocate(session.gpu(), create.size, create.number)?;
                now(session.objects().insert(create.allocation, made))
            }
            EngineRequest::memory_block_create(block) => {
                let created = self.dispatch(state, request);
                now(created.map(|()| self.rdma.blocks().add(block)))
            }
            EngineRequest::memory_block_release(block) => {
                self.rdma.blocks().remove(block);
                now(self.dispatch(state, request))
            }
            EngineRequest::cuMemGetInfo_v2(_) => {
                let (free, total) = session.gpu().cuMemGetInfo_v2()?;
                session.device_memory().visible(free, total).encode(&mut state.reply);
                Ok(ReplyTime::Now)
            }
            // Other sessions and their workers.
            EngineRequest::allocation_export(export) => {
                later(exports::export_allocation(session, head, export))
            }
            EngineRequest::allocation_import(import) => {
                exports::import_allocation(session, head, import);
                Ok(ReplyTime::Later)
            }
            EngineRequest::event_export(export) => later(exports::export_event(session, head, export)),
            EngineRequest::event_import(import) => later(exports::import_event(session, head, import)),
            EngineRequest::peer_ticket(_) => {
                self.peers.issue_ticket(session, head);
                Ok(ReplyTime::Later)
            }
            EngineRequest::peer_connect(connect) => {
                self.peers.connect(session, head, connect);
                Ok(ReplyTime::Later)
            }
            EngineRequest::peer_offer(offer) => now(self.peers.offer(session, head, offer)),
            EngineRequest::peer_copy(copy) => now(self.peers.copy(session, head, copy)),
            EngineRequest::peer_export(export) => later(self.peers.export(session, head, export)),
            EngineRequest::peer_import(import) => later(self.peers.import(session, head, import)),
            EngineRequest::peer_copy_imported(copy) => now(self.peers.copy_imported(session, head, copy)),
            EngineRequest::peer_release(ended) => {
                self.peers.release(session, ended.import);
                Ok(ReplyTime::Now)
            }
            EngineRequest::export_withdraw(export) => {
                session.exchange().withdraw(export.token.0);
                Ok(ReplyTime::Now)
            }
        }
    }

    fn free_async(&self, state: &mut State, request: &Request<'_>, free: &memory_free_async) -> CuResult<()> {
        let session = &self.session;
        let stream = session.objects().native(free.stream)?;
        self.dispatch(state, request)?;
        waits::release_after(session, stream, session.device_memory().take_address(free.address));
        Ok(())
    }

    fn release_primary_context(
        &self,
        state: &mut State,
        request: &Request<'_>,
        release: &primary_context_release,
    ) -> CuResult<()> {
        // What is registered in the context must not be known to anybody once that has ended.
        self.memory.end_context(release.context);
        self.dispatch(state, request)?;
        self.session.device_memory().context_ended(release.context);
        Ok(())
    }

    fn destroy_stream(
        &self,
        state: &mut State,
        head: Head,
        request: &Request<'_>,
        destroy: &stream_destroy,
    ) -> CuResult<()> {
        let (session, gpu) = (&self.session, self.session.gpu());
        let stream = session.objects().native(destroy.stream)?;
        // What cannot be reclaimed is set aside, and the stream can go.
        let _ = state.in_flight.reclaim(gpu, head.context, stream);
        state.fences.stream_ends(gpu, destroy.stream);
        self.dispatch(state, request)
    }

    /// Unloads a module or a library. The client was informed that its load went well, and learnt an error when it
    /// used it.
    fn unload(&self, state: &mut State, request: &Request<'_>, handle: u64) -> CuResult<()> {
        if self.session.objects().forget_failed(handle) {
            return Ok(());
        }
        self.dispatch(state, request)
    }

    fn copy_to_device(
        &self,
        state: &mut State,
        head: Head,
        copy: &copy_to_device,
        payload: Option<Buffer>,
    ) -> CuResult<()> {
        let session = &self.session;
        self.uploads.copy(session, &mut state.in_flight, &self.rdma, head, copy, payload)?;
        if copy.publish {
            let stream = session.objects().native(copy.stream)?;
            state.fences.set(session.gpu(), head.context, copy.stream, stream)?;
        }
        Ok(())
    }

    fn find_managed_variable(&self, state: &mut State, variable: &managed_variable<'_>) -> CuResult<()> {
        let session = &self.session;
        let library = session.objects().native(variable.library)?;
        let (address, memory) = session.gpu().managed_variable(library, variable.name)?;
        (address, memory.len()).encode(&mut state.reply);
        self.memory.mirrors.adopt(address, memory)
    }

    /// Answers with what kernels have changed in mirrors from an address on, at once or from another thread.
    fn find_changes(self: &Arc<Self>, head: Head, start: u64) {
        if self.memory.mirrors.are_few() {
            self.report_changes(head, start);
        } else {
            // Other commands go on meanwhile; the client sends no changes for what is looked through.
            let engine = Arc::clone(self);
            self.searcher.run(move || engine.report_changes(head, start));
        }
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
    /// held up until it has ended. `is_serial`: it is one of those that NVIDIA's driver wants on one thread,
    /// the linker's.
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
            self.journal.record(&Executed {
                request: &request,
                opcode: head.opcode,
                context: head.context.value(),
                arguments,
                reply: &reply,
                image,
            });
        }
        match outcome {
            Err(error) if head.call == 0 => {
                tracing::debug!(
                    command = head.opcode.name(),
                    status = error.0,
                    "failed; a command that uses \
                    it will report the error"
                );
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
