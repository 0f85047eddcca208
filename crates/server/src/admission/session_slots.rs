//! Limits per peer: sessions, in all and of each peer, and attempts with invitations, which each peer may
//! make at a rate.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use causeway_access::keys::groups::GroupName;

use crate::admission::source::Source;
use crate::locks::{Mutex, rank};
use crate::token_bucket::TokenBucket;

/// Why there is no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// There are as many as there may be.
    InAll,
    /// There are as many of this source as there may be.
    OfSource,
    /// There are as many of its group as there may be.
    OfGroup,
}

/// Session slots, and which source holds each.
#[derive(Debug)]
pub struct SessionSlots {
    max_sessions: usize,
    max_per_source: usize,
    taken: usize,
    by_source: HashMap<Source, Held>,
}

/// What a source has.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    slots: usize,
    /// The group that it was in when it took the last of them.
    group: Option<GroupName>,
}

impl SessionSlots {
    /// With `max_sessions` slots, of which one source may hold `max_per_source`.
    pub fn new(max_sessions: usize, max_per_source: usize) -> Self {
        Self { max_sessions, max_per_source, taken: 0, by_source: HashMap::new() }
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken
    }

    /// Takes a slot.
    pub fn take(&mut self, source: Source) -> Result<(), Full> {
        self.take_of(source, None, None)
    }

    /// As [`Self::take`], for a source that may have `max_sessions` of its own, and is in a group that may have so many
    /// together with it. All that it has counts for that group then.
    pub fn take_of(
        &mut self,
        source: Source,
        max_sessions: Option<usize>,
        group: Option<(GroupName, Option<usize>)>,
    ) -> Result<(), Full> {
        let of_source = self.by_source.get(&source).copied().unwrap_or_default().slots;
        // This first: where both are reached, more for one source would not help.
        if self.taken >= self.max_sessions {
            return Err(Full::InAll);
        }
        if of_source >= max_sessions.unwrap_or(self.max_per_source) {
            return Err(Full::OfSource);
        }
        if let Some((name, Some(max_sessions))) = group
            && self.of_others(source, name) + of_source >= max_sessions
        {
            return Err(Full::OfGroup);
        }
        self.taken += 1;
        self.by_source.insert(source, Held { slots: of_source + 1, group: group.map(|(name, _)| name) });
        Ok(())
    }

    /// How many the other members of a group have.
    fn of_others(&self, source: Source, group: GroupName) -> usize {
        let others =
            self.by_source.iter().filter(|(other, held)| **other != source && held.group == Some(group));
        others.map(|(_, held)| held.slots).sum()
    }

    /// Gives a slot back that was taken.
    pub fn release(&mut self, source: Source) {
        if let Entry::Occupied(mut of_source) = self.by_source.entry(source) {
            self.taken -= 1;
            of_source.get_mut().slots -= 1;
            if of_source.get().slots == 0 {
                of_source.remove();
            }
        }
    }
}

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
    peers: Mutex<rank::Leaf, HashMap<Source, TokenBucket>>,
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
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nobody_has_more_than_its_part_and_what_is_given_back_can_be_taken(
            (max_sessions, max_per_source) in (0_usize..12, 0_usize..6),
            steps in proptest::collection::vec((0_u32..4, any::<bool>()), 0..200),
        ) {
            let mut slots = SessionSlots::new(max_sessions, max_per_source);
            // SessionSlots of each source.
            let mut model = [0_usize; 4];
            for (user, comes) in steps {
                let (source, index) = (Source::User(user), user as usize);
                if comes {
                    let expected = if model.iter().sum::<usize>() >= max_sessions {
                        Err(Full::InAll)
                    } else if model[index] >= max_per_source {
                        Err(Full::OfSource)
                    } else {
                        model[index] += 1;
                        Ok(())
                    };
                    prop_assert_eq!(slots.take(source), expected);
                } else {
                    // Also when there is nothing to give back.
                    slots.release(source);
                    model[index] = model[index].saturating_sub(1);
                }
                // Sources that have nothing are not remembered.
                prop_assert_eq!(slots.by_source.len(), model.iter().filter(|taken| **taken > 0).count());
            }
        }
    }

    #[test]
    fn members_of_a_group_share_its_sessions_beside_their_own() {
        let [staff, guests]: [GroupName; 2] = ["staff", "guests"].map(|name| name.parse().unwrap());
        let mut slots = SessionSlots::new(100, 50);
        let mut take = |user, own, group| slots.take_of(Source::User(user), own, group);
        let of_staff = Some((staff, Some(3)));
        assert_eq!((take(1, None, of_staff), take(1, Some(2), of_staff)), (Ok(()), Ok(())));
        assert_eq!(take(1, Some(2), of_staff), Err(Full::OfSource));
        assert_eq!((take(2, None, of_staff), take(2, None, of_staff)), (Ok(()), Err(Full::OfGroup)));
        assert_eq!((take(3, None, of_staff), take(3, None, None)), (Err(Full::OfGroup), Ok(())));
        // Whoever was in no group, or in another one, counts with all that it has.
        assert_eq!(take(3, None, Some((guests, Some(1)))), Err(Full::OfGroup));
        assert_eq!(take(3, None, Some((guests, Some(2)))), Ok(()));
        assert_eq!(take(4, None, Some((guests, Some(2)))), Err(Full::OfGroup));
        slots.release(Source::User(1));
        assert_eq!(slots.take_of(Source::User(2), None, of_staff), Ok(()));
        assert_eq!(slots.take_of(Source::User(4), None, Some((staff, Some(0)))), Err(Full::OfGroup));
    }

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
