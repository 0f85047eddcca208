//! What carries out each command: the engine's own commands here and in the files named below, all others in the back end.

use super::engine::{Engine, Head, State};
use super::incoming::Buffer;
use super::mirrors::Found;
use causeway_api::calls::{EngineRequest, Executor, Request};
use causeway_gpu::{CuResult, dispatch};
use causeway_wire::codec::Encode;
use std::sync::Arc;

/// When a command that was carried out is answered.
pub(super) enum Answer {
    /// The command is done; its results are in the state's reply buffer.
    Now,
    /// A completion answers.
    Later,
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
    ) -> CuResult<Answer> {
        state.reply.clear();
        if let Some(context) = request.ended_context() {
            state.fences.context_ends(&*self.gpu, context);
            self.peers.context_ends(context);
            self.ask_back_of(state, head, context)?;
        }
        match request.executor() {
            Executor::Engine(own) => self.execute_own(state, head, request, own, payload),
            Executor::BackEnd => {
                self.dispatch(state, request)?;
                Ok(Answer::Now)
            }
            Executor::Background { is_serial } => {
                self.execute_aside(state, head, request, is_serial, payload, arguments);
                Ok(Answer::Later)
            }
        }
    }

    /// Carries out a command of the engine's own, `own`, with the back end's help where `request` is dispatched to it.
    fn execute_own(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        request: &Request<'_>,
        own: EngineRequest<'_, '_>,
        payload: Option<Buffer>,
    ) -> CuResult<Answer> {
        match own {
            EngineRequest::stream_synchronize(wait) => return self.synchronize_stream(head, wait),
            EngineRequest::event_synchronize(wait) => return self.synchronize_event(head, wait),
            EngineRequest::context_synchronize(_) => return self.synchronize_context(head),
            EngineRequest::memory_free(free) => return self.free_memory(head, free),
            EngineRequest::mirror_free(free) => return self.free_mirror(head, free),
            EngineRequest::client_memory_unmap(unmap) => return self.unmap_client_memory(head, unmap),
            EngineRequest::cuArrayDestroy(destroy) => return self.destroy_array(head, destroy),
            EngineRequest::green_context_destroy(destroy) => {
                return self.destroy_green_context(head, destroy);
            }
            EngineRequest::cuMipmappedArrayDestroy(destroy) => {
                return self.destroy_mipmapped_array(head, destroy);
            }
            EngineRequest::primary_context_reset(reset) => return self.reset_primary_context(head, reset),
            EngineRequest::context_destroy(destroy) => return self.destroy_context(head, destroy),
            EngineRequest::stream_query(query) => self.query_stream(state, head, query)?,
            EngineRequest::event_query(query) => self.query_event(state, head, query)?,
            EngineRequest::event_watch(watch) => self.watch_event(watch)?,
            EngineRequest::copy_from_device_now(copy) => {
                self.copy_from_device_now(state, head, copy)?;
                return Ok(Answer::Later);
            }
            EngineRequest::copy_from_device(copy) => self.copy_from_device(state, head, copy)?,
            EngineRequest::copy_to_device(copy) => {
                self.copy_to_device(state, head, copy, payload)?;
                if copy.publish {
                    let stream = self.objects.native(copy.stream)?;
                    state.fences.set(&*self.gpu, head.context, copy.stream, stream)?;
                }
            }
            EngineRequest::mirror_create(create) => {
                self.mirrors.create(&*self.gpu, head.context, create)?.encode(&mut state.reply);
            }
            EngineRequest::managed_variable(variable) => {
                let library = self.objects.native(variable.library)?;
                let (address, memory) = self.gpu.managed_variable(library, variable.name)?;
                (address, memory.len()).encode(&mut state.reply);
                self.mirrors.adopt(address, memory)?;
            }
            EngineRequest::client_memory_map(map) => {
                self.client_memory.map(&*self.gpu, head.context, map.address, map.size, map.number)?;
            }
            EngineRequest::client_allocation_create(create) => {
                let made = self.client_memory.allocate(&*self.gpu, create.size, create.number)?;
                self.objects.insert(create.allocation, made)?;
            }
            EngineRequest::mirror_of_allocation(mirror) => {
                let allocation = self.objects.native(mirror.allocation)?;
                self.mirrors.create_of_allocation(&*self.gpu, allocation, mirror.address, mirror.size)?;
            }
            EngineRequest::mirror_write(write) => self.mirrors.write(write.changes)?,
            EngineRequest::mirror_changes(ask) => {
                let Found { next, changes, stretches } = self.mirrors.changes(&*self.gpu, ask.start)?;
                self.answer_with(head, |out| {
                    next.encode(out);
                    // A `Vec<u8>` as the codec has it, without a step for each byte.
                    (changes.len() as u32).encode(out);
                    out.extend_from_slice(changes.as_bytes());
                    stretches.encode(out);
                });
                return Ok(Answer::Later);
            }
            EngineRequest::mirror_read(read) => self.read_mirror(read)?,
            EngineRequest::allocation_export(export) => {
                self.export_allocation(head, export)?;
                return Ok(Answer::Later);
            }
            EngineRequest::allocation_import(import) => {
                self.import_allocation(head, import);
                return Ok(Answer::Later);
            }
            EngineRequest::event_export(export) => {
                self.export_event(head, export)?;
                return Ok(Answer::Later);
            }
            EngineRequest::event_import(import) => {
                self.import_event(head, import)?;
                return Ok(Answer::Later);
            }
            EngineRequest::peer_ticket(_) => {
                self.give_ticket(head);
                return Ok(Answer::Later);
            }
            EngineRequest::peer_connect(connect) => {
                self.connect_to_peer(head, connect);
                return Ok(Answer::Later);
            }
            EngineRequest::peer_offer(offer) => self.offer_to_peer(head, offer)?,
            EngineRequest::peer_copy(copy) => self.copy_from_peer(head, copy)?,
            EngineRequest::peer_lend(lend) => {
                self.lend_to_peer(head, lend)?;
                return Ok(Answer::Later);
            }
            EngineRequest::peer_borrow(borrow) => {
                self.borrow_from_peer(head, borrow)?;
                return Ok(Answer::Later);
            }
            EngineRequest::peer_copy_borrowed(copy) => self.copy_borrowed(head, copy)?,
            EngineRequest::peer_return(ended) => self.give_back_loan(ended.loan),
            EngineRequest::export_withdraw(export) => self.exchange.withdraw(export.token.0),
            EngineRequest::host_function(call) => {
                self.host_function(self.objects.native(call.stream)?, call.token)?;
            }
            EngineRequest::stream_destroy(destroy) => {
                let stream = self.objects.native(destroy.stream)?;
                // What cannot be asked back is set aside, and the stream can go.
                let _ = self.ask_back(state, head.context, stream);
                state.fences.stream_ends(&*self.gpu, destroy.stream);
                self.dispatch(state, request)?;
            }
            EngineRequest::primary_context_release(release) => {
                // What is registered in the context must not be known to anybody once that has ended.
                self.mirrors.end_context(release.context);
                self.client_memory.end_context(release.context);
                self.dispatch(state, request)?;
            }
            // The client was told that the load went well, and learnt the error when it used the module.
            EngineRequest::module_unload(unload) => {
                if !self.objects.forget_failed(unload.module.value()) {
                    self.dispatch(state, request)?;
                }
            }
            EngineRequest::library_unload(unload) => {
                if !self.objects.forget_failed(unload.library.value()) {
                    self.dispatch(state, request)?;
                }
            }
            EngineRequest::memory_block_create(block) => {
                self.dispatch(state, request)?;
                self.blocks.add(block);
            }
            EngineRequest::memory_block_release(block) => {
                self.blocks.remove(block);
                self.dispatch(state, request)?;
            }
        }
        Ok(Answer::Now)
    }

    /// Has the back end carry out a command, whose results go to the reply.
    fn dispatch(&self, state: &mut State, request: &Request<'_>) -> CuResult<()> {
        let mut reply = core::mem::take(&mut state.reply);
        let outcome = dispatch(&*self.gpu, &self.objects, request, &[], &mut reply);
        state.reply = reply;
        outcome
    }
}
