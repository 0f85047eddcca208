//! Lanes of a communicator, and its end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::engine::{Connection, Engine, LaneEnd, LaneHandle, LaneSocket, Output};
use crate::error::ResultCode;
use crate::log;
use crate::staging_block::STAGING_BYTES;

/// The most bytes of a part: a receiver whose memory is a GPU's needs no more room for it on the host.
pub(super) const PART_BYTES: usize = STAGING_BYTES;

/// Lanes, each with a queue of what is to be written to it.
pub(super) struct Lanes {
    queues: Vec<Mutex<VecDeque<Output>>>,
    handles: OnceLock<Vec<LaneHandle>>,
    /// Whether descriptors can be sent along.
    pub(super) pass_descriptors: bool,
    is_reported: AtomicBool,
    /// The peer, for messages.
    pub(super) peer: String,
}

impl Lanes {
    /// For so many sockets as there are.
    pub(super) fn new(sockets: &[LaneSocket], peer: String) -> Self {
        let queues = sockets.iter().map(|_| Mutex::new(VecDeque::new())).collect();
        let pass_descriptors = sockets.iter().all(LaneSocket::passes_descriptors);
        Self { queues, handles: OnceLock::new(), pass_descriptors, is_reported: AtomicBool::new(false), peer }
    }

    /// Lets workers carry the lanes of a connection.
    pub(super) fn start(&self, engine: &Engine, connection: &Arc<dyn Connection>, sockets: Vec<LaneSocket>) {
        // It is started once.
        let _ = self.handles.set(engine.add(sockets, connection));
    }

    pub(super) fn count(&self) -> usize {
        self.queues.len()
    }

    /// Lets something be written.
    pub(super) fn push(&self, lane: usize, output: Output) {
        self.queue(lane).push_back(output);
        self.wake(lane);
    }

    /// Has a lane's worker look at its queue, and at what goes on beside the lanes where it is the first one.
    pub(super) fn wake(&self, lane: usize) {
        // Before it is started a lane takes what is in its queue when it is.
        if let Some(handle) = self.handle(lane) {
            handle.wake();
        }
    }

    pub(super) fn pop(&self, lane: usize) -> Option<Output> {
        self.queue(lane).pop_front()
    }

    fn queue(&self, lane: usize) -> MutexGuard<'_, VecDeque<Output>> {
        self.queues[lane].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handle(&self, lane: usize) -> Option<&LaneHandle> {
        self.handles.get()?.get(lane)
    }

    fn handles(&self) -> impl Iterator<Item = &LaneHandle> {
        self.handles.get().into_iter().flatten()
    }

    /// Ends all some time soon.
    pub(super) fn stop_later(&self) {
        self.handles().for_each(LaneHandle::stop_later);
    }

    /// Ends all at once: no memory of the program is used any more when this returns.
    pub(super) fn stop(&self) {
        self.handles().for_each(LaneHandle::stop);
    }

    /// Lets all end when what is queued is written and the peer has closed, too.
    pub(super) fn drain(&self) {
        self.handles().for_each(LaneHandle::drain);
    }

    /// Says why the communicator fails, for which there is this code. Of several lanes that end the first counts.
    pub(super) fn report(&self, what: &str, end: &LaneEnd) -> ResultCode {
        let peer = &self.peer;
        if self.is_reported.swap(true, Ordering::Relaxed) {
            return ResultCode::RemoteError;
        }
        match end {
            LaneEnd::Closed => {
                log::warn(&format!("{what} {peer} failed: the peer has closed the connection or ended"))
            }
            LaneEnd::CutOff => log::warn(&format!("{what} {peer} failed: the peer ended within a message")),
            LaneEnd::Failed(error) => log::warn(&format!("{what} {peer} failed: {error}")),
            LaneEnd::Malformed(text) => {
                log::warn(&format!(
                    "{what} {peer} failed: {text}; do both ends use the same version of the plugin?"
                ));
                return ResultCode::InternalError;
            }
        }
        ResultCode::RemoteError
    }
}
