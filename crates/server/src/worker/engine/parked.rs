//! When is a command issued, and where is it until then?

use super::{Engine, Head, ProtocolError, State};
use crate::worker::order::{self, Place};
use causeway_api::calls::{Opcode, Request};
use causeway_api::handle::Handle;
use causeway_api::sys::CUresult;
use causeway_api::types::Payload;
use causeway_wire::message::Command;
use parking_lot::MutexGuard;
use std::sync::Arc;

/// Bytes of parked commands. A client that has more waiting for streams that do not move is cut off.
const MOST_PARKED: usize = 1 << 30;

pub(super) struct Parked {
    head: Head,
    place: Place,
    payload: Box<[u8]>,
}

impl Engine {
    /// Takes one command of the client: issues it, or parks it.
    pub fn command(self: &Arc<Self>, command: &Command<'_>) -> Result<(), ProtocolError> {
        let opcode =
            Opcode::from_number(command.opcode).ok_or(ProtocolError::UnknownCommand(command.opcode))?;
        let request = Request::decode(opcode, command.payload)?;
        let head = Head { call: command.call, context: Handle::from_value(command.context), opcode };
        let place = order::place(request.order(), head.context);
        if let Some(Payload::Image { number, length, hash }) = request.payload() {
            self.seek_image(number, length, hash, matches!(request, Request::copy_to_device(_)));
        }
        if let Request::copy_to_device(copy) = &request {
            self.see_to_lent(copy);
        }
        let mut state = self.state.lock();
        if let Some((stream, flags)) = request.new_stream() {
            state.kinds.created(stream, head.context, flags);
        }
        if self.is_ready(&state, place, &request) {
            self.issue(&mut state, head, place, &request, command.payload);
        } else {
            let answered = self.answer_held_up_query(head, &request);
            let parked = Parked { head: answered, place, payload: command.payload.into() };
            self.park(&mut state, parked, &request)?;
        }
        self.release(state);
        Ok(())
    }

    /// Something has become ready: parked commands that waited for it are issued, here if nobody else is at it or looks for it.
    pub fn wake(self: &Arc<Self>) {
        if self.attention.wake() {
            self.see_to_it();
        }
    }

    /// The receiving thread [looks](Engine::look) from here on.
    pub fn begin_to_look(&self) {
        self.attention.begin_to_look();
    }

    /// Issues what has become ready, for the receiving thread.
    pub fn look(self: &Arc<Self>) {
        if self.attention.is_woken() {
            self.see_to_it();
        }
    }

    /// The receiving thread does not look any more.
    pub fn end_to_look(self: &Arc<Self>) {
        if self.attention.end_to_look() {
            self.see_to_it();
        }
    }

    fn see_to_it(self: &Arc<Self>) {
        if let Some(state) = self.state.try_lock() {
            self.release(state);
        }
    }

    /// Gives the lock back, after issuing what became ready while it was held. The flag is read again after
    /// the lock is free, so a wake that found the lock taken is never lost.
    fn release<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        loop {
            while self.attention.take() {
                self.resume(&mut state);
            }
            drop(state);
            if !self.attention.is_woken() {
                return;
            }
            match self.state.try_lock() {
                Some(again) => state = again,
                None => return,
            }
        }
    }

    fn park(&self, state: &mut State, parked: Parked, request: &Request<'_>) -> Result<(), ProtocolError> {
        state.parked_bytes += parked.payload.len() + size_of::<Parked>();
        if state.parked_bytes > MOST_PARKED {
            return Err(ProtocolError::TooMuchParked(state.parked_bytes));
        }
        state.blockers.add(parked.place, parked.head.context, request, &state.kinds);
        state.parked.push_back(parked);
        Ok(())
    }

    /// Issues every parked command whose time has come, in order.
    fn resume(self: &Arc<Self>, state: &mut State) {
        for handle in self.made.lock().drain(..) {
            state.blockers.end_making(handle);
        }
        if state.parked.is_empty() {
            return;
        }
        state.blockers.forget_parked();
        state.parked_bytes = 0;
        for parked in core::mem::take(&mut state.parked) {
            let request = match Request::decode(parked.head.opcode, &parked.payload) {
                Ok(request) => request,
                Err(error) => {
                    // It was decoded before it was parked, so this cannot be; a reply is owed all the same.
                    tracing::error!("a parked command cannot be decoded: {error}");
                    self.answer(parked.head, Err(CUresult::CUDA_ERROR_UNKNOWN), &[]);
                    continue;
                }
            };
            if self.is_ready(state, parked.place, &request) {
                self.issue(state, parked.head, parked.place, &request, &parked.payload);
            } else {
                state.parked_bytes += parked.payload.len() + size_of::<Parked>();
                state.blockers.add(parked.place, parked.head.context, &request, &state.kinds);
                state.parked.push_back(parked);
            }
        }
    }

    /// Whether nothing holds a command up, and it can be issued without blocking.
    fn is_ready(&self, state: &State, place: Place, request: &Request<'_>) -> bool {
        if state.blockers.holds_up(place, request, &state.kinds) {
            return false;
        }
        if let Some(Payload::Transfer { number, .. } | Payload::Image { number, .. }) = request.payload()
            && !self.incoming.is_settled(number)
        {
            return false;
        }
        if let Some(Payload::Lent { number, .. }) = request.payload()
            && self.incoming.knows(number)
            && !self.incoming.is_settled(number)
        {
            return false;
        }
        let handed_over = match request {
            Request::client_memory_map(map) => Some(map.number),
            Request::client_allocation_create(create) => Some(create.number),
            _ => None,
        };
        if handed_over.is_some_and(|number| !self.client_memory.has_arrived(number)) {
            return false;
        }
        if matches!(request, Request::copy_from_device(_) | Request::copy_from_device_now(_))
            && !self.has_outgoing_credit()
        {
            return false;
        }
        self.has_room(state, place)
    }
}
