//! Migration of a rank to another container: epochs of its messages, and the gate that they pass, closed
//! during a move.

use std::time::Duration;

use crate::locks::{Monitor, rank};
use thiserror::Error;

/// What may not be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MoveError {
    /// A second move before the first one's end.
    #[error("a move was requested while another is in progress, in epoch {0}: wait until that has ended")]
    InProgress(u32),
    /// Detection before everything is drained.
    #[error("{in_flight} messages of epoch {epoch} are still in flight: detection must wait for them")]
    NotDrained {
        /// The epoch that is to end.
        epoch: u32,
        /// Messages of it.
        in_flight: u64,
    },
    /// Nothing was announced.
    #[error("the end of a move in epoch {0} was requested, which has not started")]
    NotStarted(u32),
}

/// Where a rank is between two places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Messages start and end.
    Running,
    /// Messages end.
    Draining,
    /// None are under way, and the boards of the next epoch are read.
    Detecting,
}

/// The epoch of a rank and what is under way in it.
///
/// Moving has four steps, and nothing of an old place may be used in the new one: the rank *announces* that
/// it moves and starts nothing new; what is under way is *drained*; it and its peers *detect* each other
/// again on the boards; messages *go on*, in the next epoch. This is the decision alone, for one rank: which
/// messages may start, and which step comes next; threads wait for it at a `Gate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    number: u32,
    step: Step,
    in_flight: u64,
    /// Messages that wait for the next epoch.
    waiting: u64,
}

/// Whether a message may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Now, in this epoch; its end is reported with [`Epoch::end`].
    Now(u32),
    /// When [`Epoch::detected`] says that it may.
    Later,
}

impl Default for Epoch {
    fn default() -> Self {
        Self { number: 0, step: Step::Running, in_flight: 0, waiting: 0 }
    }
}

impl Epoch {
    /// The epoch's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether a message may start now.
    pub fn start(&mut self) -> Start {
        if self.step == Step::Running {
            self.in_flight += 1;
            Start::Now(self.number)
        } else {
            self.waiting += 1;
            Start::Later
        }
    }

    /// A message of this epoch has come to its end, well or not. Says whether that was the last one that a
    /// move waited for.
    pub fn end(&mut self) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.drained_now()
    }

    /// Begins a move. Says whether nothing is under way, so that detection may begin at once.
    ///
    /// # Errors
    /// When one is under way.
    pub fn begin_move(&mut self) -> Result<bool, MoveError> {
        if self.step != Step::Running {
            return Err(MoveError::InProgress(self.number));
        }
        self.step = Step::Draining;
        Ok(self.drained_now())
    }

    fn drained_now(&mut self) -> bool {
        let drained = self.step == Step::Draining && self.in_flight == 0;
        if drained {
            self.step = Step::Detecting;
        }
        drained
    }

    /// Whether messages start.
    pub fn is_running(&self) -> bool {
        self.step == Step::Running
    }

    /// Whether nothing is under way any more that a move waited for.
    pub fn is_drained(&self) -> bool {
        self.step == Step::Detecting
    }

    /// A move is given up: messages go on where they were, and those that have waited start now. Nothing
    /// where there is no move.
    pub fn give_up(&mut self) {
        if self.step != Step::Running {
            self.advance();
        }
    }

    fn advance(&mut self) -> u64 {
        self.number = self.number.wrapping_add(1);
        self.step = Step::Running;
        let waiting = core::mem::take(&mut self.waiting);
        self.in_flight += waiting;
        waiting
    }

    /// The ranks have found each other in the next epoch. Says how many messages have waited for that: they
    /// start now.
    ///
    /// # Errors
    /// When there is no move, or something of the old epoch is under way.
    pub fn detected(&mut self) -> Result<u64, MoveError> {
        match self.step {
            Step::Running => Err(MoveError::NotStarted(self.number)),
            Step::Draining => Err(MoveError::NotDrained { epoch: self.number, in_flight: self.in_flight }),
            Step::Detecting => Ok(self.advance()),
        }
    }
}

/// Whether messages may start, for all threads of a rank.
#[derive(Debug, Default)]
pub(crate) struct Gate(Monitor<rank::Leaf, Epoch>);

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

    use proptest::prelude::*;

    #[test]
    fn what_is_under_way_ends_in_its_epoch_and_the_rest_starts_in_the_next() {
        let mut epoch = Epoch::default();
        assert_eq!(epoch.start(), Start::Now(0));
        assert_eq!(epoch.begin_move(), Ok(false));
        assert_eq!(epoch.begin_move(), Err(MoveError::InProgress(0)));
        assert_eq!(epoch.start(), Start::Later);
        assert_eq!(epoch.detected(), Err(MoveError::NotDrained { epoch: 0, in_flight: 1 }));
        assert!(epoch.end());
        assert_eq!(epoch.detected(), Ok(1));
        assert_eq!((epoch.number(), epoch.start()), (1, Start::Now(1)));
        assert_eq!(epoch.detected(), Err(MoveError::NotStarted(1)));
    }

    #[test]
    fn with_nothing_under_way_detection_begins_at_once() {
        let mut epoch = Epoch::default();
        assert_eq!(epoch.begin_move(), Ok(true));
        assert_eq!(epoch.detected(), Ok(0));
    }

    proptest! {
        /// Whatever happens in whatever order, no message is forgotten and none starts between two epochs.
        #[test]
        fn no_message_is_lost(steps in proptest::collection::vec(0..5_u8, 0..200)) {
            let mut epoch = Epoch::default();
            let (mut started, mut ended, mut asked) = (0_u64, 0_u64, 0_u64);
            for step in steps {
                match step {
                    0 => {
                        asked += 1;
                        match epoch.start() {
                            Start::Now(number) => {
                                prop_assert_eq!(number, epoch.number());
                                started += 1;
                            }
                            Start::Later => {}
                        }
                    }
                    1 if ended < started => {
                        epoch.end();
                        ended += 1;
                    }
                    2 => { let _ = epoch.begin_move(); }
                    3 => {
                        started += epoch.waiting;
                        epoch.give_up();
                    }
                    _ => if let Ok(waiting) = epoch.detected() {
                        prop_assert_eq!(started, ended);
                        started += waiting;
                    }
                }
                prop_assert_eq!(asked, started + epoch.waiting);
                prop_assert_eq!(epoch.in_flight, started - ended);
            }
        }
    }

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
