//! Shares of the GPU: which sessions run kernels now, of those whose clients have shares.
//!
//! The order is that of a [`FairQueue`]. A worker asks when it has kernels and no lease, so that a client that is alone is
//! waited for once. One thread tells workers of their slots, and is started by the first question. As with device memory
//! this holds for what clients send: a worker that its client has taken over may run kernels without asking.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::SessionId;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::admission::Source;
use crate::fair_queue::{Action, FairQueue};
use crate::protocol::control::Control;
use crate::protocol::messages::ToWorker;

#[derive(Default)]
struct State {
    queue: FairQueue<SessionId, Source>,
    controls: HashMap<SessionId, Arc<Control>>,
    has_thread: bool,
    is_stopped: bool,
}

struct Slots {
    since: Instant,
    state: Mutex<State>,
    changed: Condvar,
}

/// The slots of all sessions at the GPU.
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
    /// A session, whose worker is at the other end of `control`, has kernels to run; it is told when it may.
    pub fn request(&self, session: SessionId, control: &Arc<Control>, peer: Source, share: u32) {
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
        state.queue.request(session, peer, share, self.0.since.elapsed());
        self.0.changed.notify_all();
    }

    /// The kernels of a session have ended that it began by a lease.
    pub fn ended(&self, session: SessionId, lease: u32) {
        self.0.state.lock().queue.ended(session, lease, self.0.since.elapsed());
        self.0.changed.notify_all();
    }

    /// A session is gone, and its slot with it.
    pub fn session_ends(&self, session: SessionId) {
        let mut state = self.0.state.lock();
        if state.controls.remove(&session).is_some() {
            state.queue.session_ends(session, self.0.since.elapsed());
            self.0.changed.notify_all();
        }
    }
}

impl Slots {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.is_stopped {
            let now = self.since.elapsed();
            let actions = state.queue.actions(now);
            if !actions.is_empty() {
                let messages: Vec<_> = actions
                    .into_iter()
                    .filter_map(|action| {
                        let (session, message) = message_of(action);
                        Some((session, Arc::clone(state.controls.get(&session)?), message))
                    })
                    .collect();
                let lost = MutexGuard::unlocked(&mut state, || send_all(messages));
                for session in lost {
                    state.controls.remove(&session);
                    state.queue.session_ends(session, self.since.elapsed());
                }
                continue;
            }
            match state.queue.next_deadline() {
                Some(end) => {
                    let left = end.saturating_sub(now).max(Duration::from_micros(100));
                    self.changed.wait_for(&mut state, left);
                }
                None => self.changed.wait(&mut state),
            }
        }
    }
}

fn message_of(action: Action<SessionId>) -> (SessionId, ToWorker) {
    match action {
        Action::Grant { session, lease } => (session, ToWorker::Slot { lease }),
        Action::Contend { session, lease } => (session, ToWorker::SlotContended { lease }),
        Action::Recall { session, lease } => (session, ToWorker::SlotRecalled { lease }),
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
        shares.request(ada, &of_ada, Source::User(1), 3);
        let ToWorker::Slot { lease } = received(&ada_worker) else { panic!("no slot") };
        shares.request(bob, &of_bob, Source::User(2), 1);
        // In either order of the clock: that others wait, and when its time is over, the recall.
        let mut recalled = received(&ada_worker);
        if matches!(recalled, ToWorker::SlotContended { .. }) {
            recalled = received(&ada_worker);
        }
        assert!(matches!(recalled, ToWorker::SlotRecalled { lease: of } if of == lease), "{recalled:?}");
        assert!(!bob_worker.has_message(false));
        shares.ended(ada, lease);
        assert!(matches!(received(&bob_worker), ToWorker::Slot { .. }));
        shares.request(ada, &of_ada, Source::User(1), 3);
        drop(bob_worker);
        shares.session_ends(bob);
        assert!(matches!(received(&ada_worker), ToWorker::Slot { .. }));
        // One of which the broker does not know yet that it is gone.
        let (of_eve, eve_worker) = Control::pair().unwrap();
        drop(eve_worker);
        shares.request(SessionId([3; 16]), &Arc::new(of_eve), Source::User(3), 1000);
        let mut message = received(&ada_worker);
        while !matches!(message, ToWorker::SlotRecalled { .. }) {
            message = received(&ada_worker);
        }
        shares.session_ends(ada);
        shares.request(bob, &of_ada, Source::User(2), 1);
        assert!(matches!(received(&ada_worker), ToWorker::Slot { .. }));
    }
}
