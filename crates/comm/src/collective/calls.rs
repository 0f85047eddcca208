//! Collective calls that only move data, and the exchange of memory between ranks that they are made of.
//!
//! Each call first has the ranks agree. It gives `false` at all ranks, and has done nothing, where not all of
//! them can: where memory is not on a GPU, or peers are not reached.
//!
//! In an exchange each rank offers what it gives, the offers are exchanged, and each fetches what it takes.

use std::time::{Duration, Instant};

use super::group::{CollectiveError, Group};
use super::memory::Range;
use crate::collective::kernels::is_on_gpu;
use crate::cuda::{self, DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::tracer::Operation;
use crate::transfer::offers::OfferState;

/// How long a rank waits for peers to fetch what they have said that they would.
const FETCH_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of what a rank tells another one in an exchange of memory: a [`Note`], and a descriptor.
const NOTE_BYTES: usize = 1 + DESCRIPTOR_BYTES;

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
        let mut message = vec![0; NOTE_BYTES * self.ranks()];
        let mut offers: Vec<Option<u64>> = vec![None; self.ranks()];
        for (rank, (word, range)) in message.as_chunks_mut::<NOTE_BYTES>().0.iter_mut().zip(sends).enumerate()
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
        let received = self.exchange_control(&message, NOTE_BYTES)?;
        // SAFETY: the caller's ranges are memory on this rank's GPU, and those that are received into are not
        // shared.
        let mut outcome = unsafe { self.copy_own(sends, receives) };
        // Each rank begins with another one, so that not all of them fetch from the first at once.
        for step in 1..self.ranks() {
            let rank = (self.me + step) % self.ranks();
            let word = &received.as_chunks::<NOTE_BYTES>().0[rank];
            // SAFETY: the caller's ranges are memory on this rank's GPU, and those that are received into are
            // not shared.
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
        // SAFETY: the caller's range is memory on this rank's GPU, which is not shared.
        Ok(unsafe { cuda::copy(to.address, from.address, to.bytes as usize) }?)
    }

    /// # Safety
    /// As [`round`](Self::round).
    unsafe fn take(&self, rank: usize, word: &[u8; NOTE_BYTES], to: Range) -> Result<(), CollectiveError> {
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
        // SAFETY: the caller's range is memory on this rank's GPU, which is not shared.
        unsafe { self.world.fetch(&descriptor, to.address, true, size, Operation::NonBlocking) }?;
        if size == to.bytes { Ok(()) } else { Err(CollectiveError::Offer(rank)) }
    }

    fn wait_for(&self, offers: &[Option<u64>]) -> Result<(), CollectiveError> {
        let until = Instant::now() + FETCH_TIMEOUT;
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

/// Each rank gives each one a range, and takes one from each; a range of no bytes where there is nothing. All
/// ranks give the same `bytes`, of which the caller says what they are.
///
/// # Safety
/// The ranges are valid, no other code uses those that are taken, and no range overlaps one that is taken,
/// but for a rank's own, which may be the same.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
pub unsafe fn exchange(
    group: &mut Group<'_>,
    sends: &[Range],
    receives: &[Range],
    bytes: u64,
) -> Result<bool, CollectiveError> {
    let fits = sends.iter().chain(receives).all(|range| range.bytes == 0 || is_on_gpu(range.address));
    let is_sent = |(rank, range): (usize, &Range)| rank != group.me && range.bytes > 0;
    let mut starts: Vec<u64> =
        sends.iter().enumerate().filter(|send| is_sent(*send)).map(|(_, range)| range.address).collect();
    starts.dedup();
    let fits = fits && starts.into_iter().all(|address| group.can_send(address));
    if !group.agree(fits, bytes)? {
        return Ok(false);
    }
    if group.recording.is_some() {
        // SAFETY: the caller's ranges stay valid and nobody else's for each launch of the graph.
        return unsafe { group.record_round(sends, receives) }.map(|()| true);
    }
    // SAFETY: the caller's ranges are valid, and no other code uses those that are received into, nor do they
    // overlap others.
    unsafe { group.round(sends, receives) }.map(|()| true)
}

/// Everybody gets what the root has.
///
/// # Safety
/// The memory has so many bytes, and no other code uses it.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
pub unsafe fn broadcast(
    group: &mut Group<'_>,
    buffer: u64,
    bytes: u64,
    root: usize,
) -> Result<bool, CollectiveError> {
    let (me, ranks) = (group.me, group.ranks());
    let whole = Range { address: buffer, bytes };
    let (mut sends, mut receives) = (vec![Range::default(); ranks], vec![Range::default(); ranks]);
    if me == root {
        sends = vec![whole; ranks];
        receives[me] = whole;
    } else {
        receives[root] = whole;
    }
    // SAFETY: the caller's ranges are valid, and no other code uses those that are received into, nor do they
    // overlap others.
    unsafe { exchange(group, &sends, &receives, bytes) }
}

/// A block of so many bytes for each rank, one behind the other.
fn blocks(start: u64, bytes: u64, ranks: usize) -> Vec<Range> {
    (0..ranks as u64).map(|rank| Range { address: start + rank * bytes, bytes }).collect()
}

/// Everybody gets the blocks of all ranks, of so many bytes each. `from` may be this rank's block of `to`.
///
/// # Safety
/// `from` is valid for a block, and `to` for one of each rank, and no other code uses it.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
pub unsafe fn allgather(
    group: &mut Group<'_>,
    from: u64,
    to: u64,
    bytes: u64,
) -> Result<bool, CollectiveError> {
    let ranks = group.ranks();
    let sends = vec![Range { address: from, bytes }; ranks];
    // SAFETY: the caller's ranges are valid, and no other code uses those that are received into, nor do they
    // overlap others.
    unsafe { exchange(group, &sends, &blocks(to, bytes, ranks), bytes) }
}

/// Each rank gives each one a block of so many bytes. `from` and `to` are apart; where they are the same, the
/// call cannot be made.
///
/// # Safety
/// Both are valid for a block of each rank, and no other code uses `to`.
///
/// # Errors
/// What goes wrong at this rank, or has at another one.
pub unsafe fn alltoall(
    group: &mut Group<'_>,
    from: u64,
    to: u64,
    bytes: u64,
) -> Result<bool, CollectiveError> {
    let ranks = group.ranks();
    // Null is on no GPU, and so all ranks hear that this one cannot.
    let from = if from == to { 0 } else { from };
    // SAFETY: the caller's ranges are valid, and no other code uses those that are received into, nor do they
    // overlap others.
    unsafe { exchange(group, &blocks(from, bytes, ranks), &blocks(to, bytes, ranks), bytes) }
}
