//! What does this rank send, and what has become of it?

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::short::ShortMessages;
use super::words::{WORDS, Words};

/// A range of memory that a peer may fetch once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) peer: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// The number of the allocation.
    pub(crate) buffer: u64,
    /// Whether the message is offered though it is short.
    pub(crate) is_short: bool,
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
    short: Mutex<ShortMessages>,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    offers: HashMap<u64, Entry>,
    peers: HashMap<u32, PeerWords>,
}

/// The words between this rank and a peer, and which of them tell of no offer.
#[derive(Debug)]
struct PeerWords {
    words: Arc<Words>,
    free: Vec<u16>,
}

/// The word of an offer.
#[derive(Debug)]
struct Word {
    words: Arc<Words>,
    slot: u16,
}

#[derive(Debug)]
struct Entry {
    offer: Offer,
    state: OfferState,
    word: Option<Word>,
    /// The peer has asked for it.
    is_served: bool,
    /// The program has heard that it is done, since there is a copy.
    is_told: bool,
}

impl Entry {
    /// Whether the peer has said by the offer's word that it has the payload.
    fn is_done(&self, number: u64) -> bool {
        self.word.as_ref().is_some_and(|word| word.words.is_done(word.slot, number))
    }

    fn is_under_way(&self, number: u64) -> bool {
        self.state == OfferState::UnderWay && !self.is_done(number)
    }
}

impl Table {
    /// Gives a word back to the next offer.
    fn release(&mut self, peer: u32, word: Option<Word>) {
        let Some(Word { words, slot }) = word else { return };
        words.clear(slot);
        if let Some(of_peer) = self.peers.get_mut(&peer).filter(|peer| Arc::ptr_eq(&peer.words, &words)) {
            of_peer.free.push(slot);
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.offers.remove(&number) {
            self.release(entry.offer.peer, entry.word);
        }
    }
}

impl Offers {
    /// A peer has these words from now on.
    pub(crate) fn open(&self, peer: u32, words: Arc<Words>) {
        self.lock().peers.insert(peer, PeerWords { words, free: (0..WORDS).rev().collect() });
    }

    /// The words for a peer, if it has some.
    pub(crate) fn words(&self, peer: u32) -> Option<Arc<Words>> {
        self.lock().peers.get(&peer).map(|peer| Arc::clone(&peer.words))
    }

    /// Offers memory. The number is never 0. The word tells what becomes of it, as long as there are free
    /// ones.
    pub(crate) fn add(&self, offer: Offer) -> (u64, Option<u16>) {
        let mut table = self.lock();
        table.last += 1;
        let number = table.last;
        let word = table.peers.get_mut(&offer.peer).and_then(|peer| {
            let slot = peer.free.pop()?;
            peer.words.offer(slot, number);
            Some(Word { words: Arc::clone(&peer.words), slot })
        });
        let slot = word.as_ref().map(|word| word.slot);
        let state = OfferState::UnderWay;
        table.offers.insert(number, Entry { offer, state, word, is_served: false, is_told: false });
        (number, slot)
    }

    /// Offers memory that the peer is to open, and of which no word tells. The number is never 0.
    pub(crate) fn show(&self, offer: Offer) -> u64 {
        let mut table = self.lock();
        table.last += 1;
        let number = table.last;
        let state = OfferState::UnderWay;
        table.offers.insert(number, Entry { offer, state, word: None, is_served: false, is_told: false });
        number
    }

    /// An offer is not to be fetched any more, whatever has become of it.
    pub(crate) fn hide(&self, number: u64) {
        self.lock().remove(number);
    }

    /// An offer that is under way, for the peer that it was made to, which begins to fetch it.
    pub(crate) fn begin(&self, number: u64, peer: u32) -> Option<Offer> {
        let mut table = self.lock();
        let entry = table.offers.get_mut(&number)?;
        if entry.offer.peer != peer || !entry.is_under_way(number) {
            return None;
        }
        entry.is_served = true;
        if let Some(word) = &entry.word {
            // Or the peer has taken it before, and asks since it could not copy.
            word.words.take(word.slot, number);
        }
        Some(entry.offer.clone())
    }

    /// Gives the program its memory back before the peer has fetched anything, with a copy that `copy` makes.
    /// Says whether it has: not where the peer has begun, or the copy fails.
    pub(crate) fn detach(&self, number: u64, copy: impl FnOnce(&Offer) -> Option<Vec<u8>>) -> bool {
        let mut table = self.lock();
        let Some(entry) = table.offers.get_mut(&number) else { return false };
        let is_open = |word: &Word| word.words.withdraw(word.slot, number);
        if entry.is_served || entry.state != OfferState::UnderWay || !entry.word.as_ref().is_none_or(is_open)
        {
            return false;
        }
        // The peer waits meanwhile.
        entry.offer.copy = copy(&entry.offer).map(Arc::new);
        if entry.offer.copy.is_none() {
            if let Some(word) = &entry.word {
                word.words.offer(word.slot, number);
            }
            return false;
        }
        let (peer, is_short, word) = (entry.offer.peer, entry.offer.is_short, entry.word.take());
        table.release(peer, word);
        if is_short {
            self.short().taken_back(peer);
        }
        true
    }

    /// The peer has come to an end with it.
    pub(crate) fn end(&self, number: u64, peer: u32, state: OfferState) {
        let mut table = self.lock();
        let Some(entry) = table.offers.get_mut(&number).filter(|entry| entry.offer.peer == peer) else {
            return;
        };
        entry.state = state;
        let (is_told, word) = (entry.is_told, entry.word.take());
        table.release(peer, word);
        if is_told {
            table.remove(number);
        }
    }

    /// The peer has gone: nothing of what it was offered will be fetched.
    pub(crate) fn end_all(&self, peer: u32) {
        self.short().forget(peer);
        let mut table = self.lock();
        table.peers.remove(&peer);
        table.offers.retain(|_, entry| entry.offer.peer != peer || !entry.is_told);
        for (number, entry) in &mut table.offers {
            if entry.offer.peer == peer && entry.state == OfferState::UnderWay {
                entry.state = if entry.is_done(*number) { OfferState::Done } else { OfferState::Failed };
                entry.word = None;
            }
        }
    }

    /// What has become of an offer. One that has come to its end is forgotten with the answer.
    pub(crate) fn state(&self, number: u64) -> OfferState {
        let mut table = self.lock();
        let Some(entry) = table.offers.get_mut(&number) else { return OfferState::Failed };
        let state = if entry.is_done(number) { OfferState::Done } else { entry.state };
        match (state, &entry.offer.copy) {
            (OfferState::UnderWay, None) => OfferState::UnderWay,
            (OfferState::UnderWay, Some(_)) => {
                entry.is_told = true;
                OfferState::Done
            }
            (ended, copy) => {
                let (peer, has_helped) = (entry.offer.peer, entry.offer.is_short && copy.is_none());
                table.remove(number);
                if has_helped && ended == OfferState::Done {
                    self.short().succeeded(peer);
                }
                ended
            }
        }
    }

    /// Whether a peer has still to fetch something.
    pub(crate) fn are_under_way(&self) -> bool {
        self.lock().offers.iter().any(|(number, entry)| entry.is_under_way(*number))
    }

    /// Whether a short message from a buffer is offered to a peer.
    pub(crate) fn is_short_offered(&self, peer: u32, buffer: u64) -> bool {
        self.short().is_offered(peer, buffer)
    }

    /// A peer has fetched the payload of an operation, by itself or with this rank's help.
    pub(crate) fn served(&self, number: u64, peer: u32, by_itself: bool) {
        let table = self.lock();
        if let Some(entry) = table.offers.get(&number).filter(|entry| entry.offer.peer == peer) {
            self.short().fetched(peer, entry.offer.buffer, by_itself);
        }
    }

    /// Where both locks are held the table's is taken first.
    fn short(&self) -> MutexGuard<'_, ShortMessages> {
        self.short.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer { peer: 3, address: 64, bytes: 8, buffer: 7, is_short: false, copy: None }
    }

    #[test]
    fn offers_are_for_one_peer_and_end_once() {
        let offers = Offers::default();
        let (first, second) = (offers.add(offer()).0, offers.add(offer()).0);
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

    /// Offers with words, and the receiver's end of them.
    fn with_words() -> (Offers, Words) {
        let (offers, words) = (Offers::default(), Words::new().unwrap());
        let peer = Words::of_peer(words.descriptor().try_clone_to_owned().unwrap()).unwrap();
        offers.open(3, Arc::new(words));
        (offers, peer)
    }

    #[test]
    fn a_peer_that_takes_an_offer_by_its_word_ends_it() {
        let (offers, peer) = with_words();
        let (first, slot) = offers.add(offer());
        let slot = slot.unwrap();
        assert!(peer.take(slot, first));
        assert_eq!(offers.state(first), OfferState::UnderWay);
        assert!(!offers.detach(first, |_| Some(Vec::new())), "the peer reads the memory");
        peer.finish(slot, first);
        assert!(!offers.are_under_way() && offers.begin(first, 3).is_none());
        assert_eq!((offers.state(first), offers.state(first)), (OfferState::Done, OfferState::Failed));
        // The word is free for the next one, and what comes late for the first changes nothing.
        let (second, again) = offers.add(offer());
        assert_eq!(again, Some(slot));
        peer.finish(slot, first);
        assert_eq!(offers.state(second), OfferState::UnderWay);
    }

    #[test]
    fn what_the_program_has_back_is_not_taken() {
        let (offers, peer) = with_words();
        let (first, slot) = offers.add(offer());
        assert!(!offers.detach(first, |_| None));
        assert!(offers.detach(first, |_| Some(vec![1; 8])) && !peer.take(slot.unwrap(), first));
        assert!(offers.begin(first, 3).unwrap().copy.is_some());
        // Where the copy failed it is offered still.
        let (second, slot) = offers.add(offer());
        assert!(!offers.detach(second, |_| None) && peer.take(slot.unwrap(), second));
        // A peer that could not copy asks, and is served.
        assert!(offers.begin(second, 3).is_some());
        offers.end(second, 3, OfferState::Done);
        assert_eq!(offers.state(second), OfferState::Done);
    }

    #[test]
    fn a_peer_that_goes_leaves_what_it_has_and_no_words() {
        let (offers, peer) = with_words();
        let [first, second] = [offers.add(offer()), offers.add(offer())];
        assert!(peer.take(first.1.unwrap(), first.0) && peer.take(second.1.unwrap(), second.0));
        peer.finish(first.1.unwrap(), first.0);
        offers.end_all(3);
        assert_eq!((offers.state(first.0), offers.state(second.0)), (OfferState::Done, OfferState::Failed));
        assert_eq!(offers.add(offer()).1, None);
    }

    #[test]
    fn what_is_shown_has_no_word_and_is_hidden_again() {
        let (offers, _peer) = with_words();
        let number = offers.show(offer());
        assert_eq!(offers.begin(number, 3), Some(offer()));
        offers.hide(number);
        assert_eq!(offers.begin(number, 3), None);
        // What a peer says of it later changes nothing.
        offers.end(number, 3, OfferState::Done);
        assert!(!offers.are_under_way() && offers.add(offer()).1.is_some());
    }

    #[test]
    fn more_offers_than_words_are_made_without() {
        let (offers, _peer) = with_words();
        let numbers: Vec<_> = (0..=WORDS).map(|_| offers.add(offer())).collect();
        let with = numbers.iter().filter(|(_, word)| word.is_some()).count();
        assert_eq!(with, usize::from(WORDS));
        let slots: std::collections::HashSet<_> = numbers.iter().filter_map(|(_, word)| *word).collect();
        assert_eq!(slots.len(), with);
    }

    #[test]
    fn a_copy_gives_the_memory_back_before_the_peer_comes() {
        let offers = Offers::default();
        let (first, second) = (offers.add(offer()).0, offers.add(offer()).0);
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
