//! Who hears at once that a peer has gone?

use core::fmt;
use std::sync::{Arc, Mutex};

use super::state::{Shared, World, lock};

type Hears = Box<dyn Fn(u32) + Send + Sync>;

/// Those that hear of it, with their numbers.
#[derive(Default)]
pub(super) struct Departures(Mutex<(u64, Vec<(u64, Hears)>)>);

impl fmt::Debug for Departures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Departures")
    }
}

impl Shared {
    /// A peer has gone. Returns when all that hear of it have done what they do then. What is left of the peer may
    /// hold memory of the driver, which is to be freed behind this: the driver may wait for kernels then that wait
    /// for that peer, and lets no other call in.
    pub(super) fn has_gone(&self, peer: u32) {
        lock(&self.outgoing).remove(&peer);
        for (_, hears) in &lock(&self.departures.0).1 {
            hears(peer);
        }
    }
}

/// Hears of peers that have gone, until it is dropped.
#[derive(Debug)]
pub struct Listener {
    shared: Arc<Shared>,
    number: u64,
}

impl World {
    /// Has something called with each peer that goes from now on, in another thread.
    pub fn listen(&self, hears: impl Fn(u32) + Send + Sync + 'static) -> Listener {
        let shared = Arc::clone(&self.shared);
        let mut departures = lock(&shared.departures.0);
        let number = departures.0;
        departures.0 += 1;
        departures.1.push((number, Box::new(hears)));
        drop(departures);
        Listener { shared, number }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock(&self.shared.departures.0).1.retain(|(number, _)| *number != self.number);
    }
}
