//! Bandwidth of peers and groups: how long their sessions wait so that all of them together keep to a rate.
//!
//! A worker says what it has carried and waits as long as the broker says. All sessions of a peer take from the same buckets,
//! one for each direction, and those of a group's members from that group's as well. What travels among messages has buckets of its own, so that commands and what keeps a connection
//! alive do not wait behind copies. As with device memory this holds for what clients send: a worker that its client has
//! taken over may carry bytes without asking.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use causeway_access::keys::groups::PeerLimits;
use causeway_access::keys::limits::ClientLimits;

use crate::admission::{LimitScope, Source};
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
type Name = (LimitScope, bool, bool);

/// The buckets of all peers and groups whose bandwidth is limited.
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
    /// How long a session of a peer waits that has carried something.
    pub fn carried(&self, peer: Source, carried: Carried, limits: &PeerLimits) -> Duration {
        let now = self.since.elapsed();
        let own = self.carried_at(LimitScope::Peer(peer), carried, limits.own.bandwidth, now);
        let of_group = |(group, limits): (_, ClientLimits)| {
            self.carried_at(LimitScope::Group(group), carried, limits.bandwidth, now)
        };
        // Both rates are kept.
        own.max(limits.group.map(of_group).unwrap_or_default())
    }

    fn carried_at(&self, scope: LimitScope, carried: Carried, rate: Option<u64>, now: Duration) -> Duration {
        let Carried { is_received, is_bulk, bytes } = carried;
        let mut buckets = self.buckets.lock();
        let name = (scope, is_received, is_bulk);
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
        let (ada, bob) = (LimitScope::Peer(Source::User(1)), LimitScope::Peer(Source::User(2)));
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
        let eve = LimitScope::Peer(Source::User(3));
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

    #[test]
    fn members_of_a_group_share_its_rate_and_keep_to_their_own() {
        let bandwidth = Bandwidth::default();
        let of = |rate| ClientLimits { bandwidth: rate, ..ClientLimits::default() };
        let of_group = Some(("staff".parse().unwrap(), of(RATE)));
        let [ada, bob] = [None, Some(2 << 20)].map(|own| PeerLimits { own: of(own), group: of_group });
        let carried =
            |user, limits: &PeerLimits| bandwidth.carried(Source::User(user), copy(true, 8 << 20), limits);
        let is_close = |time: Duration, seconds: f64| (time.as_secs_f64() - seconds).abs() < 0.2;
        let first = carried(1, &ada);
        assert!(is_close(first, 0.875), "{first:?}");
        let second = carried(2, &ada);
        assert!(is_close(second, 1.875), "another member waits behind it: {second:?}");
        let slower = carried(3, &bob);
        assert!(is_close(slower, 3.5), "its own rate is lower: {slower:?}");
        let alone = carried(4, &PeerLimits { own: of(RATE), group: None });
        assert!(is_close(alone, 0.875), "{alone:?}");
    }
}
