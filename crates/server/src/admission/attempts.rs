//! Attempts with invitations, which each peer may make at a rate.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::source::Source;
use crate::token_bucket::TokenBucket;

/// Attempts of one peer that are made at once.
const BURST: u64 = 10;
/// Tokens of an attempt: so many seconds later there is one more.
const COST: u64 = 5;
/// Peers that are counted one by one. More at a time share what one may.
const MAX_PEERS: usize = 1024;

/// Attempts with invitations, by peer. The secrets cannot be guessed; this bounds how often the list of clients is
/// looked through. A refusal is a line of the logs like any other.
#[derive(Debug)]
pub struct Attempts {
    since: Instant,
    peers: Mutex<HashMap<Source, TokenBucket>>,
}

impl Default for Attempts {
    fn default() -> Self {
        Self { since: Instant::now(), peers: Mutex::default() }
    }
}

/// What stands for the peers that are not counted one by one.
const OTHERS: Source = Source::User(u32::MAX);

impl Attempts {
    /// Whether a peer may try one more, which counts.
    pub fn admit(&self, peer: Source) -> bool {
        self.admit_at(peer, self.since.elapsed())
    }

    /// The attempt has succeeded, and counts no more.
    pub fn succeeded(&self, peer: Source) {
        if let Some(bucket) = self.peers.lock().get_mut(&peer) {
            bucket.put_back(COST);
        }
    }

    fn admit_at(&self, peer: Source, now: Duration) -> bool {
        let mut peers = self.peers.lock();
        if peers.len() >= MAX_PEERS && !peers.contains_key(&peer) {
            peers.retain(|_, bucket| !bucket.is_full(now));
        }
        let peer = if peers.len() < MAX_PEERS || peers.contains_key(&peer) { peer } else { OTHERS };
        let bucket = peers.entry(peer).or_insert_with(|| TokenBucket::new(1, BURST * COST, now));
        bucket.try_take(COST, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(COST);

    fn peer(number: u32) -> Source {
        Source::User(number)
    }

    #[test]
    fn a_peer_tries_invitations_at_a_bounded_rate_and_others_do_not_notice() {
        let (attempts, mut now) = (Attempts::default(), Duration::ZERO);
        let tried = |number, now| (0..100).filter(|_| attempts.admit_at(peer(number), now)).count() as u64;
        assert_eq!((tried(1, now), tried(2, now)), (BURST, BURST));
        now += INTERVAL - Duration::from_millis(1);
        assert_eq!(tried(1, now), 0);
        now += Duration::from_millis(1);
        assert_eq!(tried(1, now), 1);
        // Many peers fill the table with those that are at their limit, and take nothing from those that are in it.
        for number in 10..10 + 2 * MAX_PEERS as u32 {
            attempts.admit_at(peer(number), now);
        }
        assert!(attempts.peers.lock().len() <= MAX_PEERS + 1);
        assert_eq!(tried(3, now), 0, "it shares what one peer may");
        now += INTERVAL * 20;
        assert_eq!((tried(3, now), tried(1, now)), (BURST, BURST));
    }
}
