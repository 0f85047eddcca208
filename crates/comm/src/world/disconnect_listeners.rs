//! Callbacks on disconnected peers.

use core::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type DisconnectCallback = Box<dyn Fn(u32) + Send + Sync>;

/// Those that hear of it.
#[derive(Default)]
pub(super) struct DisconnectListeners(Mutex<Listeners>);

#[derive(Default)]
struct Listeners {
    next: u64,
    listeners: Vec<(u64, DisconnectCallback)>,
}

impl fmt::Debug for DisconnectListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Departures")
    }
}

impl DisconnectListeners {
    fn lock(&self) -> MutexGuard<'_, Listeners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A peer has gone. Returns when all that hear of it have done what they do then.
    pub(super) fn notify(&self, peer: u32) {
        for (_, callback) in &self.lock().listeners {
            callback(peer);
        }
    }

    /// Has something called with each peer that goes from now on.
    pub(super) fn listen(self: &Arc<Self>, callback: DisconnectCallback) -> Listener {
        let mut listeners = self.lock();
        let number = listeners.next;
        listeners.next += 1;
        listeners.listeners.push((number, callback));
        drop(listeners);
        Listener { disconnect_listeners: Arc::clone(self), number }
    }
}

/// Hears of peers that have gone, until it is dropped.
#[derive(Debug)]
pub struct Listener {
    disconnect_listeners: Arc<DisconnectListeners>,
    number: u64,
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.disconnect_listeners.lock().listeners.retain(|(number, _)| *number != self.number);
    }
}
