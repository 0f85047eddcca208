//! Drain state: no new sessions, and a deadline for those that exist.
//!
//! A server that is drained takes no new sessions, goes on with those that it has, lanes and all, and ends
//! when the last has ended or the time for that is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::admission::Origin;
use crate::locks::{Mutex, rank};

/// Whether the server is being drained.
#[derive(Debug)]
pub struct Drain {
    started: AtomicBool,
    deadline: Mutex<rank::Leaf, Option<Instant>>,
    drained: (Sender<()>, Receiver<()>),
}

impl Default for Drain {
    fn default() -> Self {
        Self { started: AtomicBool::new(false), deadline: Mutex::new(None), drained: bounded(1) }
    }
}

impl Drain {
    /// Begins, or changes by when it is to be done; `limit` is how long sessions may go on. True if it had
    /// begun before.
    pub fn begin(&self, limit: Option<Duration>) -> bool {
        *self.deadline.lock() = limit.map(|limit| Instant::now() + limit);
        self.started.swap(true, Ordering::SeqCst)
    }

    /// Whether draining has begun. Whoever has taken a slot before this says no is waited for.
    pub fn is_started(&self) -> bool {
        self.started.load(Ordering::SeqCst)
    }

    /// Whether the time of the sessions is over.
    pub fn is_late(&self) -> bool {
        self.deadline.lock().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// It is done.
    pub fn notify(&self) {
        // Nobody need be told twice.
        let _ = self.drained.0.try_send(());
    }

    /// Is told when it is done.
    pub fn drained(&self) -> Receiver<()> {
        self.drained.1.clone()
    }

    /// What is sent to a client that wants a session meanwhile.
    pub fn refusal(sessions: usize) -> String {
        format!(
            "it is being drained: it accepts no new sessions and ends with the {sessions} that it has; use \
             another server, or try again when it has been started anew"
        )
    }
}

/// Whether a peer may end the server: its own user and root, of whom the kernel tells.
pub fn may_drain(peer: Origin, own: u32) -> bool {
    matches!(peer, Origin::Host { user, .. } if user == own || user == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_limit_counts_and_the_first_wish_begins() {
        let drain = Drain::default();
        assert!(!drain.is_started() && !drain.begin(None) && drain.is_started() && !drain.is_late());
        assert!(drain.begin(Some(Duration::ZERO)) && drain.is_late());
        assert!(drain.begin(Some(Duration::from_secs(600))) && !drain.is_late());
        drain.notify();
        drain.notify();
        assert!(drain.drained().try_recv().is_ok() && drain.drained().try_recv().is_err());
    }
}
