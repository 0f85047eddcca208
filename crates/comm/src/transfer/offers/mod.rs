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
mod tests;
