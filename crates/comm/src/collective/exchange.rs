//! Exchange of memory between the ranks of a group.
//!
//! Each offers what it gives, the offers are exchanged, and each fetches what it takes.

use std::time::{Duration, Instant};

use super::error::CollectiveError;
use super::group::Group;
use super::range::Range;
use crate::cuda::{self, DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::tracer::Operation;
use crate::transfer::offers::OfferState;

/// How long a rank waits for peers to fetch what they have said that they would.
const PEER_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of what a rank tells another one in an exchange of memory: a [`Note`], and a descriptor.
const WORD_BYTES: usize = 1 + DESCRIPTOR_BYTES;

/// What a rank says of the memory that it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Note {
    Nothing = 0,
    Offered = 1,
    Failed = 2,
}

impl Note {
    fn of(byte: u8) -> Self {
        match byte {
            0 => Self::Nothing,
            1 => Self::Offered,
            _ => Self::Failed,
        }
    }
}

impl Group<'_> {
    /// Gives each rank a range, and takes one from each. What this rank gives itself is copied. When it
    /// returns all that is taken is here, and the others have what was given. A rank that fails takes part
    /// all the same.
    ///
    /// # Safety
    /// All ranges are memory on this rank's GPU; those that are taken are not shared, and those that are
    /// given stay as they are.
    ///
    /// # Errors
    /// The first thing that goes wrong here, or that another rank has failed before.
    pub unsafe fn round(&mut self, sends: &[Range], receives: &[Range]) -> Result<(), CollectiveError> {
        let mut message = vec![0; WORD_BYTES * self.ranks()];
        let mut offers: Vec<Option<u64>> = vec![None; self.ranks()];
        for (rank, (word, range)) in message.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(sends).enumerate()
        {
            if self.has_failed {
                word[0] = Note::Failed as u8;
            } else if rank != self.me && range.bytes > 0 {
                synchronize(range.address);
                // Those of all ranks are in flight at a time.
                self.world.count_operation(self.members[rank], Operation::NonBlocking);
                match self.world.offer(self.members[rank], range.address, range.bytes) {
                    Some((number, descriptor)) => {
                        offers[rank] = Some(number);
                        word[0] = Note::Offered as u8;
                        word[1..].copy_from_slice(&descriptor.encode(self.world.job()));
                    }
                    None => word[0] = Note::Failed as u8,
                }
            }
        }
        let received = self.exchange_control(&message, WORD_BYTES)?;
        // SAFETY: as promised by the caller.
        let mut outcome = unsafe { self.copy_own(sends, receives) };
        // Each rank begins with another one, so that not all of them fetch from the first at once.
        for step in 1..self.ranks() {
            let rank = (self.me + step) % self.ranks();
            let word = &received.as_chunks::<WORD_BYTES>().0[rank];
            // SAFETY: as promised by the caller.
            let taken = unsafe { self.take(rank, word, receives[rank]) };
            outcome = outcome.and(taken);
        }
        let sent = self.wait_for(&offers);
        outcome = outcome.and(sent);
        self.has_failed |= outcome.is_err();
        outcome
    }

    /// # Safety
    /// As [`round`](Self::round).
    unsafe fn copy_own(&self, sends: &[Range], receives: &[Range]) -> Result<(), CollectiveError> {
        let (from, to) = (sends[self.me], receives[self.me]);
        if to.bytes == 0 {
            return Ok(());
        }
        if from.bytes != to.bytes {
            return Err(CollectiveError::Offer(self.me));
        }
        if from.address == to.address {
            return Ok(());
        }
        // SAFETY: as promised by the caller.
        Ok(unsafe { cuda::copy(to.address, from.address, to.bytes as usize) }?)
    }

    /// # Safety
    /// As [`round`](Self::round).
    unsafe fn take(&self, rank: usize, word: &[u8; WORD_BYTES], to: Range) -> Result<(), CollectiveError> {
        match (Note::of(word[0]), to.bytes) {
            (Note::Nothing, 0) => return Ok(()),
            (Note::Failed, _) => return Err(CollectiveError::Peer(rank)),
            _ => {}
        }
        let descriptor = word
            .last_chunk()
            .and_then(|bytes: &[u8; DESCRIPTOR_BYTES]| Descriptor::decode(bytes, self.world.job()));
        let descriptor = descriptor
            .filter(|other| other.from == self.members[rank] && other.to == self.world.rank())
            .ok_or(CollectiveError::Offer(rank))?;
        synchronize(to.address);
        // A range of another length is declined by the fetch, so that its rank does not wait.
        let size = if descriptor.bytes == to.bytes { to.bytes } else { 0 };
        // SAFETY: as promised by the caller.
        unsafe { self.world.fetch(&descriptor, to.address, true, size, Operation::NonBlocking) }?;
        if size == to.bytes { Ok(()) } else { Err(CollectiveError::Offer(rank)) }
    }

    fn wait_for(&self, offers: &[Option<u64>]) -> Result<(), CollectiveError> {
        let until = Instant::now() + PEER_TIMEOUT;
        let mut outcome = Ok(());
        for (rank, offer) in offers.iter().enumerate() {
            let Some(number) = offer else { continue };
            let mut attempt = 0_u32;
            loop {
                match self.world.offer_state(*number) {
                    OfferState::Done => break,
                    OfferState::Failed => {
                        outcome = outcome.and(Err(CollectiveError::Unfetched(rank)));
                        break;
                    }
                    OfferState::InFlight if Instant::now() > until => {
                        return Err(CollectiveError::Unfetched(rank));
                    }
                    OfferState::InFlight => pause(attempt),
                }
                attempt = attempt.saturating_add(1);
            }
        }
        outcome
    }
}

/// Lets others run, the longer the more.
fn pause(attempt: u32) {
    match attempt {
        0..200 => core::hint::spin_loop(),
        200..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(20)),
    }
}

fn synchronize(address: u64) {
    if let Some(driver) = Driver::loaded()
        && let Some(memory) = DeviceMemory::at(driver, address)
    {
        cuda::synchronize(driver, &memory);
    }
}
