//! Offers of this rank: the table of them, and copies of those that the program has back before they are
//! fetched.

use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memmap2::{MmapMut, MmapOptions};

use super::short::ShortMessages;
use super::state_words::{STATE_WORDS, StateWords};
use crate::cuda::{DeviceMemory, Driver, Pinned, Scope, synchronize};
use crate::locks::{Monitor, Mutex, MutexGuard, rank};

/// Bytes that a rank has in such memory at most, of several messages.
const MAX_DETACHED_BYTES: u64 = 64 << 20;

/// A receiver that has fetched nothing for so long is late for any message.
pub(crate) const DETACH_TIMEOUT: Duration = Duration::from_secs(1);

/// Nor is one late for a long message before so long: programs compute between two messages.
const MIN_DETACH_TIMEOUT: Duration = Duration::from_millis(100);

/// When a receiver that has fetched nothing is late for a message of so many bytes: after ten copies of it to
/// the host at 1 GB/s. So that copy adds little to the wait.
pub(crate) fn detach_timeout(bytes: u64) -> Duration {
    const NS_PER_BYTE: u64 = 10;
    Duration::from_nanos(bytes.saturating_mul(NS_PER_BYTE)).clamp(MIN_DETACH_TIMEOUT, DETACH_TIMEOUT)
}

/// The same of a receiver that waits in a call of the MPI, perhaps for this rank: after one such copy.
fn waiting_timeout(bytes: u64) -> Duration {
    const MIN_TIMEOUT: Duration = Duration::from_millis(1);
    Duration::from_nanos(bytes).clamp(MIN_TIMEOUT, DETACH_TIMEOUT)
}

/// After so long it is in spite of the limit.
const MAX_DETACH_WAIT: Duration = Duration::from_secs(10);

/// Shorter ones are not worth being registered with the driver.
const MIN_PINNED_BYTES: usize = 1 << 20;

/// A range of memory that a peer may fetch once.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    pub(crate) peer: u32,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    /// The number of the allocation.
    pub(crate) buffer: u64,
    /// Whether the message is offered though it is short.
    pub(crate) is_short: bool,
    /// What the program's memory held, where the program has it back already.
    pub(crate) copy: Option<Arc<DetachedCopy>>,
}

/// State of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferState {
    /// The peer has not fetched all of it.
    InFlight,
    /// The peer has it, and the memory is the program's again.
    Done,
    /// The peer has gone, or has given up.
    Failed,
}

/// All offers of a rank.
#[derive(Debug, Default)]
pub(crate) struct Offers {
    table: Monitor<rank::Offers, Table>,
    short: Mutex<rank::Leaf, ShortMessages>,
    detached: DetachedBytes,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    offers: HashMap<u64, Entry>,
    peers: HashMap<u32, PeerStateWords>,
    /// When each peer has last fetched something.
    fetched: HashMap<u32, Instant>,
}

/// The words between this rank and a peer, and which of them tell of no offer.
#[derive(Debug)]
struct PeerStateWords {
    state_words: Arc<StateWords>,
    free: Vec<u16>,
}

impl PeerStateWords {
    fn is_waiting(&self) -> bool {
        self.state_words.is_receiver_waiting()
    }
}

/// The word of an offer.
#[derive(Debug)]
struct Word {
    state_words: Arc<StateWords>,
    slot: u16,
}

#[derive(Debug)]
struct Entry {
    offer: Offer,
    state: OfferState,
    word: Option<Word>,
    /// The peer has asked for it.
    is_served: bool,
    /// It is being taken back, which a peer that asks for it waits for.
    is_leaving: bool,
    since: Instant,
    /// The program has heard that it is done, since there is a copy.
    is_reported: bool,
}

impl Entry {
    fn new(offer: Offer, word: Option<Word>) -> Self {
        let (state, since) = (OfferState::InFlight, Instant::now());
        Self { offer, state, word, is_served: false, is_leaving: false, since, is_reported: false }
    }

    /// State of it, as far as the peer has said: by a message, or by the offer's word.
    fn state(&self, number: u64) -> OfferState {
        match self.word.as_ref().and_then(|word| word.state_words.outcome(word.slot, number)) {
            Some(true) => OfferState::Done,
            Some(false) => OfferState::Failed,
            None => self.state,
        }
    }

    fn is_in_flight(&self, number: u64) -> bool {
        self.state(number) == OfferState::InFlight
    }

    /// Whether the peer has begun to fetch it, and has not come to an end with it.
    fn is_being_fetched(&self, number: u64) -> bool {
        let is_taken = |word: &Word| word.state_words.is_taken(word.slot, number);
        (self.is_served || self.word.as_ref().is_some_and(is_taken)) && self.is_in_flight(number)
    }
}

impl Table {
    /// Gives a word back to the next offer.
    fn release(&mut self, peer: u32, word: Option<Word>) {
        let Some(Word { state_words, slot }) = word else { return };
        state_words.clear(slot);
        if let Some(of_peer) =
            self.peers.get_mut(&peer).filter(|peer| Arc::ptr_eq(&peer.state_words, &state_words))
        {
            of_peer.free.push(slot);
        }
    }

    fn is_fetching(&self, peer: u32) -> bool {
        self.offers.iter().any(|(number, entry)| entry.offer.peer == peer && entry.is_being_fetched(*number))
    }

    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.offers.remove(&number) {
            self.release(entry.offer.peer, entry.word);
        }
    }
}

impl Offers {
    /// A peer has these words from now on.
    pub(crate) fn open(&self, peer: u32, state_words: Arc<StateWords>) {
        self.table
            .lock()
            .peers
            .insert(peer, PeerStateWords { state_words, free: (0..STATE_WORDS).rev().collect() });
    }

    /// The words for a peer, if it has some.
    pub(crate) fn state_words(&self, peer: u32) -> Option<Arc<StateWords>> {
        self.table.lock().peers.get(&peer).map(|peer| Arc::clone(&peer.state_words))
    }

    /// Offers memory. The number is never 0. The word tells what happens to it, as long as there are free
    /// ones.
    pub(crate) fn add(&self, offer: Offer) -> (u64, Option<u16>) {
        let mut table = self.table.lock();
        table.last += 1;
        let number = table.last;
        let word = table.peers.get_mut(&offer.peer).and_then(|peer| {
            let slot = peer.free.pop()?;
            peer.state_words.offer(slot, number);
            Some(Word { state_words: Arc::clone(&peer.state_words), slot })
        });
        let slot = word.as_ref().map(|word| word.slot);
        table.offers.insert(number, Entry::new(offer, word));
        (number, slot)
    }

    /// Offers memory that the peer is to open, and of which no word tells. The number is never 0.
    pub(crate) fn export(&self, offer: Offer) -> u64 {
        let mut table = self.table.lock();
        table.last += 1;
        let number = table.last;
        table.offers.insert(number, Entry::new(offer, None));
        number
    }

    /// An offer is not to be fetched any more, whatever its state.
    pub(crate) fn revoke(&self, number: u64) {
        self.table.lock().remove(number);
    }

    /// An offer that is under way, for the peer that it was made to, which begins to fetch it.
    pub(crate) fn begin(&self, number: u64, peer: u32) -> Option<Offer> {
        self.table.wait(|table| match table.offers.get(&number) {
            Some(entry) if entry.is_leaving => None,
            _ => Some(Self::begin_of(table, number, peer)),
        })
    }

    fn begin_of(table: &mut Table, number: u64, peer: u32) -> Option<Offer> {
        let entry = table.offers.get_mut(&number)?;
        if entry.offer.peer != peer || !entry.is_in_flight(number) {
            return None;
        }
        entry.is_served = true;
        if let Some(word) = &entry.word {
            // Or the peer has taken it before, and asks since it could not copy.
            word.state_words.take(word.slot, number);
        }
        Some(entry.offer.clone())
    }

    /// Gives the program its memory back before the peer has fetched anything, with a copy that `copy` makes.
    /// Gives the peer and the message's bytes if it has: not where the peer has begun, or has fetched
    /// something since less than `min_wait`, there is too much in such copies, or the copy fails. No other
    /// offer waits for the copy.
    pub(crate) fn detach(
        &self,
        number: u64,
        min_wait: Duration,
        copy: impl FnOnce(&Offer, Share) -> Option<DetachedCopy>,
    ) -> Option<(u32, u64)> {
        let (offer, share) = self.leave(number, min_wait)?;
        let copy = copy(&offer, share).map(Arc::new);
        let is_detached = copy.is_some();
        self.table.change(|table| {
            let Some(entry) = table.offers.get_mut(&number) else { return };
            entry.is_leaving = false;
            match copy {
                Some(copy) => {
                    entry.offer.copy = Some(copy);
                    let word = entry.word.take();
                    table.release(offer.peer, word);
                }
                None => {
                    if let Some(word) = &entry.word {
                        word.state_words.offer(word.slot, number);
                    }
                }
            }
        });
        if is_detached && offer.is_short {
            self.short().detached(offer.peer);
        }
        is_detached.then_some((offer.peer, offer.bytes))
    }

    /// From now on an offer is the program's alone, if the peer has not begun to fetch it.
    fn leave(&self, number: u64, min_wait: Duration) -> Option<(Offer, Share)> {
        let mut table = self.table.lock();
        let table = &mut *table;
        let entry = table.offers.get_mut(&number)?;
        let is_free = !entry.is_served && !entry.is_leaving && entry.state == OfferState::InFlight;
        if !is_free || entry.offer.copy.is_some() {
            return None;
        }
        // A receiver that fetches one message after the other does come.
        let fetched = table.fetched.get(&entry.offer.peer).copied();
        let waited = fetched.map_or(entry.since, |fetched| entry.since.max(fetched)).elapsed();
        let (peer, is_short) = (entry.offer.peer, entry.offer.is_short);
        if waited < min_wait && !is_short {
            return None;
        }
        // Nor is one late that is fetching a longer one.
        if waited < DETACH_TIMEOUT && min_wait > Duration::ZERO && !is_short && table.is_fetching(peer) {
            return None;
        }
        let entry = table.offers.get_mut(&number)?;
        let share = self.detached.take(entry.offer.bytes, waited)?;
        let is_open = |word: &Word| word.state_words.withdraw(word.slot, number);
        entry.is_leaving = entry.word.as_ref().is_none_or(is_open);
        entry.is_leaving.then(|| (entry.offer.clone(), share))
    }

    /// The peer has come to an end with it.
    pub(crate) fn end(&self, number: u64, peer: u32, state: OfferState) {
        let mut table = self.table.lock();
        let Some(entry) = table.offers.get_mut(&number).filter(|entry| entry.offer.peer == peer) else {
            return;
        };
        entry.state = state;
        let (is_reported, word) = (entry.is_reported, entry.word.take());
        table.release(peer, word);
        if is_reported {
            table.remove(number);
        }
    }

    /// The peer has gone: nothing of what it was offered will be fetched.
    pub(crate) fn end_all(&self, peer: u32) {
        self.short().forget(peer);
        let mut table = self.table.lock();
        table.peers.remove(&peer);
        table.fetched.remove(&peer);
        table.offers.retain(|_, entry| entry.offer.peer != peer || !entry.is_reported);
        for (number, entry) in &mut table.offers {
            if entry.offer.peer == peer && entry.state == OfferState::InFlight {
                let is_done = entry.state(*number) == OfferState::Done;
                entry.state = if is_done { OfferState::Done } else { OfferState::Failed };
                entry.word = None;
            }
        }
    }

    /// State of an offer. One that has come to its end is forgotten with the answer.
    pub(crate) fn state(&self, number: u64) -> OfferState {
        let mut table = self.table.lock();
        let Some(entry) = table.offers.get_mut(&number) else { return OfferState::Failed };
        match (entry.state(number), &entry.offer.copy) {
            (OfferState::InFlight, None) => OfferState::InFlight,
            (OfferState::InFlight, Some(_)) => {
                entry.is_reported = true;
                OfferState::Done
            }
            (ended, copy) => {
                let (peer, is_short) = (entry.offer.peer, entry.offer.is_short);
                let has_helped = is_short && copy.is_none();
                table.remove(number);
                if ended == OfferState::Done && !is_short {
                    table.fetched.insert(peer, Instant::now());
                }
                if has_helped && ended == OfferState::Done {
                    self.short().succeeded(peer);
                }
                ended
            }
        }
    }

    /// When the receiver of an offer is late; 0 if there is no such offer.
    pub(crate) fn timeout(&self, number: u64) -> Duration {
        let table = self.table.lock();
        let Some(Entry { offer, .. }) = table.offers.get(&number) else { return Duration::ZERO };
        let is_waiting = table.peers.get(&offer.peer).is_some_and(|peer| peer.is_waiting());
        if is_waiting { waiting_timeout(offer.bytes) } else { detach_timeout(offer.bytes) }
    }

    /// The receiver of an offer, if there is such an offer.
    pub(crate) fn peer(&self, number: u64) -> Option<u32> {
        self.table.lock().offers.get(&number).map(|entry| entry.offer.peer)
    }

    /// Whether a peer has still to fetch something.
    pub(crate) fn any_in_flight(&self) -> bool {
        self.table.lock().offers.iter().any(|(number, entry)| entry.is_in_flight(*number))
    }

    /// Whether the peer has begun to fetch an offer by asking for it, and has not come to an end with it.
    pub(crate) fn is_served(&self, number: u64) -> bool {
        let table = self.table.lock();
        table.offers.get(&number).is_some_and(|entry| entry.is_served && entry.is_in_flight(number))
    }

    /// Whether a peer has begun to fetch something, and has not come to an end with it.
    pub(crate) fn are_being_fetched(&self) -> bool {
        self.table.lock().offers.iter().any(|(number, entry)| entry.is_being_fetched(*number))
    }

    /// Whether a short message from a buffer is offered to a peer.
    pub(crate) fn is_short_offered(&self, peer: u32, buffer: u64) -> bool {
        self.short().is_offered(peer, buffer)
    }

    /// A peer has fetched the payload of an operation, in a way that pays for short messages or in another.
    pub(crate) fn served(&self, number: u64, peer: u32, pays: bool) {
        let table = self.table.lock();
        if let Some(entry) = table.offers.get(&number).filter(|entry| entry.offer.peer == peer) {
            self.short().fetched(peer, entry.offer.buffer, pays);
        }
    }

    /// Where both locks are held the table's is taken first.
    fn short(&self) -> MutexGuard<'_, rank::Leaf, ShortMessages> {
        self.short.lock()
    }
}

/// How many bytes of such copies there are.
#[derive(Debug, Default, Clone)]
struct DetachedBytes(Arc<AtomicU64>);

/// A part of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    total: DetachedBytes,
    bytes: u64,
}

impl DetachedBytes {
    /// Takes a share for a message of so many bytes that has waited so long, if there is one.
    fn take(&self, bytes: u64, waited: Duration) -> Option<Share> {
        let limit = if waited > MAX_DETACH_WAIT { u64::MAX } else { MAX_DETACHED_BYTES };
        let add = |total: u64| total.checked_add(bytes).filter(|sum| total == 0 || *sum <= limit);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Share { total: self.clone(), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.total.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What a program's memory held when it got it back, in memory of the host, of which a rank takes no more
/// than a certain number of bytes for that.
///
/// A send that waits for ever, though its receiver would come to it only after that, would be a deadlock that
/// the MPI alone does not have. So a message of any length is taken back where there is no other, and any
/// that has waited very long.
#[derive(Debug)]
pub(crate) struct DetachedCopy {
    /// In front of the memory, so that it goes first. None where the driver refuses, or it is not worth it.
    _pinned: Option<Pinned>,
    memory: MmapMut,
    _share: Share,
}

impl DetachedCopy {
    /// A copy of so many bytes on a GPU; none where the memory for it cannot be had, or the driver fails.
    ///
    /// # Safety
    /// The bytes are there and do not change meanwhile.
    pub(crate) unsafe fn copy(address: u64, bytes: u64, share: Share) -> Option<Self> {
        let length = usize::try_from(bytes).ok()?;
        let memory = MmapOptions::new().len(length.max(1)).map_anon().ok()?;
        let driver = Driver::loaded()?;
        let source = DeviceMemory::at(driver, address)?;
        synchronize(driver, &source);
        let scope = Scope::of(driver, &source).ok()?;
        let to = memory.as_ptr() as u64;
        let is_pinned = length >= MIN_PINNED_BYTES && !Driver::is_remote();
        // SAFETY: the mapping goes after what is registered.
        let pinned = is_pinned.then(|| unsafe { Pinned::new(&scope, to, length) }.ok()).flatten();
        // SAFETY: the mapping has so many bytes and is nobody else's; the source is there, as the caller
        // promises.
        unsafe { scope.copy(to, address, length) }.ok()?;
        Some(Self { _pinned: pinned, memory, _share: share })
    }

    #[cfg(test)]
    fn of(bytes: &[u8], share: Share) -> Self {
        let mut memory = MmapOptions::new().len(bytes.len()).map_anon().unwrap();
        memory.copy_from_slice(bytes);
        Self { _pinned: None, memory, _share: share }
    }
}

impl Deref for DetachedCopy {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory
    }
}

#[cfg(test)]
mod tests;
