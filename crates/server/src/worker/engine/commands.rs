//! Commands: the frames of the client in which they come; whether one is issued now or queued; and its issue:
//! context, order and reply. Commands of a journal, which another worker has carried out before, are issued here
//! again.

use std::sync::Arc;
use std::time::Instant;

use causeway_api::calls::{Executor, Opcode, Request};
use causeway_api::handle::{Context, Event, Handle};
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_gpu::{CuResult, dispatch};
use causeway_sync::delays;
use causeway_wire::message::{ClientMessage, Command, Messages};

use crate::activity::Activity;
use crate::worker::engine::event_renewal::{Creation, EarlierEvent};
use crate::worker::engine::queue::{Deferred, TooMuch};
use crate::worker::engine::state::{Engine, ProtocolError, State};
use crate::worker::journal::{Entry, Executed};
use crate::worker::launches::Launches;
use crate::worker::order::{self, CommandOrder};
use crate::worker::session::{Head, ReplyTime, Wake, status};
use crate::worker::{rdma, waits};

impl Engine {
    /// Takes one command of the client: issues it, or defers it.
    pub fn command(self: &Arc<Self>, command: &Command<'_>) -> Result<(), ProtocolError> {
        let opcode =
            Opcode::from_number(command.opcode).ok_or(ProtocolError::UnknownCommand(command.opcode))?;
        let request = Request::decode(opcode, command.payload)?;
        let is_called = command.call != 0;
        let received_at = is_called.then(Instant::now);
        let head =
            Head { call: command.call, context: Handle::from_value(command.context), opcode, received_at };
        count(self.session.exchange().activity(), is_called, &request);
        let order = order::command_order(request.order(), head.context);
        if let Some(Payload::Image { number, length, hash }) = request.payload() {
            let is_copy = matches!(request, Request::copy_to_device(_));
            self.uploads.seek_image(&self.session, number, length, hash, is_copy);
        }
        if let Request::copy_to_device(copy) = &request {
            self.rdma.complete_exposed_copy(&self.session, self.uploads.incoming(), copy);
        }
        let mut state = self.state.lock();
        state.queue.note_made(&request, head.context);
        if self.is_ready(&mut state, head, order, &request) {
            self.issue(&mut state, head, order, &request, command.payload);
        } else {
            let answered = waits::reply_to_held_query(&self.session, head, &request);
            let admitted = state.queue.admit(answered, order, command.payload.len(), &request);
            admitted.map_err(|TooMuch(bytes)| ProtocolError::TooMuchDeferred(bytes))?;
            let mut makes = false;
            request.makes(|_| makes = true);
            let payload = command.payload.into();
            let earlier_events = Vec::new();
            state.queue.push(Deferred { head: answered, order, payload, makes, earlier_events });
        }
        self.state.release(state, |state| self.resume(state));
        Ok(())
    }

    /// The receiving thread [polls](Engine::poll) from here on.
    pub fn begin_polling(&self) {
        self.state.begin_to_poll();
    }

    /// Issues what has become ready, for the receiving thread.
    pub fn poll(self: &Arc<Self>) {
        self.state.poll(|state| self.resume(state));
    }

    /// The receiving thread does not poll any more.
    pub fn end_polling(self: &Arc<Self>) {
        self.state.end_to_poll(|state| self.resume(state));
    }

    /// Issues every deferred command whose time has come, in order.
    pub(super) fn resume(self: &Arc<Self>, state: &mut State) {
        for handle in self.made.lock().drain(..) {
            state.queue.end_making(handle);
        }
        self.launches.mark_streams(&self.session);
        for deferred in state.queue.take_deferred() {
            if state.queue.readmit_held(&deferred) {
                state.queue.push(deferred);
                continue;
            }
            let request = match Request::decode(deferred.head.opcode, &deferred.payload) {
                Ok(request) => request,
                Err(error) => {
                    // It was decoded before it was deferred, so this cannot be; a reply is owed all the same.
                    tracing::error!("a deferred command cannot be decoded: {error}");
                    self.session.reply(deferred.head, Err(CUresult::CUDA_ERROR_UNKNOWN), &[]);
                    continue;
                }
            };
            if self.is_ready(state, deferred.head, deferred.order, &request) {
                self.issue(state, deferred.head, deferred.order, &request, &deferred.payload);
            } else {
                // What has waited so far is no more than may wait.
                let _ = state.queue.admit(deferred.head, deferred.order, deferred.payload.len(), &request);
                state.queue.push(deferred);
            }
        }
    }

    /// Whether nothing holds a command up, and it can be issued without blocking; which is to be done then.
    fn is_ready(&self, state: &mut State, head: Head, order: CommandOrder, request: &Request<'_>) -> bool {
        if let Some(event) = state.queue.event_that_holds_up(order) {
            self.renew_event(state, event);
        }
        if state.queue.holds_up(order, request) || !self.uploads.are_complete(request) {
            return false;
        }
        let memory = &self.memory.shared;
        let has_arrived = match request {
            Request::client_memory_map(map) => memory.has_arrived(map.number),
            Request::client_allocation_create(create) => memory.has_arrived(create.number),
            Request::client_file_map(map) => memory.has_file_arrived(map.number),
            _ => true,
        };
        if !has_arrived {
            return false;
        }
        if matches!(request, Request::copy_from_device(_) | Request::copy_from_device_now(_))
            && let CommandOrder::InStream { stream, .. } = order
            && !self.downloads.has_credit(stream)
        {
            return false;
        }
        state.queue.has_capacity(&self.session, order)
            && Launches::stream_of(request, order)
                .is_none_or(|stream| self.launches.try_begin(&self.session, head.context, stream))
    }
}

impl Engine {
    /// Renews an event that is about to be recorded while deferred commands name it. Where it cannot be renewed the
    /// record comes after these.
    fn renew_event(&self, state: &mut State, event: Handle<Event>) {
        let Some(creation) = state.events.creation(event) else { return };
        let earlier = state.events.next_handle();
        let Some(renaming) = state.queue.renaming(event, earlier) else { return };
        match self.exchange_native(event, earlier, creation) {
            Ok(()) => {
                let earlier = EarlierEvent::new(&self.session, earlier);
                state.queue.rename(renaming, event, &Arc::new(earlier));
            }
            Err(status) => tracing::debug!(status = status.0, "cannot renew an event"),
        }
    }

    /// Gives an event a new native event; `earlier` names the one that it had.
    fn exchange_native(
        &self,
        event: Handle<Event>,
        earlier: Handle<Event>,
        creation: Creation,
    ) -> CuResult<()> {
        let (objects, gpu) = (self.session.objects(), self.session.gpu());
        self.session.enter_context(creation.context)?;
        let new = gpu.event_create(creation.flags)?;
        let exchanged = objects.native(event).and_then(|old| objects.insert(earlier, old));
        if exchanged.is_err() {
            gpu.event_destroy(new)?;
            return exchanged;
        }
        objects.replace(event, new)
    }
}

/// Counts a command that has come.
fn count(activity: &Activity, is_called: bool, request: &Request<'_>) {
    activity.command(is_called);
    match request {
        Request::launch(_) | Request::graph_launch(_) => activity.launch(),
        Request::copy_to_device(copy) => activity.copy_to_device(copy.destination.bytes().unwrap_or(0)),
        Request::copy_from_device(copy) => activity.copy_from_device(copy.source.bytes().unwrap_or(0)),
        Request::copy_from_device_now(copy) => activity.copy_from_device(copy.source.bytes().unwrap_or(0)),
        _ => {}
    }
}

impl Wake for Engine {
    /// Something has become ready: deferred commands that waited for it are issued, here if nobody else is at
    /// it or looks for it.
    ///
    /// While the receiving thread looks it is that one: it issues a copy in 4 us, which takes the threads
    /// that receive bulk data 5 to 14, since the driver's memory is in its caches and not in theirs, and
    /// these go on receiving. Copies to a device over TCP are a tenth faster by that (1 to 16 MiB, a virtual
    /// machine with an H200 and 16 cores, 2026-11-23).
    fn wake(self: Arc<Self>) {
        self.state.leave(|state| self.resume(state));
    }

    fn unmap_retired(self: Arc<Self>) {
        self.wait_for_idle();
    }
}

impl Engine {
    /// Carries out a command; what it answers goes out here, or later from a completion.
    pub(super) fn issue(
        self: &Arc<Self>,
        state: &mut State,
        head: Head,
        order: CommandOrder,
        request: &Request<'_>,
        arguments: &[u8],
    ) {
        state.issued += 1;
        self.launches.before(&self.session, request, head.context);
        // Whatever refuses the command, its bytes wait no longer.
        let payload = self.uploads.take(request);
        let outcome = self
            .session
            .enter_context(head.context)
            .and_then(|()| self.pass_fences(state, head.context, order))
            .inspect_err(|_| {
                if let Ok(None) = payload {
                    rdma::release_exposed(&self.session, request);
                }
            });
        let outcome = outcome.and_then(|()| self.execute(state, head, request, payload?, arguments));
        tracing::trace!(command = head.opcode.name(), call = head.call, status = status(&outcome), "issued");
        if let Request::stream_destroy(destroy) = request {
            // Its staging has been reclaimed by `execute`.
            state.queue.stream_destroyed(destroy.stream);
        }
        if let CommandOrder::InStream { stream, .. } = order {
            state.queue.count(&self.session, stream);
        }
        if let Some(stream) = Launches::stream_of(request, order) {
            self.launches.issued(&self.session, head.context, stream);
        }
        match outcome {
            Ok(ReplyTime::Now) => {
                let reply = core::mem::take(&mut state.reply);
                self.session.reply(head, Ok(()), &reply);
                state.reply = reply;
            }
            Ok(ReplyTime::Later) => {}
            Err(error) => {
                if head.call == 0 {
                    request.makes(|handle| self.session.objects().fail(handle, error));
                }
                self.session.reply(head, Err(error), &[]);
            }
        }
    }

    /// Puts a command that goes into a stream behind the synchronous copies before it.
    fn pass_fences(&self, state: &mut State, context: Handle<Context>, order: CommandOrder) -> CuResult<()> {
        let (CommandOrder::InStream { stream, .. }, false) = (order, state.fences.is_empty()) else {
            return Ok(());
        };
        let native = || self.session.objects().native(order::handle(stream));
        state.fences.pass(self.session.gpu(), context, stream, state.queue.kinds(), native)
    }
}

impl Engine {
    /// Carries out a command again. It is noted as it was the first time.
    ///
    /// # Errors
    /// When it fails, or answers something else than the client knows.
    pub fn replay(self: &Arc<Self>, entry: &Entry) -> CuResult<()> {
        let request = Request::decode(entry.opcode, &entry.arguments);
        let request = request.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let context = Handle::from_value(entry.context);
        let head = Head { call: 0, context, opcode: entry.opcode, received_at: None };
        self.session.enter_context(context)?;
        let mut state = self.state.lock();
        state.queue.note_made(&request, context);
        let outcome = if let Executor::Background { .. } = request.executor() {
            let bytes = entry.image.as_ref().map(|image| image.contents()).unwrap_or_default();
            let mut reply = Vec::new();
            let (gpu, objects) = (self.session.gpu(), self.session.objects());
            let done = dispatch(gpu, objects, &request, &bytes, &mut reply);
            if done.is_ok() {
                self.journal.record(&Executed {
                    request: &request,
                    opcode: entry.opcode,
                    context: entry.context,
                    arguments: &entry.arguments,
                    reply: &reply,
                    image: entry.image.clone(),
                });
            }
            done
        } else {
            let executed = self.execute(&mut state, head, &request, None, &entry.arguments);
            let is_same = entry.reply.as_ref().is_none_or(|known| **known == *state.reply);
            executed.and_then(|_| is_same.then_some(()).ok_or(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS))
        };
        self.state.release(state, |state| self.resume(state));
        outcome
    }
}

/// Handles the messages of one frame; `false` when the client said goodbye.
pub fn handle(engine: &Arc<Engine>, body: &[u8]) -> Result<bool, ProtocolError> {
    for message in Messages::<ClientMessage<'_>>::new(body) {
        match message? {
            ClientMessage::Command(command) => {
                delays::inject();
                engine.command(&command)?;
            }
            ClientMessage::HostDone { token } => engine.host_functions().returned(token),
            ClientMessage::Image { transfer, bytes } => {
                engine.uploads().image_received(engine.session(), transfer, bytes)
            }
            ClientMessage::Goodbye => return Ok(false),
        }
    }
    Ok(true)
}
