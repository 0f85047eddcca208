//! Host functions of the client: a stream stops at one, and goes on when the client says that the function
//! has returned. One that fails before does not get there, which is reported to the client.

use super::session::Session;
use super::stream_task::{self, Stop};
use crate::locks::{Mutex, rank};
use causeway_api::handle::{Native, Stream};
use causeway_gpu::CuResult;
use causeway_wire::codec::Encode;
use causeway_wire::message::{HOST_DONE_TRANSFER, WorkerMessage};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

/// Host functions of which the client says that they have returned before their stop is known. There is one
/// at a time unless the client invents them.
const MAX_UNEXPECTED: usize = 1024;

/// Streams that wait for host functions of the client, by the functions' tokens.
#[derive(Default)]
pub struct HostFunctions(Arc<Mutex<rank::Leaf, Stops>>);

#[derive(Default)]
struct Stops {
    closed: FxHashMap<u64, Arc<Stop>>,
    /// The function has returned, or will never be called, before the stop could be entered here.
    completed: FxHashSet<u64>,
}

impl Stops {
    /// Nobody waits for a function any more; gives what its stream stops at.
    fn end(&mut self, token: u64) -> Option<Arc<Stop>> {
        let stop = self.closed.remove(&token);
        if stop.is_none() && self.completed.len() < MAX_UNEXPECTED {
            self.completed.insert(token);
        }
        stop
    }
}

impl HostFunctions {
    /// Lets go of every stream.
    pub fn open_all(&self) {
        let closed = core::mem::take(&mut self.0.lock().closed);
        closed.into_values().for_each(|stop| stop.open());
    }

    /// A host function of the client has returned: its stream goes on.
    pub fn returned(&self, token: u64) {
        let stop = self.0.lock().end(token);
        if let Some(stop) = stop {
            stop.open();
        }
    }

    /// Puts a host function of the client into a stream: the client is notified when the stream gets there, and
    /// the stream goes on when the client says that the function has returned. Or the client is informed that
    /// the stream has failed before.
    pub fn enqueue(&self, session: &Session, stream: Native<Stream>, token: u64) -> CuResult<()> {
        let (link, of_failed) = (session.link().clone(), session.link().clone());
        let stops = Arc::clone(&self.0);
        let stop = stream_task::enqueue(
            session.gpu(),
            stream,
            move |_| {
                // A lost link is noticed by the receiving thread.
                let _ = link.send(|out| WorkerMessage::HostCall { token }.encode(out));
            },
            move |error| {
                drop(stops.lock().end(token));
                let (token, status) = (HOST_DONE_TRANSFER | token, error.0);
                let _ = of_failed.send(|out| WorkerMessage::Reached { token, status }.encode(out));
            },
        );
        let stop = stop.inspect_err(|_| {
            self.0.lock().completed.remove(&token);
        })?;
        let mut stops = self.0.lock();
        if stops.completed.remove(&token) {
            drop(stops);
            stop.open();
        } else {
            stops.closed.insert(token, stop);
        }
        Ok(())
    }
}
