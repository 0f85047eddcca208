//! Deferred unmapping of memory that was imported from other servers.
//!
//! Never while work is under way. The driver waits in cuMemUnmap for all work of the device, with a lock that
//! most of its calls need: a stream that stands still until the client's next command (a value that it waits for,
//! a host function) would then stand still for ever (two servers on an H100, driver 580, 2026-11-26: 3 of 4,000
//! random programs). The client has not asked for the unmapping, and so its program cannot know of it.
//!
//! So this asks for the end of all work in all contexts, and unmaps when it has come and no command has been
//! issued since, with the lock in hand without which none is. Otherwise it asks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causeway_api::handle::Context;

use super::parts::Engine;

/// After a command came in between: a client that goes on is asked about so often at most.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits, by being held, for the work of all contexts.
struct IdleWait {
    engine: Arc<Engine>,
    /// The commands that had been issued before.
    issued: u64,
    is_unknown: AtomicBool,
}

impl Drop for IdleWait {
    fn drop(&mut self) {
        let (engine, issued) = (Arc::clone(&self.engine), self.issued);
        let is_known = !self.is_unknown.load(Ordering::Relaxed);
        self.engine.session().in_background(move || engine.idle_reached(is_known.then_some(issued)));
    }
}

impl Engine {
    /// Asks for the end of all work, unless that is asked for already, or nothing is to be unmapped.
    pub(super) fn wait_for_idle(self: &Arc<Self>) {
        if self.session.retired().is_empty() || self.is_waiting_for_idle.swap(true, Ordering::AcqRel) {
            return;
        }
        let state = self.state.lock();
        let issued = state.issued;
        self.state.release(state, |state| self.resume(state));
        let in_flight =
            Arc::new(IdleWait { engine: Arc::clone(self), issued, is_unknown: AtomicBool::new(false) });
        for context in self.session.objects().handles::<Context>() {
            // With a context its work has ended.
            if self.session.enter_context(context).is_err() {
                continue;
            }
            let held = Arc::clone(&in_flight);
            if self.session.gpu().after_context(Box::new(move |_| drop(held))).is_err() {
                in_flight.is_unknown.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The work of all contexts has ended since so many commands had been issued; none where that is unknown.
    fn idle_reached(self: &Arc<Self>, issued: Option<u64>) {
        self.is_waiting_for_idle.store(false, Ordering::Release);
        let state = self.state.lock();
        let is_idle = issued == Some(state.issued);
        if is_idle {
            for imported in self.session.retired().drain(..) {
                if let Err(error) = self.session.gpu().unmap_imported(imported) {
                    tracing::warn!(status = error.0, "memory of another server could not be given back");
                }
            }
        }
        self.state.release(state, |state| self.resume(state));
        if !is_idle && issued.is_some() {
            std::thread::sleep(PAUSE);
            self.wait_for_idle();
        }
    }
}
