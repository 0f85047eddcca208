//! State words of offers, in memory that both ranks map. The sender writes into one that it offers a payload,
//! the receiver that it takes it, and then that it has it or that the copy has failed. Each offer has a word
//! of its own, and each word says of which operation it tells.
//!
//! Behind them lie the control slots of collective calls (`control_slot`), and a word in which the receiver
//! says that it waits in a call of the MPI, where it fetches nothing.
//!
//! A receiver that has the sender's memory open already needs nothing else: it takes the offer, copies, and
//! says that it is done. A sender that wants its memory back takes the offer itself; one of both wins.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use causeway_memory::{SealedMemory, SealedMemoryError};
use memmap2::{MmapOptions, MmapRaw};

use super::control_slot;

/// Words between two ranks: so many offers may be under way with one each.
pub(crate) const STATE_WORDS: u16 = 512;

/// The words, the control slots behind them, and whether the receiver waits.
const BYTES: u64 = (STATE_WORDS as u64 + control_slot::CELLS as u64 + 1) * 8;

/// What the two lowest bits of a word say of the operation whose number, which is never 0, stands above them.
/// Where none is offered, a word is 0.
const FAILED: u64 = 0;
const OFFERED: u64 = 1;
const TAKEN: u64 = 2;
const DONE: u64 = 3;

/// The words for one direction between two ranks.
#[derive(Debug)]
pub(crate) struct StateWords {
    /// It stays without the descriptor by which it was made: ranks have many peers, and few descriptors.
    mapping: MmapRaw,
}

impl StateWords {
    /// New ones, of a sender, and what the peer maps.
    pub(crate) fn new() -> Result<(Self, SealedMemory), SealedMemoryError> {
        let memory = SealedMemory::new("causeway-comm-words", BYTES)?;
        Ok((Self::map(&memory)?, memory))
    }

    /// Those of a peer that sends.
    pub(crate) fn of_peer(descriptor: OwnedFd) -> Result<Self, SealedMemoryError> {
        Self::map(&SealedMemory::check(descriptor, BYTES)?)
    }

    fn map(memory: &SealedMemory) -> Result<Self, SealedMemoryError> {
        let mapping = MmapOptions::new().len(BYTES as usize).map_raw(&memory.descriptor());
        let mapping = mapping.map_err(|cause| SealedMemoryError::System { bytes: BYTES, cause })?;
        Ok(Self { mapping })
    }

    fn cells(&self) -> &[AtomicU64] {
        let first: *const AtomicU64 = self.mapping.as_ptr().cast();
        // SAFETY: the mapping is page-aligned, has so many bytes, and stays as long as this; both processes
        // use it as atomics alone, which any bytes are.
        unsafe { core::slice::from_raw_parts(first, BYTES as usize / 8) }
    }

    fn word(&self, slot: u16) -> &AtomicU64 {
        &self.cells()[usize::from(slot % STATE_WORDS)]
    }

    /// The cells of the control slots.
    pub(crate) fn control_slots(&self) -> &[AtomicU64] {
        &self.cells()[usize::from(STATE_WORDS)..][..control_slot::CELLS]
    }

    fn waiting(&self) -> &AtomicU64 {
        &self.cells()[usize::from(STATE_WORDS) + control_slot::CELLS]
    }

    /// The receiver: it waits in a call of the MPI from now on, or has come back.
    pub(crate) fn set_waiting(&self, is_waiting: bool) {
        self.waiting().store(u64::from(is_waiting), Ordering::Release);
    }

    /// The sender: whether the receiver waits in a call of the MPI, and fetches nothing until it comes back.
    pub(crate) fn is_receiver_waiting(&self) -> bool {
        self.waiting().load(Ordering::Acquire) != 0
    }

    fn change(&self, slot: u16, operation: u64, from: u64, to: u64) -> bool {
        let number = operation << 2;
        self.replace(slot, number | from, number | to)
    }

    fn replace(&self, slot: u16, from: u64, to: u64) -> bool {
        self.word(slot).compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The sender: an operation is offered by this word, which describes no other.
    pub(crate) fn offer(&self, slot: u16, operation: u64) {
        self.word(slot).store(operation << 2 | OFFERED, Ordering::Release);
    }

    /// The sender: takes an offer back. Says whether the receiver has not taken it before.
    pub(crate) fn withdraw(&self, slot: u16, operation: u64) -> bool {
        self.replace(slot, operation << 2 | OFFERED, 0)
    }

    /// The sender: whether the receiver has the payload (`true`), or has failed to copy it; none before
    /// either.
    pub(crate) fn outcome(&self, slot: u16, operation: u64) -> Option<bool> {
        match self.word(slot).load(Ordering::Acquire) {
            word if word == operation << 2 | DONE => Some(true),
            word if word == operation << 2 | FAILED => Some(false),
            _ => None,
        }
    }

    /// The sender: whether the receiver has taken an offer, and has not come to an end with it.
    pub(crate) fn is_taken(&self, slot: u16, operation: u64) -> bool {
        self.word(slot).load(Ordering::Acquire) == operation << 2 | TAKEN
    }

    /// The sender: the word describes no operation any more.
    pub(crate) fn clear(&self, slot: u16) {
        self.word(slot).store(0, Ordering::Release);
    }

    /// The receiver: takes an offer. Says whether the sender has not taken it back before.
    pub(crate) fn take(&self, slot: u16, operation: u64) -> bool {
        self.change(slot, operation, OFFERED, TAKEN)
    }

    /// The receiver: it has the payload of an offer that it has taken.
    pub(crate) fn finish(&self, slot: u16, operation: u64) {
        self.change(slot, operation, TAKEN, DONE);
    }

    /// The receiver: it could not copy the payload of an offer that it has taken.
    pub(crate) fn fail(&self, slot: u16, operation: u64) {
        self.change(slot, operation, TAKEN, FAILED);
    }
}

/// The control slots between this rank and a peer.
#[derive(Debug)]
pub struct ControlSlots {
    pub(crate) own: Arc<StateWords>,
    pub(crate) theirs: Arc<StateWords>,
}

impl ControlSlots {
    /// How many there are.
    pub const COUNT: u16 = control_slot::CONTROL_SLOTS;

    /// The most bytes of one exchange.
    pub const MAX_BYTES: usize = control_slot::MAX_BYTES;

    /// Gives the peer at most [`MAX_BYTES`](Self::MAX_BYTES) for an exchange.
    pub fn post(&self, control_slot: u16, exchange: u64, message: &[u8]) {
        control_slot::SlotHalf::of(self.own.control_slots(), control_slot, exchange).post(exchange, message);
    }

    /// Whether the peer has given something for an exchange.
    pub fn has(&self, control_slot: u16, exchange: u64) -> bool {
        control_slot::SlotHalf::of(self.theirs.control_slots(), control_slot, exchange).has(exchange)
    }

    /// Takes what the peer gives for an exchange: whether it is there, or how many bytes it has given
    /// instead.
    ///
    /// # Errors
    /// The length that the peer gave, where it is another one.
    pub fn take(&self, control_slot: u16, exchange: u64, message: &mut [u8]) -> Result<bool, u64> {
        match control_slot::SlotHalf::of(self.theirs.control_slots(), control_slot, exchange)
            .take(exchange, message)
        {
            control_slot::Taken::NotYet => Ok(false),
            control_slot::Taken::Here => Ok(true),
            control_slot::Taken::OtherLength(bytes) => Err(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_ends() -> (StateWords, StateWords) {
        let (sender, memory) = StateWords::new().unwrap();
        let receiver = StateWords::of_peer(memory.descriptor().try_clone_to_owned().unwrap()).unwrap();
        (sender, receiver)
    }

    #[test]
    fn an_offer_is_taken_once_and_done() {
        let (sender, receiver) = two_ends();
        sender.offer(7, 3);
        assert!(!receiver.take(7, 2) && !receiver.take(6, 3), "another operation, another word");
        assert!(receiver.take(7, 3) && !receiver.take(7, 3) && !sender.withdraw(7, 3));
        assert!(sender.is_taken(7, 3) && !sender.is_taken(7, 2));
        assert_eq!(sender.outcome(7, 3), None);
        receiver.finish(7, 3);
        assert!(!sender.is_taken(7, 3));
        receiver.fail(7, 3);
        assert_eq!((sender.outcome(7, 3), sender.outcome(7, 2)), (Some(true), None));
        // What comes late for an earlier operation changes nothing.
        sender.offer(7, 9);
        receiver.finish(7, 3);
        assert!(receiver.take(7, 9));
        sender.clear(7);
        receiver.finish(7, 9);
        assert_eq!(sender.outcome(7, 9), None);
    }

    #[test]
    fn a_copy_that_fails_is_told_by_the_word() {
        let (sender, receiver) = two_ends();
        sender.offer(7, 3);
        receiver.fail(7, 3);
        assert_eq!(sender.outcome(7, 3), None, "what was not taken has not failed");
        assert!(receiver.take(7, 3));
        receiver.fail(7, 3);
        assert_eq!((sender.outcome(7, 3), sender.outcome(7, 2)), (Some(false), None));
        assert!(!sender.withdraw(7, 3) && !receiver.take(7, 3));
    }

    #[test]
    fn one_of_both_ends_gets_an_offer() {
        let (sender, receiver) = two_ends();
        for operation in 1..2000 {
            sender.offer(0, operation);
            let (taken, withdrawn) = std::thread::scope(|scope| {
                let taking = scope.spawn(|| receiver.take(0, operation));
                (sender.withdraw(0, operation), taking.join().unwrap())
            });
            assert!(taken != withdrawn, "operation {operation}");
        }
    }

    #[test]
    fn control_slots_lie_behind_the_words() {
        let (sender, receiver) = two_ends();
        sender.offer(STATE_WORDS - 1, 3);
        control_slot::SlotHalf::of(sender.control_slots(), 0, 9).post(9, b"words");
        let mut found = [0; 5];
        let taken = control_slot::SlotHalf::of(receiver.control_slots(), 0, 9).take(9, &mut found);
        assert_eq!((taken, &found), (control_slot::Taken::Here, b"words"));
        assert!(receiver.take(STATE_WORDS - 1, 3));
    }

    #[test]
    fn memory_of_another_size_is_not_taken() {
        let other = SealedMemory::new("other", BYTES + 8).unwrap();
        assert!(StateWords::of_peer(other.descriptor().try_clone_to_owned().unwrap()).is_err());
    }
}
