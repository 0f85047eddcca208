//! Bandwidth of peers: how long their sessions wait so that all of them together keep to a rate.
//!
//! A worker says what it has carried and waits as long as the broker says. All sessions of a peer take from the same buckets,
//! one for each direction. What travels among messages has buckets of its own, so that commands and what keeps a connection
//! alive do not wait behind copies. As with device memory this holds for what clients send: a worker that its client has
//! taken over may carry bytes without asking.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::admission::Source;
use crate::locks::{Mutex, rank};
use crate::protocol::messages::Carried;
use crate::token_bucket::TokenBucket;

/// Buckets from which on those are removed that are full, and so as new.
const MAX_IDLE: usize = 4096;

/// The least that passes at once.
const MIN_BURST: u64 = 1 << 20;

/// The longest wait, whatever has gone before: so the next program of a client does not wait for what others have left for
/// longer. In this time the lowest rate carries a longest piece on each of a session's lanes, or a longest message.
const MAX_WAIT: Duration = Duration::from_secs(16);

/// Which bucket: whose, whether of bytes from the client, and whether of copies.
type Name = (Source, bool, bool);

/// The buckets of all peers whose bandwidth is limited.
#[derive(Debug)]
pub struct Bandwidth {
    since: Instant,
    buckets: Mutex<rank::Leaf, HashMap<Name, TokenBucket>>,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Self { since: Instant::now(), buckets: Mutex::default() }
    }
}

impl Bandwidth {
    /// How long a session of a peer waits that has carried something, if the peer may carry `rate` bytes a second.
    pub fn carried(&self, peer: Source, carried: Carried, rate: Option<u64>) -> Duration {
        self.carried_at(peer, carried, rate, self.since.elapsed())
    }

    fn carried_at(&self, peer: Source, carried: Carried, rate: Option<u64>, now: Duration) -> Duration {
        let Carried { is_received, is_bulk, bytes } = carried;
        let mut buckets = self.buckets.lock();
        let name = (peer, is_received, is_bulk);
        // The limit has been taken away while the session runs.
        let Some(rate) = rate else {
            buckets.remove(&name);
            return Duration::ZERO;
        };
        // An eighth of a second of copies passes at once, and a second of what programs do between them.
        let burst = if is_bulk { rate / 8 } else { rate }.max(MIN_BURST);
        if buckets.len() >= MAX_IDLE {
            buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        let bucket = buckets.entry(name).or_insert_with(|| TokenBucket::new(rate, burst, now));
        bucket.set_rate(rate, burst, now);
        bucket.take(bytes, MAX_WAIT, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Option<u64> = Some(8 << 20);
    const SECOND: Duration = Duration::from_secs(1);

    fn copy(is_received: bool, bytes: u64) -> Carried {
        Carried { is_received, is_bulk: true, bytes }
    }

    #[test]
    fn sessions_of_a_peer_share_a_rate_and_others_have_their_own() {
        let bandwidth = Bandwidth::default();
        let (ada, bob) = (Source::User(1), Source::User(2));
        let carried = |peer, carried, now| bandwidth.carried_at(peer, carried, RATE, now);
        assert_eq!(carried(ada, copy(true, 1 << 20), SECOND), Duration::ZERO, "the burst");
        assert_eq!(carried(ada, copy(true, 8 << 20), SECOND), SECOND);
        assert_eq!(carried(ada, copy(true, 8 << 20), SECOND), 2 * SECOND, "another session waits behind it");
        // Neither the other direction, nor another peer, nor what is among messages.
        assert_eq!(carried(ada, copy(false, 1 << 20), SECOND), Duration::ZERO);
        assert_eq!(carried(bob, copy(true, 1 << 20), SECOND), Duration::ZERO);
        let message = Carried { is_received: true, is_bulk: false, bytes: 8 << 20 };
        assert_eq!(carried(ada, message, SECOND), Duration::ZERO);
        assert_eq!(carried(ada, message, SECOND), SECOND);
        // What is more than that is forgiven.
        let eve = Source::User(3);
        assert_eq!(carried(eve, copy(true, 1 << 40), SECOND), MAX_WAIT);
        assert_eq!(carried(eve, copy(true, 1 << 40), SECOND), MAX_WAIT);
        assert_eq!(carried(eve, copy(true, 0), SECOND + MAX_WAIT), Duration::ZERO);
        // From another rate on.
        assert_eq!(
            bandwidth.carried_at(ada, copy(true, 0), Some(16 << 20), 2 * SECOND),
            SECOND / 2 - SECOND / 16
        );
        assert_eq!(bandwidth.carried_at(ada, copy(true, 1 << 30), None, 2 * SECOND), Duration::ZERO);
    }
}
