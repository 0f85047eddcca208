//! Shares of the GPUs: which sessions run kernels now, of those whose clients have shares.
//!
//! The order is that of a [`FairQueue`] for each device. A worker asks when it has kernels and no lease, so that a client that
//! is alone is waited for once. One thread tells workers of their slots, and is started by the first question. As with device
//! memory this holds for what clients send: a worker that its client has taken over may run kernels without asking.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_access::keys::groups::{GroupName, PeerLimits};
use causeway_access::keys::limits::Share;
use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::SessionId;
use parking_lot::Condvar;

use crate::admission::{LimitScope, Source};
use crate::fair_queue::{Action, FairQueue};
use crate::locks::{Mutex, MutexGuard, rank};
use crate::protocol::control::Control;
use crate::protocol::messages::ToWorker;

/// The most devices that sessions have slots at; what a worker says of others is none of its driver's.
const MAX_DEVICES: u32 = 256;

#[derive(Default)]
struct State {
    queues: BTreeMap<u32, FairQueue<SessionId, LimitScope>>,
    controls: HashMap<SessionId, Arc<Control>>,
    has_thread: bool,
    is_stopped: bool,
}

struct Slots {
    since: Instant,
    state: Mutex<rank::Leaf, State>,
    changed: Condvar,
}

/// Whose time of a GPU a session uses.
#[derive(Debug, Clone, Copy)]
pub struct TimeShare {
    /// Its peer.
    pub peer: Source,
    /// The peer's share, among those of its group or among all.
    pub share: u32,
    /// The peer's group with its share among all, if it has one.
    pub group: Option<(GroupName, u32)>,
}

impl TimeShare {
    /// That of a peer. A group without a share of its own leaves its members beside all others.
    pub fn of(peer: Source, limits: &PeerLimits) -> Self {
        let group = limits.group.and_then(|(name, limits)| Some((name, limits.share?)));
        Self { peer, share: limits.own.share.unwrap_or(Share::DEFAULT), group }
    }
}

/// The slots of all sessions at the GPUs.
pub struct GpuShares(Arc<Slots>);

impl Default for GpuShares {
    fn default() -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Slots { since: Instant::now(), state, changed }))
    }
}

impl Drop for GpuShares {
    fn drop(&mut self) {
        self.0.state.lock().is_stopped = true;
        self.0.changed.notify_all();
    }
}

impl GpuShares {
    /// A session, whose worker is at the other end of `control`, has kernels to run on a device; it gets a message when it may.
    pub fn request(&self, device: u32, session: SessionId, control: &Arc<Control>, part: TimeShare) {
        if device >= MAX_DEVICES {
            return;
        }
        let mut state = self.0.state.lock();
        if !state.has_thread {
            let slots = Arc::clone(&self.0);
            match threads::spawn("gpu shares", move || slots.run()) {
                Ok(_) => state.has_thread = true,
                Err(error) => {
                    // The worker goes on when it has waited for long enough.
                    tracing::error!("no session gets a slot of the GPU: starting a thread failed: {error}");
                    return;
                }
            }
        }
        state.controls.entry(session).or_insert_with(|| Arc::clone(control));
        let queue = state.queues.entry(device).or_default();
        let group = part.group.map(|(group, share)| (LimitScope::Group(group), share));
        queue.request(session, LimitScope::Peer(part.peer), part.share, group, self.0.since.elapsed());
        self.0.changed.notify_all();
    }

    /// The kernels of a session have ended that it issued to a device by a lease.
    pub fn ended(&self, device: u32, session: SessionId, lease: u32) {
        if let Some(queue) = self.0.state.lock().queues.get_mut(&device) {
            queue.ended(session, lease, self.0.since.elapsed());
        }
        self.0.changed.notify_all();
    }

    /// A session is gone, and its slot with it.
    pub fn session_ends(&self, session: SessionId) {
        let mut state = self.0.state.lock();
        if state.session_ends(session, self.0.since.elapsed()) {
            self.0.changed.notify_all();
        }
    }
}

impl State {
    /// Forgets a session; whether it was known.
    fn session_ends(&mut self, session: SessionId, now: Duration) -> bool {
        let is_known = self.controls.remove(&session).is_some();
        if is_known {
            self.queues.values_mut().for_each(|queue| queue.session_ends(session, now));
        }
        is_known
    }

    /// The messages to workers that are due.
    fn messages(&mut self, now: Duration) -> Vec<(SessionId, Arc<Control>, ToWorker)> {
        let mut messages = Vec::new();
        for (device, queue) in &mut self.queues {
            messages.extend(queue.actions(now).into_iter().filter_map(|action| {
                let (session, message) = message_of(*device, action);
                Some((session, Arc::clone(self.controls.get(&session)?), message))
            }));
        }
        messages
    }
}

impl Slots {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_stopped {
            let now = self.since.elapsed();
            let messages = state.messages(now);
            if !messages.is_empty() {
                let lost = MutexGuard::unlocked(&mut state, || send_all(messages));
                for session in lost {
                    state.session_ends(session, self.since.elapsed());
                }
                continue;
            }
            match state.queues.values().filter_map(FairQueue::next_deadline).min() {
                Some(end) => {
                    let left = end.saturating_sub(now).max(Duration::from_micros(100));
                    self.changed.wait_for(state.inner(), left);
                }
                None => self.changed.wait(state.inner()),
            }
        }
    }
}

fn message_of(device: u32, action: Action<SessionId>) -> (SessionId, ToWorker) {
    match action {
        Action::Grant { session, lease } => (session, ToWorker::Slot { device, lease }),
        Action::Contend { session, lease } => (session, ToWorker::SlotContended { device, lease }),
        Action::Recall { session, lease } => (session, ToWorker::SlotRecalled { device, lease }),
    }
}

/// Tells workers of their slots; whom it could not tell: one that has ended, or takes no message, gets no slot.
fn send_all(messages: Vec<(SessionId, Arc<Control>, ToWorker)>) -> Vec<SessionId> {
    let mut lost = Vec::new();
    for (session, control, message) in messages {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        if !matches!(control.try_send(&bytes), Ok(true)) {
            lost.push(session);
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::messages;

    fn part(user: u32, share: u32) -> TimeShare {
        TimeShare { peer: Source::User(user), share, group: None }
    }

    #[test]
    fn a_group_with_a_share_divides_it_among_its_members() {
        use causeway_access::keys::limits::ClientLimits;
        let of = |share| ClientLimits { share, ..ClientLimits::default() };
        let staff = "staff".parse().unwrap();
        let limits = |own, group| PeerLimits { own: of(own), group: Some((staff, of(group))) };
        let share = |limits| {
            let TimeShare { share, group, .. } = TimeShare::of(Source::User(1), &limits);
            (share, group)
        };
        assert_eq!(share(limits(Some(2), Some(3))), (2, Some((staff, 3))));
        assert_eq!(share(limits(None, Some(3))), (1, Some((staff, 3))));
        assert_eq!(share(limits(Some(2), None)), (2, None));
    }

    fn received(worker: &Control) -> ToWorker {
        messages::receive(worker).unwrap().0
    }

    #[test]
    fn workers_get_their_turns_and_one_that_is_gone_loses_its_own() {
        let shares = GpuShares::default();
        let (ada, bob) = (SessionId([1; 16]), SessionId([2; 16]));
        let ((of_ada, ada_worker), (of_bob, bob_worker)) =
            (Control::pair().unwrap(), Control::pair().unwrap());
        let (of_ada, of_bob) = (Arc::new(of_ada), Arc::new(of_bob));
        shares.request(0, ada, &of_ada, part(1, 3));
        let ToWorker::Slot { lease, .. } = received(&ada_worker) else { panic!("no slot") };
        shares.request(0, bob, &of_bob, part(2, 1));
        // In either order of the clock: that others wait, and when its time is over, the recall.
        let mut recalled = received(&ada_worker);
        if matches!(recalled, ToWorker::SlotContended { .. }) {
            recalled = received(&ada_worker);
        }
        assert!(matches!(recalled, ToWorker::SlotRecalled { lease: of, .. } if of == lease), "{recalled:?}");
        assert!(!bob_worker.has_message(false));
        shares.ended(0, ada, lease);
        assert!(matches!(received(&bob_worker), ToWorker::Slot { .. }));
        shares.request(0, ada, &of_ada, part(1, 3));
        drop(bob_worker);
        shares.session_ends(bob);
        assert!(matches!(received(&ada_worker), ToWorker::Slot { .. }));
        // One of which the broker does not know yet that it is gone.
        let (of_eve, eve_worker) = Control::pair().unwrap();
        drop(eve_worker);
        shares.request(0, SessionId([3; 16]), &Arc::new(of_eve), part(3, 1000));
        let mut message = received(&ada_worker);
        while !matches!(message, ToWorker::SlotRecalled { .. }) {
            message = received(&ada_worker);
        }
        shares.session_ends(ada);
        shares.request(0, bob, &of_ada, part(2, 1));
        assert!(matches!(received(&ada_worker), ToWorker::Slot { .. }));
    }

    #[test]
    fn each_device_has_a_queue_of_its_own() {
        let shares = GpuShares::default();
        let ((of_ada, ada_worker), (of_bob, bob_worker)) =
            (Control::pair().unwrap(), Control::pair().unwrap());
        let (of_ada, of_bob) = (Arc::new(of_ada), Arc::new(of_bob));
        shares.request(0, SessionId([1; 16]), &of_ada, part(1, 3));
        assert!(matches!(received(&ada_worker), ToWorker::Slot { device: 0, .. }));
        shares.request(MAX_DEVICES, SessionId([2; 16]), &of_bob, part(2, 1));
        shares.request(5, SessionId([2; 16]), &of_bob, part(2, 1));
        assert!(matches!(received(&bob_worker), ToWorker::Slot { device: 5, .. }));
        assert!(!ada_worker.has_message(false), "nobody waits for its device");
        shares.session_ends(SessionId([2; 16]));
        shares.request(5, SessionId([1; 16]), &of_ada, part(1, 3));
        assert!(matches!(received(&ada_worker), ToWorker::Slot { device: 5, .. }));
    }
}
