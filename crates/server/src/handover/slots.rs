//! Slot of a session at the GPU: leases of the broker, by which kernels begin.
//!
//! Kernels that have a lease begin at once, so that a session that is alone asks the broker once. The thread of a stream
//! waits here, and no other one: what other streams have to copy, and the thread that takes commands, go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_gpu::KernelGate;
use causeway_sync::threads;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::fair_queue::{DRAIN, LINGER};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ToBroker};

/// A kernel that has waited for so long begins in any case: the broker has lost sight of it.
const SLOT_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Default)]
struct State {
    lease: Option<u32>,
    /// Whether a lease that is not used is to be given back.
    is_contended: bool,
    recalled_at: Option<Instant>,
    /// Kernels that run.
    running: usize,
    /// Since when none does.
    idle_since: Option<Instant>,
    /// Kernels that wait for a slot, and how often such have got one.
    waiting: usize,
    grants: u64,
    is_requested: bool,
    has_thread: bool,
}

impl State {
    /// Whether a kernel may begin now.
    fn is_admitted(&self, now: Instant) -> bool {
        let drains = |at: Instant| self.running > 0 && now < at + DRAIN;
        self.lease.is_some() && self.recalled_at.is_none_or(drains)
    }

    /// Gives the lease back.
    fn clear_lease(&mut self) -> Option<u32> {
        (self.is_contended, self.recalled_at) = (false, None);
        self.lease.take()
    }
}

/// The slots of one session.
pub struct Slots {
    control: Arc<Control>,
    state: Mutex<State>,
    /// The session has a slot, or is idle: whoever waits looks again.
    changed: Condvar,
}

impl Slots {
    /// Those of a session whose broker is at the other end of `control`.
    pub fn new(control: Arc<Control>) -> Arc<Self> {
        Arc::new(Self { control, state: Mutex::default(), changed: Condvar::new() })
    }

    fn send(&self, message: &ToBroker) {
        // Without a broker the worker ends soon.
        let _ = messages::send(&self.control, message, None);
    }

    fn return_lease(&self, lease: Option<u32>) {
        if let Some(lease) = lease {
            self.send(&ToBroker::SlotEnded { lease });
        }
    }

    /// The session has a slot: all kernels that wait begin.
    pub(super) fn granted(&self, lease: u32) {
        let mut state = self.state.lock();
        (state.lease, state.is_contended, state.recalled_at) = (Some(lease), false, None);
        state.is_requested = false;
        state.running += core::mem::take(&mut state.waiting);
        state.grants += 1;
        // Those who asked for it may have lost patience.
        state.idle_since = (state.running == 0).then(Instant::now);
        drop(state);
        self.changed.notify_all();
    }

    /// Others wait for the device.
    pub(super) fn contended(self: &Arc<Self>, lease: u32) {
        let mut state = self.state.lock();
        if state.lease != Some(lease) {
            return;
        }
        if !state.has_thread {
            let slots = Arc::clone(self);
            match threads::spawn("gpu slot", move || slots.return_idle()) {
                Ok(_) => state.has_thread = true,
                // The lease is recalled a moment later.
                Err(error) => tracing::debug!("no thread looks whether the GPU is idle: {error}"),
            }
        }
        state.is_contended = true;
        drop(state);
        self.changed.notify_all();
    }

    /// No more kernels are to begin by a lease.
    pub(super) fn recalled(&self, lease: u32) {
        let mut state = self.state.lock();
        if state.lease != Some(lease) {
            return;
        }
        state.recalled_at = Some(Instant::now());
        let ended = if state.running == 0 { state.clear_lease() } else { None };
        drop(state);
        self.return_lease(ended);
    }

    /// Gives a lease back that others wait for and no kernel uses.
    fn return_idle(&self) {
        let mut state = self.state.lock();
        loop {
            let idle_since = if state.is_contended { state.idle_since } else { None };
            match idle_since.map(|since| since + LINGER) {
                None => self.changed.wait(&mut state),
                Some(end) if Instant::now() < end => {
                    self.changed.wait_until(&mut state, end);
                }
                Some(_) => {
                    let ended = state.clear_lease();
                    MutexGuard::unlocked(&mut state, || self.return_lease(ended));
                }
            }
        }
    }
}

impl KernelGate for Slots {
    fn begin(&self) {
        let mut state = self.state.lock();
        if state.is_admitted(Instant::now()) {
            state.running += 1;
            state.idle_since = None;
            return;
        }
        state.waiting += 1;
        let grants = state.grants;
        let is_first = !core::mem::replace(&mut state.is_requested, true);
        if is_first {
            MutexGuard::unlocked(&mut state, || self.send(&ToBroker::SlotRequest));
        }
        let deadline = Instant::now() + SLOT_TIMEOUT;
        while state.grants == grants {
            if self.changed.wait_until(&mut state, deadline).timed_out() && state.grants == grants {
                tracing::warn!(
                    "a kernel begins without a slot at the GPU: the broker has given none for {SLOT_TIMEOUT:?}"
                );
                state.waiting -= 1;
                state.running += 1;
                state.idle_since = None;
                return;
            }
        }
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.running = state.running.saturating_sub(1);
        if state.running > 0 {
            return;
        }
        state.idle_since = Some(Instant::now());
        let ended = if state.recalled_at.is_some() { state.clear_lease() } else { None };
        let notifies = state.is_contended;
        drop(state);
        self.return_lease(ended);
        if notifies {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{scope, yield_now};

    fn received(broker: &Control) -> ToBroker {
        messages::receive(broker).unwrap().0
    }

    fn slots() -> (Control, Arc<Slots>) {
        let (broker, worker) = Control::pair().unwrap();
        (broker, Slots::new(Arc::new(worker)))
    }

    fn wait_for_waiting(slots: &Slots, count: usize) {
        while slots.state.lock().waiting < count {
            yield_now();
        }
    }

    #[test]
    fn kernels_wait_for_a_turn_and_ask_for_one_together() {
        let (broker, slots) = slots();
        scope(|scope| {
            let kernels = [(); 3].map(|()| scope.spawn(|| slots.begin()));
            wait_for_waiting(&slots, 3);
            assert_eq!(received(&broker), ToBroker::SlotRequest);
            assert!(!broker.has_message(false) && slots.state.lock().running == 0);
            slots.granted(1);
            for kernel in kernels {
                kernel.join().unwrap();
            }
        });
        assert_eq!(slots.state.lock().running, 3);
        // With a lease that holds nobody is asked.
        slots.begin();
        (0..4).for_each(|_| slots.end());
        slots.begin();
        slots.recalled(9);
        slots.end();
        assert!(!broker.has_message(false));
        // One that is recalled goes back when its kernels have ended; what one of them may be waiting for begins.
        slots.begin();
        slots.recalled(1);
        slots.begin();
        slots.end();
        assert!(!broker.has_message(false));
        slots.end();
        assert_eq!(received(&broker), ToBroker::SlotEnded { lease: 1 });
        scope(|scope| {
            let kernel = scope.spawn(|| slots.begin());
            wait_for_waiting(&slots, 1);
            assert_eq!(received(&broker), ToBroker::SlotRequest);
            slots.granted(2);
            kernel.join().unwrap();
        });
        slots.end();
        slots.recalled(2);
        assert_eq!(received(&broker), ToBroker::SlotEnded { lease: 2 });
    }

    #[test]
    fn an_idle_lease_goes_back_when_others_wait() {
        let (broker, slots) = slots();
        slots.granted(1);
        slots.begin();
        slots.contended(1);
        slots.end();
        assert_eq!(received(&broker), ToBroker::SlotEnded { lease: 1 });
        // One that was idle before anybody waited, too.
        slots.granted(2);
        slots.begin();
        slots.end();
        slots.contended(1);
        slots.contended(2);
        assert_eq!(received(&broker), ToBroker::SlotEnded { lease: 2 });
        assert!(slots.state.lock().lease.is_none());
    }
}
