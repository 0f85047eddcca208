//! What does this rank send, and what has become of it?

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A range of memory that a peer may fetch once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) peer: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// What the program's memory held, where the program has it back already.
    pub(crate) copy: Option<Arc<Vec<u8>>>,
}

/// What has become of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferState {
    /// The peer has not fetched all of it.
    UnderWay,
    /// The peer has it, and the memory is the program's again.
    Done,
    /// The peer has gone, or has given up.
    Failed,
}

/// All offers of a rank.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    offers: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    offer: Offer,
    state: OfferState,
    /// The peer has begun to fetch it.
    is_served: bool,
    /// The program has heard that it is done, since there is a copy.
    is_told: bool,
}

impl Offers {
    /// Offers memory. The number is never 0.
    pub(crate) fn add(&self, offer: Offer) -> u64 {
        let mut table = self.lock();
        table.last += 1;
        let number = table.last;
        let state = OfferState::UnderWay;
        table.offers.insert(number, Entry { offer, state, is_served: false, is_told: false });
        number
    }

    /// An offer that is under way, for the peer that it was made to, which begins to fetch it.
    pub(crate) fn begin(&self, number: u64, peer: u32) -> Option<Offer> {
        let mut table = self.lock();
        let entry = table.offers.get_mut(&number)?;
        if entry.offer.peer != peer || entry.state != OfferState::UnderWay {
            return None;
        }
        entry.is_served = true;
        Some(entry.offer.clone())
    }

    /// Gives the program its memory back before the peer has fetched anything, with a copy that `copy` makes.
    /// Says whether it has: not where the peer has begun, or the copy fails.
    pub(crate) fn detach(&self, number: u64, copy: impl FnOnce(&Offer) -> Option<Vec<u8>>) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.offers.get_mut(&number) else { return false };
        if entry.is_served || entry.state != OfferState::UnderWay {
            return false;
        }
        // The peer waits meanwhile.
        entry.offer.copy = copy(&entry.offer).map(Arc::new);
        entry.offer.copy.is_some()
    }

    /// The peer has come to an end with it.
    pub(crate) fn end(&self, number: u64, peer: u32, state: OfferState) {
        let mut table = self.lock();
        let Some(entry) = table.offers.get_mut(&number).filter(|entry| entry.offer.peer == peer) else {
            return;
        };
        entry.state = state;
        if entry.is_told {
            table.offers.remove(&number);
        }
    }

    /// The peer has gone: nothing of what it was offered will be fetched.
    pub(crate) fn end_all(&self, peer: u32) {
        let mut table = self.lock();
        table.offers.retain(|_, entry| entry.offer.peer != peer || !entry.is_told);
        for entry in table.offers.values_mut() {
            if entry.offer.peer == peer && entry.state == OfferState::UnderWay {
                entry.state = OfferState::Failed;
            }
        }
    }

    /// What has become of an offer. One that has come to its end is forgotten with the answer.
    pub(crate) fn state(&self, number: u64) -> OfferState {
        let mut table = self.lock();
        let Some(entry) = table.offers.get_mut(&number) else { return OfferState::Failed };
        match (entry.state, &entry.offer.copy) {
            (OfferState::UnderWay, None) => OfferState::UnderWay,
            (OfferState::UnderWay, Some(_)) => {
                entry.is_told = true;
                OfferState::Done
            }
            (ended, _) => {
                table.offers.remove(&number);
                ended
            }
        }
    }

    /// Whether a peer has still to fetch something.
    pub(crate) fn are_under_way(&self) -> bool {
        self.lock().offers.values().any(|entry| entry.state == OfferState::UnderWay)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer { peer: 3, address: 64, bytes: 8, copy: None }
    }

    #[test]
    fn offers_are_for_one_peer_and_end_once() {
        let offers = Offers::default();
        let (first, second) = (offers.add(offer()), offers.add(offer()));
        assert_eq!(offers.begin(first, 3), Some(offer()));
        assert_eq!((offers.begin(first, 2), offers.begin(9, 3)), (None, None));
        offers.end(first, 2, OfferState::Done);
        assert_eq!(offers.state(first), OfferState::UnderWay);
        offers.end(first, 3, OfferState::Done);
        assert_eq!(offers.begin(first, 3), None);
        offers.end_all(3);
        assert_eq!((offers.state(first), offers.state(second)), (OfferState::Done, OfferState::Failed));
        assert_eq!(offers.state(first), OfferState::Failed);
    }

    #[test]
    fn a_copy_gives_the_memory_back_before_the_peer_comes() {
        let offers = Offers::default();
        let (first, second) = (offers.add(offer()), offers.add(offer()));
        assert!(!offers.detach(first, |_| None) && offers.detach(first, |_| Some(vec![7; 8])));
        assert_eq!((offers.state(first), offers.state(first)), (OfferState::Done, OfferState::Done));
        assert_eq!(offers.begin(first, 3).unwrap().copy.as_deref(), Some(&vec![7; 8]));
        offers.begin(second, 3).unwrap();
        assert!(!offers.detach(second, |_| Some(Vec::new())) && offers.are_under_way());
        offers.end(first, 3, OfferState::Done);
        offers.end(second, 3, OfferState::Done);
        assert_eq!((offers.state(first), offers.are_under_way()), (OfferState::Failed, false));
    }
}
