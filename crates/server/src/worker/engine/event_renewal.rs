//! Event renewal: the native event of a record that must not wait for an earlier one.
//!
//! An event stands for its newest record, and what waits for an earlier one goes on waiting for that. While a
//! record is deferred behind a stream that stands, the program may record the event again in another stream and
//! wait for it before it lets the first go on. So the event gets a new native event for that record, and the
//! deferred commands keep the old one, under a handle that is the engine's own.
//!
//! Events that others name are not renewed, since they would go on naming the old one: those that other processes
//! share, and those that graphs record.

use std::sync::Arc;

use causeway_api::calls::Request;
use causeway_api::handle::{Context, Event, Handle};
use causeway_api::sys::CUevent_flags;
use causeway_wire::codec::Encode;
use rustc_hash::FxHashMap;

use crate::worker::session::Session;

/// How the native event of an event was made.
#[derive(Clone, Copy)]
pub(super) struct Creation {
    pub context: Handle<Context>,
    pub flags: u32,
}

/// The events of a session that can be renewed.
#[derive(Default)]
pub(super) struct RenewableEvents {
    /// By the values of their handles; no more than there are objects.
    creations: FxHashMap<u64, Creation>,
    /// How many have been renewed.
    renewals: u32,
}

impl RenewableEvents {
    /// A command of `context` has been carried out.
    #[inline]
    pub fn carried_out(&mut self, request: &Request<'_>, context: Handle<Context>) {
        let ended = match request {
            Request::event_create(create) => {
                if create.flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 == 0 {
                    let creation = Creation { context, flags: create.flags };
                    self.creations.insert(create.event.value(), creation);
                }
                return;
            }
            Request::event_destroy(destroy) => destroy.event,
            Request::event_export(export) => export.event,
            Request::graph_add_record(add) => add.event,
            Request::graph_exec_record(change) => change.event,
            _ => return,
        };
        self.creations.remove(&ended.value());
    }

    /// A context ends with its events.
    pub fn context_ends(&mut self, context: Handle<Context>) {
        self.creations.retain(|_, creation| creation.context != context);
    }

    /// How an event was made that can be renewed.
    pub fn creation(&self, event: Handle<Event>) -> Option<Creation> {
        self.creations.get(&event.value()).copied()
    }

    /// A handle that no client makes: theirs are counted from 0. One that does is refused the renewal.
    pub fn next_handle(&mut self) -> Handle<Event> {
        self.renewals = self.renewals.wrapping_add(1);
        Handle::new(u32::MAX - self.renewals % (1 << 31), u32::MAX)
    }
}

/// The native event that an event had before it was renewed, for the commands that were deferred then. With the
/// last of them it is destroyed, as a program destroys an event whose record is not done.
pub(super) struct EarlierEvent {
    session: Arc<Session>,
    handle: Handle<Event>,
}

impl EarlierEvent {
    /// The native event that `handle` names in the session.
    pub fn new(session: &Arc<Session>, handle: Handle<Event>) -> Self {
        Self { session: Arc::clone(session), handle }
    }

    /// The handle by which deferred commands name it.
    pub fn handle(&self) -> Handle<Event> {
        self.handle
    }
}

impl Drop for EarlierEvent {
    fn drop(&mut self) {
        // With its context it has ended already.
        let Ok(native) = self.session.objects().remove(self.handle) else { return };
        if let Err(status) = self.session.gpu().event_destroy(native) {
            tracing::warn!(status = status.0, "cannot destroy an event that was recorded again");
        }
    }
}

/// The arguments of a command that names `to` where `request` names `from`; none where that cannot be done.
pub(super) fn renamed(request: &Request<'_>, from: Handle<Event>, to: Handle<Event>) -> Option<Vec<u8>> {
    let new = |event: Handle<Event>| if event == from { to } else { event };
    let mut arguments = Vec::new();
    macro_rules! encode {
        ($request:ident, $($event:ident),*) => {{
            let mut renamed = $request.clone();
            $(renamed.$event = new(renamed.$event);)*
            renamed.encode(&mut arguments);
        }};
    }
    match request {
        Request::event_record(record) => encode!(record, event),
        Request::stream_wait_event(wait) => encode!(wait, event),
        Request::event_synchronize(wait) => encode!(wait, event),
        Request::event_synchronize_mirrored(wait) => encode!(wait, event),
        Request::event_query(query) => encode!(query, event),
        Request::event_watch(watch) => encode!(watch, event),
        Request::event_elapsed(elapsed) => encode!(elapsed, start, end),
        Request::event_destroy(destroy) => encode!(destroy, event),
        _ => return None,
    }
    Some(arguments)
}
