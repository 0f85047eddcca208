//! Side of a connection: what sender and receiver have both, and how either stops.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::lanes::Lanes;
use super::requests::Requests;
use super::staging::Staging;
use crate::engine::LaneSocket;
use crate::error::ResultCode;

/// What a side knows beside its requests.
pub(super) trait SideState: Default {
    /// Why nothing more can be sent or received, if that is so.
    fn failed(&self) -> Option<ResultCode>;

    /// Nothing more can be: the first reason counts.
    fn fail(&mut self, code: ResultCode);
}

/// A side.
pub(super) struct Side<S> {
    pub(super) lanes: Lanes,
    pub(super) requests: Requests,
    pub(super) staging: Staging,
    state: Mutex<S>,
}

impl<S: SideState> Side<S> {
    /// With connected sockets to a peer.
    pub(super) fn new(sockets: &[LaneSocket], peer: String) -> Self {
        let (lanes, requests) = (Lanes::new(sockets, peer), Requests::new());
        Self { lanes, requests, staging: Staging::default(), state: Mutex::default() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn fail(&self, code: ResultCode) {
        let mut state = self.state();
        state.fail(code);
        self.requests.fail_pending(code);
    }

    /// None of this memory is used any more when this returns, if any was: the communicator has failed then.
    pub(super) fn withdraw(&self, start: u64, bytes: usize) {
        // Under the lock: a request is taken, and its range noted, under it, too.
        let is_used = {
            let state = self.state();
            self.requests.has_pending_in(start, bytes) || state.failed().is_some()
        };
        if is_used {
            self.quiesce();
        }
    }

    /// The same for all memory.
    pub(super) fn quiesce(&self) {
        if self.requests.has_pending() || self.state().failed().is_some() {
            self.fail(ResultCode::InvalidUsage);
            self.lanes.stop();
            self.staging.wait();
        }
    }
}
