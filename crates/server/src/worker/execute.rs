//! What carries out each command: the engine's own commands here and in the files named below, all others in the back end.

use super::engine::{Engine, Head, State};
use super::incoming::Buffer;
use super::mirrors::Found;
use super::order;
use causeway_api::calls::Request;
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
        if let Some(context) = order::ended_context(request) {
            state.fences.context_ends(&*self.gpu, context);
            self.peers.context_ends(context);
            self.ask_back_of(state, head, context)?;
        }
        match request {
            Request::stream_synchronize(_)
            | Request::event_synchronize(_)
            | Request::context_synchronize(_)
            | Request::memory_free(_)
            | Request::mirror_free(_)
            | Request::client_memory_unmap(_)
            | Request::cuArrayDestroy(_)
            | Request::green_context_destroy(_)
            | Request::cuMipmappedArrayDestroy(_)
            | Request::primary_context_reset(_)
            | Request::context_destroy(_) => {
                self.wait(head, request)?;
                return Ok(Answer::Later);
            }
            Request::stream_query(query) => self.query_stream(state, head, query)?,
            Request::event_query(query) => self.query_event(state, head, query)?,
            Request::event_watch(watch) => self.watch_event(watch)?,
            Request::copy_from_device_now(copy) => {
                self.copy_from_device_now(state, head, copy)?;
                return Ok(Answer::Later);
            }
            Request::copy_from_device(copy) => self.copy_from_device(state, head, copy)?,
            Request::copy_to_device(copy) => {
                self.copy_to_device(state, head, copy, payload)?;
                if copy.publish {
                    let stream = self.objects.native(copy.stream)?;
                    state.fences.set(&*self.gpu, head.context, copy.stream, stream)?;
                }
            }
            Request::mirror_create(create) => {
                self.mirrors.create(&*self.gpu, head.context, create)?.encode(&mut state.reply);
            }
            Request::managed_variable(variable) => {
                let library = self.objects.native(variable.library)?;
                let (address, memory) = self.gpu.managed_variable(library, variable.name)?;
                (address, memory.len()).encode(&mut state.reply);
                self.mirrors.adopt(address, memory)?;
            }
            Request::client_memory_map(map) => {
                self.client_memory.map(&*self.gpu, head.context, map.address, map.size, map.number)?;
            }
            Request::client_allocation_create(create) => {
                let made = self.client_memory.allocate(&*self.gpu, create.size, create.number)?;
                self.objects.insert(create.allocation, made)?;
            }
            Request::mirror_of_allocation(mirror) => {
                let allocation = self.objects.native(mirror.allocation)?;
                self.mirrors.create_of_allocation(&*self.gpu, allocation, mirror.address, mirror.size)?;
            }
            Request::mirror_write(write) => self.mirrors.write(write.changes)?,
            Request::mirror_changes(ask) => {
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
            Request::mirror_read(read) => self.read_mirror(read)?,
            Request::allocation_export(export) => {
                self.export_allocation(head, export)?;
                return Ok(Answer::Later);
            }
            Request::allocation_import(import) => {
                self.import_allocation(head, import);
                return Ok(Answer::Later);
            }
            Request::event_export(export) => {
                self.export_event(head, export)?;
                return Ok(Answer::Later);
            }
            Request::event_import(import) => {
                self.import_event(head, import)?;
                return Ok(Answer::Later);
            }
            Request::peer_ticket(_) => {
                self.give_ticket(head);
                return Ok(Answer::Later);
            }
            Request::peer_connect(connect) => {
                self.connect_to_peer(head, connect);
                return Ok(Answer::Later);
            }
            Request::peer_offer(offer) => self.offer_to_peer(head, offer)?,
            Request::peer_copy(copy) => self.copy_from_peer(head, copy)?,
            Request::peer_lend(lend) => {
                self.lend_to_peer(head, lend)?;
                return Ok(Answer::Later);
            }
            Request::peer_borrow(borrow) => {
                self.borrow_from_peer(head, borrow)?;
                return Ok(Answer::Later);
            }
            Request::peer_copy_borrowed(copy) => self.copy_borrowed(head, copy)?,
            Request::peer_return(ended) => self.give_back_loan(ended.loan),
            Request::export_withdraw(export) => self.exchange.withdraw(export.token.0),
            Request::host_function(call) => {
                self.host_function(self.objects.native(call.stream)?, call.token)?;
            }
            Request::stream_destroy(destroy) => {
                let stream = self.objects.native(destroy.stream)?;
                // What cannot be asked back is set aside, and the stream can go.
                let _ = self.ask_back(state, head.context, stream);
                state.fences.stream_ends(&*self.gpu, destroy.stream);
                dispatch(&*self.gpu, &self.objects, request, &[], &mut Vec::new())?;
            }
            Request::primary_context_release(release) => {
                // What is registered in the context must not be known to anybody once that has ended.
                self.mirrors.end_context(release.context);
                self.client_memory.end_context(release.context);
                dispatch(&*self.gpu, &self.objects, request, &[], &mut Vec::new())?;
            }
            // The client was told that the load went well, and learnt the error when it used the module.
            Request::module_unload(unload) if self.objects.forget_failed(unload.module.value()) => {}
            Request::library_unload(unload) if self.objects.forget_failed(unload.library.value()) => {}
            Request::memory_block_create(block) => {
                self.dispatch(state, request)?;
                self.blocks.add(block);
            }
            Request::memory_block_release(block) => {
                self.blocks.remove(block);
                self.dispatch(state, request)?;
            }
            _ if head.opcode.is_aside() => {
                self.execute_aside(state, head, request, payload, arguments);
                return Ok(Answer::Later);
            }
            _ => self.dispatch(state, request)?,
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
