//! Slots of a session at the GPUs: leases of the broker, by which it issues kernels.
//!
//! A session with a lease issues kernels at once, so that one that is alone asks the broker once for each device. Nobody
//! waits here: who is refused goes on with other commands, and is called when it may try again. A lease that was recalled
//! ends when the kernels have ended that were issued by it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use causeway_sync::threads;
use parking_lot::Condvar;

use crate::fair_queue::{DRAIN, LINGER};
use crate::locks::{Mutex, MutexGuard, rank};
use crate::protocol::control::Control;
use crate::protocol::messages::{self, ToBroker};

/// After so long without an answer kernels are issued in any case: the broker has lost sight of the session.
const SLOT_TIMEOUT: Duration = Duration::from_secs(120);

/// The lease of a session that the broker has lost sight of; it gives none with this number.
const NO_LEASE: u32 = 0;

/// The slot at one device.
#[derive(Debug, Default)]
struct Slot {
    lease: Option<u32>,
    /// Whether an unused lease must be released.
    is_contended: bool,
    recalled_at: Option<Instant>,
    /// Kernels that were issued and have not ended.
    running: usize,
    /// Since when none does.
    idle_since: Option<Instant>,
    requested_at: Option<Instant>,
    /// Whether kernels that a recall holds back are to be tried once more when [`DRAIN`] is over.
    tries_after_drain: bool,
}

/// Whether a kernel may be issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admission {
    Admitted,
    /// When the broker has answered.
    Later,
    /// When the lease has ended, or [`DRAIN`] is over.
    AfterDrain {
        is_new: bool,
    },
    /// The broker is to be asked.
    Requested,
}

impl Slot {
    fn try_begin(&mut self, is_first: bool, now: Instant) -> Admission {
        let is_admitted = match (self.lease, self.recalled_at) {
            (Some(_), None) => true,
            // A kernel that runs may wait for one of another stream, and for none behind it in its own.
            (Some(_), Some(at)) if self.running > 0 && now < at + DRAIN => is_first,
            _ => false,
        };
        if is_admitted {
            self.running += 1;
            self.idle_since = None;
            return Admission::Admitted;
        }
        if self.recalled_at.is_some_and(|at| self.running > 0 && now < at + DRAIN) {
            return Admission::AfterDrain { is_new: !core::mem::replace(&mut self.tries_after_drain, true) };
        }
        if self.requested_at.is_some() {
            return Admission::Later;
        }
        self.requested_at = Some(now);
        Admission::Requested
    }

    /// Gives the lease back, for the broker to know.
    fn clear_lease(&mut self) -> Option<u32> {
        (self.is_contended, self.recalled_at, self.tries_after_drain) = (false, None, false);
        self.lease.take().filter(|lease| *lease != NO_LEASE)
    }

    fn grant(&mut self, lease: u32, now: Instant) {
        (self.lease, self.is_contended, self.recalled_at) = (Some(lease), false, None);
        (self.requested_at, self.tries_after_drain) = (None, false);
        // Whoever asked for it may want it no more.
        self.idle_since = (self.running == 0).then_some(now);
    }

    /// When something is to be done although nothing happens.
    fn deadline(&self) -> Option<Instant> {
        let idle = self.idle_since.filter(|_| self.is_contended).map(|since| since + LINGER);
        let drained = self.recalled_at.filter(|_| self.tries_after_drain).map(|at| at + DRAIN);
        let unanswered = self.requested_at.map(|at| at + SLOT_TIMEOUT);
        [idle, drained, unanswered].into_iter().flatten().min()
    }
}

#[derive(Debug, Default)]
struct State {
    devices: BTreeMap<u32, Slot>,
    has_thread: bool,
}

/// The slots of one session, by the numbers of devices.
pub struct Slots {
    control: Arc<Control>,
    state: Mutex<rank::Leaf, State>,
    /// A deadline may be earlier than before.
    changed: Condvar,
    /// Called when kernels that were refused are to be tried again.
    retry: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Slots {
    /// Those of a session whose broker is at the other end of `control`.
    pub fn new(control: Arc<Control>) -> Arc<Self> {
        Arc::new(Self { control, state: Mutex::default(), changed: Condvar::new(), retry: OnceLock::new() })
    }

    /// Names what is called when kernels that were refused are to be tried again; the first time counts.
    pub fn set_retry(&self, retry: impl Fn() + Send + Sync + 'static) {
        let _ = self.retry.set(Box::new(retry));
    }

    /// Whether a kernel may be issued to a device, which counts as issued then and is to [end](Self::end); else the broker
    /// has been asked, or will be. `is_first`: its stream holds no other one.
    pub fn try_begin(self: &Arc<Self>, device: u32, is_first: bool) -> bool {
        let mut state = self.state.lock();
        match state.devices.entry(device).or_default().try_begin(is_first, Instant::now()) {
            Admission::Admitted => true,
            Admission::Later | Admission::AfterDrain { is_new: false } => false,
            Admission::AfterDrain { is_new: true } => {
                drop(state);
                self.changed.notify_all();
                false
            }
            Admission::Requested => {
                self.start_thread(&mut state);
                drop(state);
                self.changed.notify_all();
                self.send(&ToBroker::SlotRequest { device });
                false
            }
        }
    }

    /// So many kernels that were issued to a device have ended.
    pub fn end(&self, device: u32, kernels: usize) {
        let mut state = self.state.lock();
        let Some(slot) = state.devices.get_mut(&device) else { return };
        slot.running = slot.running.saturating_sub(kernels);
        if slot.running > 0 {
            return;
        }
        slot.idle_since = Some(Instant::now());
        let is_over = slot.recalled_at.is_some();
        let ended = if is_over { slot.clear_lease() } else { None };
        let notifies = slot.is_contended;
        drop(state);
        self.return_lease(device, ended);
        if notifies {
            self.changed.notify_all();
        }
        if is_over {
            self.retry();
        }
    }

    /// Whether other clients wait for a device.
    pub fn is_contended(&self, device: u32) -> bool {
        let state = self.state.lock();
        state.devices.get(&device).is_some_and(|slot| slot.is_contended || slot.recalled_at.is_some())
    }

    /// Whether kernels were issued that have not ended, as far as is known.
    pub fn are_any_running(&self) -> bool {
        self.state.lock().devices.values().any(|slot| slot.running > 0)
    }

    fn send(&self, message: &ToBroker) {
        // Without a broker the worker ends soon.
        let _ = messages::send(&self.control, message, None);
    }

    fn return_lease(&self, device: u32, lease: Option<u32>) {
        if let Some(lease) = lease {
            self.send(&ToBroker::SlotEnded { device, lease });
        }
    }

    fn retry(&self) {
        if let Some(retry) = self.retry.get() {
            retry();
        }
    }

    /// The session has a slot: kernels that were refused are issued.
    pub(super) fn granted(&self, device: u32, lease: u32) {
        let mut state = self.state.lock();
        let Some(slot) = state.devices.get_mut(&device) else {
            drop(state);
            return self.return_lease(device, Some(lease));
        };
        slot.grant(lease, Instant::now());
        drop(state);
        self.retry();
    }

    /// Others wait for the device.
    pub(super) fn contended(&self, device: u32, lease: u32) {
        let mut state = self.state.lock();
        let Some(slot) = state.devices.get_mut(&device).filter(|slot| slot.lease == Some(lease)) else {
            return;
        };
        slot.is_contended = true;
        drop(state);
        self.changed.notify_all();
    }

    /// No more kernels are to be issued by a lease.
    pub(super) fn recalled(&self, device: u32, lease: u32) {
        let mut state = self.state.lock();
        let Some(slot) = state.devices.get_mut(&device).filter(|slot| slot.lease == Some(lease)) else {
            return;
        };
        slot.recalled_at = Some(Instant::now());
        let ended = if slot.running == 0 { slot.clear_lease() } else { None };
        drop(state);
        self.return_lease(device, ended);
        self.changed.notify_all();
    }

    /// Starts the thread that sees to deadlines, unless it is there.
    fn start_thread(self: &Arc<Self>, state: &mut State) {
        if state.has_thread {
            return;
        }
        let slots = Arc::clone(self);
        match threads::spawn("gpu slots", move || slots.run()) {
            Ok(_) => state.has_thread = true,
            // Leases are recalled a moment later, and kernels that end have others tried again.
            Err(error) => tracing::debug!(
                "cannot start the thread that checks whether the GPU is idle: \
                {error}"
            ),
        }
    }

    /// Gives leases back that others wait for and no kernel uses, and has kernels tried again where time has passed.
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let now = Instant::now();
            let (mut ended, mut retries) = (Vec::new(), false);
            for (device, slot) in &mut state.devices {
                if slot.is_contended && slot.idle_since.is_some_and(|since| since + LINGER <= now) {
                    ended.extend(slot.clear_lease().map(|lease| (*device, lease)));
                }
                if slot.tries_after_drain && slot.recalled_at.is_some_and(|at| at + DRAIN <= now) {
                    slot.tries_after_drain = false;
                    retries = true;
                }
                if slot.requested_at.is_some_and(|at| at + SLOT_TIMEOUT <= now) {
                    tracing::warn!(
                        "issuing kernels without a slot of the GPU: the broker has granted none for \
                         {SLOT_TIMEOUT:?}"
                    );
                    slot.grant(NO_LEASE, now);
                    retries = true;
                }
            }
            if !ended.is_empty() || retries {
                MutexGuard::unlocked(&mut state, || {
                    ended.into_iter().for_each(|(device, lease)| self.return_lease(device, Some(lease)));
                    if retries {
                        self.retry();
                    }
                });
                continue;
            }
            match state.devices.values().filter_map(Slot::deadline).min() {
                None => self.changed.wait(state.inner()),
                Some(end) => {
                    self.changed.wait_until(state.inner(), end);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::yield_now;

    fn received(broker: &Control) -> ToBroker {
        messages::receive(broker).unwrap().0
    }

    /// The broker's end, the slots, and how often kernels were to be tried again.
    fn slots() -> (Control, Arc<Slots>, Arc<AtomicUsize>) {
        let (broker, worker) = Control::pair().unwrap();
        let (slots, retries) = (Slots::new(Arc::new(worker)), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&retries);
        slots.set_retry(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        (broker, slots, retries)
    }

    #[test]
    fn kernels_are_refused_without_a_lease_and_ask_for_one_together() {
        let (broker, slots, retries) = slots();
        assert!(!slots.try_begin(3, true) && !slots.try_begin(3, true) && !slots.are_any_running());
        assert_eq!(received(&broker), ToBroker::SlotRequest { device: 3 });
        assert!(!broker.has_message(false), "one question for all");
        slots.granted(3, 1);
        assert_eq!(retries.load(Ordering::SeqCst), 1);
        assert!(slots.try_begin(3, true) && slots.try_begin(3, false) && slots.are_any_running());
        // Each device has a lease of its own.
        assert!(!slots.try_begin(4, true));
        assert_eq!(received(&broker), ToBroker::SlotRequest { device: 4 });
        // With a lease that holds nobody is asked, and what is said of another one changes nothing.
        slots.end(3, 2);
        slots.recalled(3, 9);
        assert!(slots.try_begin(3, true) && !broker.has_message(false));
    }

    #[test]
    fn a_recalled_lease_goes_back_when_its_kernels_have_ended() {
        let (broker, slots, retries) = slots();
        assert!(!slots.try_begin(0, true));
        assert_eq!(received(&broker), ToBroker::SlotRequest { device: 0 });
        slots.granted(0, 1);
        assert!(slots.try_begin(0, true));
        slots.recalled(0, 1);
        // What the kernel may be waiting for is issued, and what comes behind it is not.
        assert!(slots.try_begin(0, true) && !slots.try_begin(0, false));
        slots.end(0, 1);
        assert!(!broker.has_message(false));
        slots.end(0, 1);
        assert_eq!(received(&broker), ToBroker::SlotEnded { device: 0, lease: 1 });
        assert_eq!(retries.load(Ordering::SeqCst), 2, "what was refused is tried again");
        assert!(!slots.try_begin(0, false));
        assert_eq!(received(&broker), ToBroker::SlotRequest { device: 0 });
        // One that is idle when it is recalled goes back at once.
        slots.granted(0, 2);
        slots.recalled(0, 2);
        assert_eq!(received(&broker), ToBroker::SlotEnded { device: 0, lease: 2 });
    }

    #[test]
    fn a_kernel_that_waits_for_one_that_was_refused_is_not_waited_for_without_end() {
        let (broker, slots, retries) = slots();
        assert!(!slots.try_begin(0, true));
        assert_eq!(received(&broker), ToBroker::SlotRequest { device: 0 });
        slots.granted(0, 1);
        assert!(slots.try_begin(0, true));
        slots.recalled(0, 1);
        assert!(!slots.try_begin(0, false));
        // When the time for what it may be waiting for is over, the broker is asked, while the kernel runs.
        while retries.load(Ordering::SeqCst) < 2 {
            yield_now();
        }
        assert!(!slots.try_begin(0, true));
        assert_eq!(received(&broker), ToBroker::SlotRequest { device: 0 });
        slots.granted(0, 2);
        assert!(slots.try_begin(0, true));
    }

    #[test]
    fn an_idle_lease_goes_back_when_others_wait() {
        let (broker, slots, _) = slots();
        assert!(!slots.try_begin(0, true));
        assert_eq!(received(&broker), ToBroker::SlotRequest { device: 0 });
        slots.granted(0, 1);
        assert!(slots.try_begin(0, true));
        slots.contended(0, 1);
        assert!(slots.is_contended(0));
        slots.end(0, 1);
        assert_eq!(received(&broker), ToBroker::SlotEnded { device: 0, lease: 1 });
        // One that was idle before anybody waited, too.
        slots.granted(0, 2);
        slots.contended(0, 1);
        slots.contended(0, 2);
        assert_eq!(received(&broker), ToBroker::SlotEnded { device: 0, lease: 2 });
        // One of a device for which none was asked.
        slots.granted(7, 5);
        assert_eq!(received(&broker), ToBroker::SlotEnded { device: 7, lease: 5 });
    }
}
