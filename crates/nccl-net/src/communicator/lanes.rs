//! Lanes of a communicator, and its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::engine::{Connection, Engine, LaneEnd, LaneHandle, LaneSocket, Output};
use crate::error::ResultCode;
use crate::log;

/// Lanes, each with a queue of what is to be written to it.
pub(super) struct Lanes {
    queues: Vec<Mutex<VecDeque<Output>>>,
    handles: OnceLock<Vec<LaneHandle>>,
    /// The peer, for messages.
    pub(super) peer: String,
}

impl Lanes {
    pub(super) fn new(count: usize, peer: String) -> Self {
        let queues = (0..count).map(|_| Mutex::new(VecDeque::new())).collect();
        Self { queues, handles: OnceLock::new(), peer }
    }

    /// Lets workers carry the lanes of a connection.
    pub(super) fn start(&self, engine: &Engine, connection: &Arc<dyn Connection>, sockets: Vec<LaneSocket>) {
        let handles = sockets.into_iter().enumerate();
        let handles =
            handles.map(|(lane, socket)| engine.add(socket, Arc::clone(connection), lane)).collect();
        // It is started once.
        let _ = self.handles.set(handles);
    }

    pub(super) fn count(&self) -> usize {
        self.queues.len()
    }

    /// Lets something be written.
    pub(super) fn push(&self, lane: usize, output: Output) {
        self.queue(lane).push_back(output);
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

    /// Says why the communicator fails, for which there is this code.
    pub(super) fn report(&self, what: &str, end: &LaneEnd) -> ResultCode {
        let peer = &self.peer;
        match end {
            LaneEnd::Closed => {
                log::warn(&format!("{what} {peer} failed: the peer has closed the connection or ended"))
            }
            LaneEnd::CutOff => log::warn(&format!("{what} {peer} failed: the peer ended within a message")),
            LaneEnd::Failed(error) => log::warn(&format!("{what} {peer} failed: {error}")),
            LaneEnd::Malformed(text) => {
                log::warn(&format!(
                    "{what} {peer} failed: {text}; are both ends of one version of the plugin?"
                ));
                return ResultCode::InternalError;
            }
        }
        ResultCode::RemoteError
    }
}
