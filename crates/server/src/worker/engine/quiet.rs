//! What of a session is under way, or holds its device memory, as far as its engine knows.

use super::parts::Engine;
use crate::worker::release_check::{Busy, Held};
use causeway_api::calls::EngineRequest;
use causeway_api::handle::Context;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Engine {
    /// What is under way; what streams hold is the back end's to say.
    pub fn busy(self: &Arc<Self>) -> Option<Busy> {
        let activity = self.session.exchange().activity();
        if activity.is_reply_owed() {
            return Some(Busy::Call);
        }
        let state = self.state.lock();
        let is_deferred = state.queue.holds_any();
        self.state.release(state, |state| self.resume(state));
        if is_deferred {
            return Some(Busy::Deferred);
        }
        if self.uploads.incoming().are_any_awaited() || !self.downloads.are_all_sent() {
            return Some(Busy::Transfer);
        }
        let pools = [self.session.background(), &self.linker, &self.searcher];
        let is_slow_work = !pools.iter().all(|pool| pool.is_idle()) || !self.made.lock().is_empty();
        is_slow_work.then_some(Busy::Background)
    }

    /// What is under way, apart from bytes that have come and wait for commands of the client, which are held back.
    pub fn busy_but_for_commands(self: &Arc<Self>) -> Option<Busy> {
        if self.session.exchange().activity().is_reply_owed() {
            return Some(Busy::Call);
        }
        let state = self.state.lock();
        let is_deferred = state.queue.holds_any();
        self.state.release(state, |state| self.resume(state));
        if is_deferred {
            return Some(Busy::Deferred);
        }
        if !self.downloads.are_all_sent() {
            return Some(Busy::Transfer);
        }
        let pools = [self.session.background(), &self.linker, &self.searcher];
        let is_slow_work = !pools.iter().all(|pool| pool.is_idle()) || !self.made.lock().is_empty();
        if is_slow_work {
            return Some(Busy::Background);
        }
        (!self.session.gpu().is_quiet()).then_some(Busy::Stream)
    }

    /// What holds the session's memory on the device for good.
    pub fn held_by(&self) -> Option<Held> {
        if self.is_shared.load(Ordering::Relaxed) {
            Some(Held::Shared)
        } else if self.has_peers.load(Ordering::Relaxed) {
            Some(Held::Peers)
        } else {
            self.rdma.has_registrations().then_some(Held::Rdma)
        }
    }

    /// Takes note of a command that shares memory with other processes.
    pub(super) fn note_sharing(&self, request: &EngineRequest<'_, '_>) {
        let flag = match request {
            EngineRequest::allocation_export(_)
            | EngineRequest::allocation_import(_)
            | EngineRequest::event_export(_)
            | EngineRequest::event_import(_) => &self.is_shared,
            EngineRequest::peer_ticket(_)
            | EngineRequest::peer_connect(_)
            | EngineRequest::peer_export(_)
            | EngineRequest::peer_import(_) => &self.has_peers,
            _ => return,
        };
        flag.store(true, Ordering::Relaxed);
    }

    /// How many contexts the session has.
    pub fn contexts(&self) -> usize {
        self.session.objects().handles::<Context>().len()
    }

    /// Has the device forget memory that is shared with the client, which is registered again when it is used next.
    pub fn forget_shared_memory(&self) {
        self.uploads.forget_registrations();
    }
}
