//! Traffic classification: latency-bound or bandwidth-bound.
//!
//! Who sends and receives with blocking calls waits for each message; who uses non-blocking ones, or makes a
//! collective call, has several under way. Each rank counts both for each peer. When one of the two counts
//! reaches the threshold, the period ends: the larger count says what the traffic is, but what has been said
//! once changes only when that count is at least twice the other, so that mixed traffic does not make the
//! scheduler change channels all the time. Then both counts begin anew.

use crate::locks::{Mutex, MutexGuard, rank};
use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;

/// Operations of one kind that end a period, if the user says nothing else.
pub const DEFAULT_THRESHOLD: u32 = 64;

/// How many times the other count a count must be to change what the traffic is.
const FACTOR: u32 = 2;

/// What kind of call an operation came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `MPI_Send`, `MPI_Recv` and their like.
    Blocking,
    /// `MPI_Isend`, `MPI_Irecv` and their like, and the parts of collective calls.
    NonBlocking,
}

/// What limits the traffic with a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Traffic {
    /// How long a message takes. What is taken for granted before anything is known.
    Latency,
    /// How many bytes pass.
    Bandwidth,
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Latency => "bound by latency",
            Self::Bandwidth => "bound by bandwidth",
        })
    }
}

impl Traffic {
    fn from_number(number: u8) -> Self {
        if number == 0 { Self::Latency } else { Self::Bandwidth }
    }
}

/// The counts of one peer. Several threads may count at a time.
#[derive(Debug)]
pub struct Tracer {
    /// Blocking operations in the lower 32 bits, non-blocking ones in the upper.
    counts: AtomicU64,
    /// The traffic by its number.
    traffic: AtomicU8,
    threshold: u32,
}

/// One non-blocking operation.
const ONE_ABOVE: u64 = 1 << 32;

/// The largest threshold: so that no count reaches the other one's bits, however many threads count on while
/// one of them decides.
const MAX_THRESHOLD: u32 = 1 << 30;

impl Tracer {
    /// Counts from nothing. A threshold of 0 is one of 1, one above 2³⁰ is 2³⁰.
    pub fn new(threshold: u32) -> Self {
        Self {
            counts: AtomicU64::new(0),
            traffic: AtomicU8::new(0),
            threshold: threshold.clamp(1, MAX_THRESHOLD),
        }
    }

    /// Counts an operation and says what the traffic is.
    #[inline]
    pub fn count(&self, operation: Operation) -> Traffic {
        let one = match operation {
            Operation::Blocking => 1,
            Operation::NonBlocking => ONE_ABOVE,
        };
        let counts = self.counts.fetch_add(one, Ordering::Relaxed) + one;
        let (blocking, non_blocking) = split(counts);
        if blocking >= self.threshold || non_blocking >= self.threshold {
            self.end_period(counts);
        }
        self.traffic()
    }

    /// What the traffic is.
    #[inline]
    pub fn traffic(&self) -> Traffic {
        Traffic::from_number(self.traffic.load(Ordering::Relaxed))
    }

    #[cold]
    fn end_period(&self, counts: u64) {
        // Of several threads that get here, one ends the period, and what others have counted since counts
        // for the next.
        if self.counts.compare_exchange(counts, 0, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let (blocking, non_blocking) = split(counts);
        let next = match self.traffic() {
            Traffic::Latency if non_blocking >= blocking.saturating_mul(FACTOR) => Traffic::Bandwidth,
            Traffic::Bandwidth if blocking >= non_blocking.saturating_mul(FACTOR) => Traffic::Latency,
            unchanged => unchanged,
        };
        self.traffic.store(u8::from(next == Traffic::Bandwidth), Ordering::Relaxed);
    }
}

/// The counts of each peer of this host.
#[derive(Debug)]
pub(crate) struct Tracers {
    threshold: u32,
    peers: Mutex<rank::Leaf, HashMap<u32, Arc<Tracer>>>,
}

impl Tracers {
    /// None yet.
    pub(crate) fn new(threshold: u32) -> Self {
        Self { threshold, peers: Mutex::default() }
    }

    /// Counts an operation with a peer that is known to be on this host.
    pub(crate) fn count(&self, peer: u32, operation: Operation) {
        let tracer = {
            let mut peers = self.peers();
            Arc::clone(peers.entry(peer).or_insert_with(|| Arc::new(Tracer::new(self.threshold))))
        };
        tracer.count(operation);
    }

    /// What the traffic is; latency-bound where nothing has been counted.
    pub(crate) fn traffic(&self, peer: u32) -> Traffic {
        self.peers().get(&peer).map_or(Traffic::Latency, |tracer| tracer.traffic())
    }

    /// Whether something has been counted of a peer.
    pub(crate) fn has(&self, peer: u32) -> bool {
        self.peers().contains_key(&peer)
    }

    fn peers(&self) -> MutexGuard<'_, rank::Leaf, HashMap<u32, Arc<Tracer>>> {
        self.peers.lock()
    }
}

fn split(counts: u64) -> (u32, u32) {
    // The two halves.
    (counts as u32, (counts >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation::{Blocking, NonBlocking};

    fn after(tracer: &Tracer, operations: &[(Operation, u32)]) -> Traffic {
        for (operation, count) in operations {
            for _ in 0..*count {
                tracer.count(*operation);
            }
        }
        tracer.traffic()
    }

    #[test]
    fn the_threshold_decides_and_not_the_operation_before_it() {
        let tracer = Tracer::new(10);
        assert_eq!(after(&tracer, &[(NonBlocking, 9)]), Traffic::Latency);
        assert_eq!(after(&tracer, &[(NonBlocking, 1)]), Traffic::Bandwidth);
        assert_eq!(after(&tracer, &[(Blocking, 9)]), Traffic::Bandwidth);
        assert_eq!(after(&tracer, &[(Blocking, 1)]), Traffic::Latency);
    }

    #[test]
    fn mixed_traffic_changes_nothing() {
        for (first, expected) in [(Blocking, Traffic::Latency), (NonBlocking, Traffic::Bandwidth)] {
            let tracer = Tracer::new(10);
            assert_eq!(after(&tracer, &[(first, 10)]), expected);
            for _ in 0..100 {
                assert_eq!(after(&tracer, &[(Blocking, 1), (NonBlocking, 1)]), expected);
                // Six to ten is less than twice as many.
                assert_eq!(after(&tracer, &[(NonBlocking, 6), (Blocking, 10)]), expected);
                assert_eq!(after(&tracer, &[(Blocking, 6), (NonBlocking, 10)]), expected);
            }
        }
    }

    #[test]
    fn thresholds_are_bounded() {
        assert_eq!(Tracer::new(0).count(NonBlocking), Traffic::Bandwidth);
        assert_eq!(Tracer::new(u32::MAX).threshold, MAX_THRESHOLD);
    }

    #[test]
    fn threads_count_together() {
        let tracer = Tracer::new(1_000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| after(&tracer, &[(NonBlocking, 10_000)]));
            }
        });
        assert_eq!(tracer.traffic(), Traffic::Bandwidth);
    }
}
