//! Completion thread of asynchronous copies.
//!
//! A receiver that its program does not wait for begins its copy and returns. The sender waits for the end of
//! that copy, and the program may wait for the sender in any way: in a call of its MPI that knows nothing of
//! copies, at a lock of a file, at a socket. So a thread looks at the copies that are under way, and tells
//! senders of those that are over by their words. It is started with the first such copy, sleeps while there
//! are none, and never calls the MPI: it works whatever level of threads the program has asked its MPI for.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_sync::threads;

use super::state::{Copying, Shared, World, lock};
use crate::cuda::{self, Driver};

/// Times from one look to the next while copies are under way: it grows as long as none of them ends.
const MIN_POLL_INTERVAL: Duration = Duration::from_micros(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_micros(500);

/// For how long the thread looks on when none is under way any more: whoever begins the next one soon need
/// not wake it.
const IDLE_TIME: Duration = Duration::from_millis(50);

impl World {
    /// Whether a thread looks at copies that are under way, which is started now if there is none. Where the
    /// system gives no thread, a copy must be waited for by whoever begins it.
    pub(super) fn watches_copies(&self) -> bool {
        *self.shared.completion.is_started.get_or_init(|| {
            let shared = Arc::clone(&self.shared);
            let node = Driver::loaded().and_then(cuda::current_node);
            let thread = threads::spawn("comm-copies", move || {
                cuda::bind_thread(node);
                watch(&shared);
            });
            thread.map(|thread| lock(&self.threads).push((None, thread))).is_ok()
        })
    }
}

fn watch(shared: &Shared) {
    let completion = &shared.completion;
    let (mut interval, mut idle_since) = (MIN_POLL_INTERVAL, None::<Instant>);
    // The first copy follows.
    let mut is_running = completion.sleep();
    while is_running {
        is_running = completion.pause(interval);
        let mut in_flight = lock(&shared.in_flight);
        let has_ended = in_flight.collect(Instant::now(), Copying::is_done, Copying::notify_sender);
        let is_idle = in_flight.is_idle();
        drop(in_flight);
        interval = if has_ended { MIN_POLL_INTERVAL } else { (interval * 2).min(MAX_POLL_INTERVAL) };
        idle_since = is_idle.then(|| idle_since.unwrap_or_else(Instant::now));
        if idle_since.is_some_and(|since| since.elapsed() >= IDLE_TIME) {
            is_running = is_running && completion.sleep();
            (interval, idle_since) = (MIN_POLL_INTERVAL, None);
        }
    }
}
