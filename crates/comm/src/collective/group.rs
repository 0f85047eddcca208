//! How do the ranks of a group agree, and exchange memory?
//!
//! A group is what calls together: some ranks of the job, in an order. All of its ranks make the same exchanges
//! in the same order, whatever goes wrong at one of them: who has failed says so in the next exchange, and the
//! others go on.

use core::fmt;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::captured::recording::Recording;
use crate::cuda::{self, CudaError, DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::tracer::Operation;
use crate::transfer::TransferError;
use crate::transfer::offers::OfferState;
use crate::world::World;

/// How long a rank waits for peers to fetch what they have said that they would.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of what a rank tells another one in an exchange of memory: a [`Note`], and a descriptor.
const WORD_BYTES: usize = 1 + DESCRIPTOR_BYTES;

/// Bytes of what a rank tells all others before: whether it can, and of which call it tells.
pub(super) const TERMS_BYTES: usize = 16;

/// Where 4 of them say which call is captured: 0 for none.
pub(super) const CAPTURED_AT: usize = 4;

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

/// Why a call fails at this rank.
#[derive(Debug, Error)]
pub enum CollectiveError {
    /// The caller's way to exchange words.
    #[error("the ranks could not exchange words (code {0})")]
    Exchange(i32),
    /// Ranks have called with different arguments.
    #[error(
        "rank {rank} of the group has made this call for {theirs} bytes, and this rank for {ours}: \
         all of them must give the same"
    )]
    Counts {
        /// The other one.
        rank: usize,
        /// Its bytes.
        theirs: u64,
        /// This rank's.
        ours: u64,
    },
    /// A rank captures the call, and another one does not.
    #[error(
        "rank {rank} of the group {} this call in a stream that is being captured, and this rank {}: all of \
         them must, or none",
        if *.theirs { "has made" } else { "has not made" },
        if *.theirs { "has not" } else { "has" }
    )]
    Captured {
        /// The other one.
        rank: usize,
        /// Whether it captures.
        theirs: bool,
    },
    /// A call in a graph that a rank makes otherwise.
    #[error("rank {0} of the group captures another call, or with another root, count, element or operation")]
    OtherCall(usize),
    /// Memory that cannot be a part of a graph.
    #[error(
        "the stream of this call is being captured, and not all ranks can open the memory that it uses at the \
         other ranks, as a call in a graph must: they are of one host and at most 16, their memory is of the \
         stream's context and of a kind that channel ipc or vmm opens, and the GPUs are of compute capability \
         7.0 or later; otherwise make it between the launches of graphs"
    )]
    Closed,
    /// A launch of a graph has failed.
    #[error(
        "a collective call in a graph of this group has failed: {0}. What it and later ones were to write is \
         not there"
    )]
    Graph(String),
    /// A rank has failed before.
    #[error("rank {0} of the group has failed in this call")]
    Peer(usize),
    /// Memory that cannot be opened any more.
    #[error("memory of another rank of the group that was open before cannot be opened again")]
    Reopened,
    /// A rank has offered something else than was agreed on.
    #[error("rank {0} of the group has offered other memory than this call is about")]
    Offer(usize),
    /// A rank has not fetched what it was given.
    #[error("rank {0} of the group has not fetched what this rank gives it")]
    Unfetched(usize),
    /// The driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A transfer.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

/// A range of memory on this rank's GPU: `struct causeway_comm_range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Range {
    /// Where it begins.
    pub address: u64,
    /// Its bytes; 0 for none.
    pub bytes: u64,
}

impl Range {
    /// Whether they share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        let starts_in = |one: &Self, other: &Self| {
            one.address.checked_sub(other.address).is_some_and(|before| before < other.bytes)
        };
        self.bytes > 0 && other.bytes > 0 && (starts_in(self, other) || starts_in(other, self))
    }
}

/// Exchanges words: gives so many bytes to each rank, and gets as many from each, in the order of ranks. 0, or an
/// error's code.
pub type Exchange<'a> = dyn FnMut(&[u8], &mut [u8], usize) -> i32 + 'a;

/// A group in the middle of a call.
pub struct Group<'a> {
    pub(super) world: &'a World,
    /// This rank's number in the group.
    pub me: usize,
    /// The job's ranks.
    pub(super) members: &'a [u32],
    exchange: &'a mut Exchange<'a>,
    has_failed: bool,
    /// Reductions of fewer bytes are not fetched.
    pub(super) fetched_from: u64,
    /// The call becomes a part of a graph.
    pub(super) recording: Option<Recording>,
}

impl fmt::Debug for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("me", &self.me).field("members", &self.members).finish_non_exhaustive()
    }
}

impl<'a> Group<'a> {
    /// A group of ranks of a job, of which this rank is number `me`.
    pub fn new(world: &'a World, me: usize, members: &'a [u32], exchange: &'a mut Exchange<'a>) -> Self {
        Self { world, me, members, exchange, has_failed: false, fetched_from: 0, recording: None }
    }

    /// The same, whose reductions of fewer bytes are not made where memory would have to be fetched. All ranks
    /// say the same.
    pub fn fetching_from(self, fetched_from: u64) -> Self {
        Self { fetched_from, ..self }
    }

    /// The same, for a call in a stream that is being captured.
    pub fn recorded(self, recording: Option<Recording>) -> Self {
        Self { recording, ..self }
    }

    /// How many ranks it has.
    pub fn ranks(&self) -> usize {
        self.members.len()
    }

    /// Whether all ranks can: all their memory is on GPUs and all peers are reached. All ranks get the same
    /// answer.
    ///
    /// # Errors
    /// When ranks have called with different `bytes`, or the words cannot be exchanged.
    pub fn agree(&mut self, can: bool, bytes: u64) -> Result<bool, CollectiveError> {
        let can = can && self.members.iter().all(|peer| self.world.reaches(*peer));
        let mut own = [0; TERMS_BYTES];
        own[0] = u8::from(can);
        own[CAPTURED_AT..8].copy_from_slice(&self.captured().to_le_bytes());
        own[8..].copy_from_slice(&bytes.to_le_bytes());
        let heard = self.tell(&own.repeat(self.ranks()), TERMS_BYTES)?;
        let heard = heard.as_chunks::<TERMS_BYTES>().0;
        must_be_of_one_call(heard.iter(), bytes, self.captured())?;
        Ok(heard.iter().all(|terms| terms[0] == 1))
    }

    /// Which call is captured, and 0 where none is.
    pub(super) fn captured(&self) -> u32 {
        self.recording.as_ref().map_or(0, |recording| recording.call | 1)
    }

    /// This rank has failed between two exchanges, if it has: the others hear it in the next one.
    pub fn has_failed(&mut self, has: bool) {
        self.has_failed |= has;
    }

    /// Gives each rank so many bytes, and hears as many of each.
    pub(super) fn tell(&mut self, words: &[u8], bytes: usize) -> Result<Vec<u8>, CollectiveError> {
        let mut heard = vec![0; words.len()];
        match (self.exchange)(words, &mut heard, bytes) {
            0 => Ok(heard),
            code => Err(CollectiveError::Exchange(code)),
        }
    }

    /// Gives each rank a range, and takes one from each. What this rank gives itself is copied. When it returns
    /// all that is taken is here, and the others have what was given. A rank that fails takes part all the same.
    ///
    /// # Safety
    /// All ranges are memory on this rank's GPU; those that are taken are nobody else's, and those that are given
    /// stay as they are.
    ///
    /// # Errors
    /// The first thing that goes wrong here, or that another rank has failed before.
    pub unsafe fn round(&mut self, gives: &[Range], takes: &[Range]) -> Result<(), CollectiveError> {
        let mut words = vec![0; WORD_BYTES * self.ranks()];
        let mut offers: Vec<Option<u64>> = vec![None; self.ranks()];
        for (rank, (word, range)) in words.as_chunks_mut::<WORD_BYTES>().0.iter_mut().zip(gives).enumerate() {
            if self.has_failed {
                word[0] = Note::Failed as u8;
            } else if rank != self.me && range.bytes > 0 {
                settle(range.address);
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
        let heard = self.tell(&words, WORD_BYTES)?;
        // SAFETY: as promised by the caller.
        let mut outcome = unsafe { self.keep_own(gives, takes) };
        // Each rank begins with another one, so that not all of them fetch from the first at once.
        for step in 1..self.ranks() {
            let rank = (self.me + step) % self.ranks();
            let word = &heard.as_chunks::<WORD_BYTES>().0[rank];
            // SAFETY: as promised by the caller.
            let taken = unsafe { self.take(rank, word, takes[rank]) };
            outcome = outcome.and(taken);
        }
        let given = self.wait_for(&offers);
        outcome = outcome.and(given);
        self.has_failed |= outcome.is_err();
        outcome
    }

    /// # Safety
    /// As [`round`](Self::round).
    unsafe fn keep_own(&self, gives: &[Range], takes: &[Range]) -> Result<(), CollectiveError> {
        let (from, to) = (gives[self.me], takes[self.me]);
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
            .filter(|told| told.from == self.members[rank] && told.to == self.world.rank())
            .ok_or(CollectiveError::Offer(rank))?;
        settle(to.address);
        // A range of another length is declined by the fetch, so that its rank does not wait.
        let room = if descriptor.bytes == to.bytes { to.bytes } else { 0 };
        // SAFETY: as promised by the caller.
        unsafe { self.world.fetch(&descriptor, to.address, true, room, Operation::NonBlocking) }?;
        if room == to.bytes { Ok(()) } else { Err(CollectiveError::Offer(rank)) }
    }

    fn wait_for(&self, offers: &[Option<u64>]) -> Result<(), CollectiveError> {
        let until = Instant::now() + PATIENCE;
        let mut outcome = Ok(());
        for (rank, offer) in offers.iter().enumerate() {
            let Some(number) = offer else { continue };
            let mut turn = 0_u32;
            loop {
                match self.world.offer_state(*number) {
                    OfferState::Done => break,
                    OfferState::Failed => {
                        outcome = outcome.and(Err(CollectiveError::Unfetched(rank)));
                        break;
                    }
                    OfferState::UnderWay if Instant::now() > until => {
                        return Err(CollectiveError::Unfetched(rank));
                    }
                    OfferState::UnderWay => pause(turn),
                }
                turn = turn.saturating_add(1);
            }
        }
        outcome
    }
}

/// Whether all ranks' terms are of the same call for so many bytes, and captured at all of them or at none; or
/// which are not.
pub(super) fn must_be_of_one_call<'a>(
    terms: impl Iterator<Item = &'a [u8; TERMS_BYTES]>,
    ours: u64,
    captured: u32,
) -> Result<(), CollectiveError> {
    for (rank, terms) in terms.enumerate() {
        let call = terms[CAPTURED_AT..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if (call == 0) != (captured == 0) {
            return Err(CollectiveError::Captured { rank, theirs: call != 0 });
        }
        let theirs = terms.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if theirs != ours {
            return Err(CollectiveError::Counts { rank, theirs, ours });
        }
        if call != captured {
            return Err(CollectiveError::OtherCall(rank));
        }
    }
    Ok(())
}

/// Lets others run, the longer the more.
fn pause(turn: u32) {
    match turn {
        0..200 => core::hint::spin_loop(),
        200..1000 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(20)),
    }
}

fn settle(address: u64) {
    if let Some(driver) = Driver::loaded()
        && let Some(memory) = DeviceMemory::at(driver, address)
    {
        cuda::settle(driver, &memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_that_share_a_byte() {
        let range = |address, bytes| Range { address, bytes };
        for (one, other, overlap) in [
            (range(8, 8), range(8, 8), true),
            (range(8, 8), range(15, 1), true),
            (range(8, 8), range(0, 100), true),
            (range(8, 8), range(16, 8), false),
            (range(8, 0), range(0, 100), false),
            (range(8, u64::MAX), range(0, 9), true),
        ] {
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (overlap, overlap), "{one:?} {other:?}");
        }
    }
}
