//! Gate that messages pass, closed during a move.

use std::time::Duration;

use causeway_sync::Monitor;

use super::epoch::{Epoch, MoveError, Start};

/// Whether messages may start, for all threads of a rank.
#[derive(Debug, Default)]
pub(crate) struct Gate(Monitor<Epoch>);

/// A message that has started, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running<'a>(&'a Gate);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.change(Epoch::end);
    }
}

impl Gate {
    /// Starts a message, when the rank does not move any more.
    pub(crate) fn start(&self) -> Running<'_> {
        let waits_for = self.0.change(|epoch| match epoch.start() {
            Start::Now(_) => None,
            Start::Later => Some(epoch.number()),
        });
        if let Some(number) = waits_for {
            // It counts as started from then on.
            self.0.wait(|epoch| (epoch.number() != number).then_some(()));
        }
        Running(self)
    }

    /// Starts a message if the rank does not move.
    pub(crate) fn try_start(&self) -> Option<Running<'_>> {
        self.0.change(|epoch| epoch.is_running().then(|| epoch.start())).map(|_| Running(self))
    }

    /// Whether the rank moves.
    pub(crate) fn is_moving(&self) -> bool {
        !self.0.lock().is_running()
    }

    /// Begins a move: from now on nothing starts.
    pub(crate) fn begin(&self) -> Result<(), MoveError> {
        self.0.change(|epoch| epoch.begin_move()).map(drop)
    }

    /// Waits until nothing is in flight that had started. Says whether that is so.
    pub(crate) fn wait_until_drained(&self, timeout: Duration) -> bool {
        self.0.wait_for(timeout, |epoch| epoch.is_drained().then_some(())).is_some()
    }

    /// Ends a move, whether the rank has moved or not: what has waited starts.
    pub(crate) fn resume(&self) {
        self.0.change(|epoch| {
            if epoch.detected().is_err() {
                epoch.give_up();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_move_waits_for_messages_and_they_for_it() {
        let gate = Gate::default();
        let started = AtomicU32::new(0);
        let first = gate.start();
        gate.begin().unwrap();
        assert!(gate.is_moving() && gate.begin().is_err() && gate.try_start().is_none());
        assert!(!gate.wait_until_drained(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let later = scope.spawn(|| {
                let _running = gate.start();
                started.fetch_add(1, Ordering::Relaxed);
            });
            drop(first);
            assert!(gate.wait_until_drained(LONG));
            assert_eq!(started.load(Ordering::Relaxed), 0);
            gate.resume();
            later.join().unwrap();
        });
        assert_eq!(started.load(Ordering::Relaxed), 1);
        // A move that is given up lets messages start, too.
        let still = gate.start();
        gate.begin().unwrap();
        gate.resume();
        drop((still, gate.try_start().unwrap()));
        gate.begin().unwrap();
        assert!(gate.wait_until_drained(LONG));
    }
}
