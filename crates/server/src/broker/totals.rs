//! Counters of the server since its start.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use causeway_link::TransportKind;

use super::refusal::Refusal;
use crate::activity::{Counts, Histogram};
use crate::locks::{Mutex, rank};

/// How a session has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The client has gone, and the worker with it.
    Ended,
    /// The worker failed.
    Failed,
    /// The broker killed the worker.
    Killed,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ended, Self::Failed, Self::Killed];

    /// The label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::Killed => "killed",
        }
    }
}

/// The counts of one broker.
#[derive(Debug)]
pub struct Totals {
    started_at: Instant,
    refused: [AtomicU64; Refusal::ALL.len()],
    sessions_started: AtomicU64,
    ended: [AtomicU64; Outcome::ALL.len()],
    worker_starts: AtomicU64,
    worker_failures: AtomicU64,
    inner: Mutex<rank::Leaf, Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// From a session's request to its worker's first answer.
    starts: Histogram,
    /// How long device memory took to go to the host, and to come back.
    releases: Histogram,
    returns: Histogram,
    /// What the sessions have done that have ended, by what carried them.
    activity: BTreeMap<&'static str, Counts>,
}

/// The label of sessions that go over no transport that has a name of its own.
pub const NO_TRANSPORT: &str = "none";

/// The label for what carries a session.
pub fn via_label(counts: &Counts) -> &'static str {
    let named = counts.via.filter(|via| TransportKind::ALL.contains(via));
    named.map_or(NO_TRANSPORT, TransportKind::name)
}

impl Totals {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self {
            started_at: Instant::now(),
            refused: Default::default(),
            sessions_started: AtomicU64::new(0),
            ended: Default::default(),
            worker_starts: AtomicU64::new(0),
            worker_failures: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    /// For how long the server has been running.
    pub fn running(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// A client was refused.
    pub fn refused(&self, why: Refusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many were refused for this.
    pub fn refusals(&self, why: Refusal) -> u64 {
        self.refused[why as usize].load(Ordering::Relaxed)
    }

    /// A session begins.
    pub fn session_begins(&self) {
        self.sessions_started.fetch_add(1, Ordering::Relaxed);
    }

    /// Sessions that have begun.
    pub fn sessions_started(&self) -> u64 {
        self.sessions_started.load(Ordering::Relaxed)
    }

    /// A session has ended, with what it has done.
    pub fn session_ends(&self, outcome: Outcome, done: &Counts) {
        self.inner.lock().activity.entry(via_label(done)).or_default().merge(done);
        self.ended[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Sessions that have ended so.
    pub fn ended(&self, outcome: Outcome) -> u64 {
        self.ended[outcome as usize].load(Ordering::Relaxed)
    }

    /// A process was started for clients, or could not be.
    pub fn worker_starts(&self, is_started: bool) {
        let count = if is_started { &self.worker_starts } else { &self.worker_failures };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Processes that were started for clients, and those that could not be.
    pub fn workers(&self) -> (u64, u64) {
        (self.worker_starts.load(Ordering::Relaxed), self.worker_failures.load(Ordering::Relaxed))
    }

    /// A worker answers its client, so long after that asked.
    pub fn worker_responded(&self, after: Duration) {
        self.inner.lock().starts.add(after);
    }

    /// Device memory of a session has gone to the host, in this time.
    pub fn memory_released(&self, time: Duration) {
        self.inner.lock().releases.add(time);
    }

    /// Device memory of a session has come back, in this time.
    pub fn memory_returned(&self, time: Duration) {
        self.inner.lock().returns.add(time);
    }

    /// How long device memory took to go to the host, and to come back.
    pub fn memory_moves(&self) -> (Histogram, Histogram) {
        let inner = self.inner.lock();
        (inner.releases, inner.returns)
    }

    /// How long workers took to answer.
    pub fn starts(&self) -> Histogram {
        self.inner.lock().starts
    }

    /// What the sessions have done that have ended, by what carried them.
    pub fn activity(&self) -> BTreeMap<&'static str, Counts> {
        self.inner.lock().activity.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_sessions_have_done_stays_counted() {
        let totals = Totals::new();
        let done = |posted| Counts { posted, via: Some(TransportKind::Shm), ..Counts::default() };
        totals.session_ends(Outcome::Ended, &done(3));
        totals.session_ends(Outcome::Killed, &done(4));
        totals.session_ends(Outcome::Failed, &Counts { posted: 1, ..Counts::default() });
        assert_eq!(totals.activity()["shm"].posted, 7);
        assert_eq!(totals.activity()["none"].posted, 1);
        assert_eq!(Outcome::ALL.map(|outcome| totals.ended(outcome)), [1, 1, 1]);
    }

    #[test]
    fn every_refusal_has_its_own_count_and_label() {
        let totals = Totals::new();
        Refusal::ALL.iter().for_each(|why| (0..=*why as usize).for_each(|_| totals.refused(*why)));
        for why in Refusal::ALL {
            assert_eq!(totals.refusals(why), why as u64 + 1);
        }
        let labels: std::collections::BTreeSet<_> = Refusal::ALL.iter().map(|why| why.label()).collect();
        assert_eq!(labels.len(), Refusal::ALL.len());
    }
}
