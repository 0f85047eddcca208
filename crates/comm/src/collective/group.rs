//! Group of ranks: agreement on a call, and the errors of calls.
//!
//! A group is what calls together: some ranks of the job, in an order. All of its ranks make the same
//! exchanges in the same order, whatever goes wrong at one of them: who has failed says so in the next
//! exchange, and the others go on.

use core::fmt;

use thiserror::Error;

use super::captured::recording::Recording;
use crate::channels::TransferError;
use crate::cuda::CudaError;
use crate::world::World;

/// Why a call fails at this rank.
#[derive(Debug, Error)]
pub enum CollectiveError {
    /// The caller's way to exchange words.
    #[error("the ranks could not exchange control data (code {0})")]
    Exchange(i32),
    /// Ranks have called with different arguments.
    #[error(
        "rank {rank} of the group has made this call for {theirs} bytes, and this rank for {ours}: all ranks \
         must pass the same number"
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
        "a collective call in a graph of this group has failed: {0}. The results of this call and later ones \
         are missing"
    )]
    Graph(String),
    /// A rank has failed before.
    #[error("rank {0} of the group has failed in this call")]
    Peer(usize),
    /// Memory that cannot be opened any more.
    #[error("cannot open memory of another rank of the group again")]
    Reopened,
    /// A rank has offered something else than was agreed on.
    #[error("rank {0} of the group has offered memory that does not belong to this call")]
    Offer(usize),
    /// A rank has not fetched what it was given.
    #[error("rank {0} of the group has not fetched the data from this rank")]
    Unfetched(usize),
    /// The driver.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A transfer.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

/// Bytes of what a rank tells all others before: whether it can, and of which call it tells.
pub(super) const SIGNATURE_BYTES: usize = 16;

/// Where 4 of them say which call is captured: 0 for none.
pub(super) const CAPTURED_AT: usize = 4;

/// Exchanges words: gives so many bytes to each rank, and gets as many from each, in the order of ranks. 0,
/// or an error's code.
pub type Exchange<'a> = dyn FnMut(&[u8], &mut [u8], usize) -> i32 + 'a;

/// A group in the middle of a call.
pub struct Group<'a> {
    pub(super) world: &'a World,
    /// This rank's number in the group.
    pub me: usize,
    /// The job's ranks.
    pub(super) members: &'a [u32],
    exchange: &'a mut Exchange<'a>,
    pub(super) has_failed: bool,
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

    /// The same, whose reductions of fewer bytes are not made where memory would have to be fetched. All
    /// ranks say the same.
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
        let can = can && self.members.iter().all(|peer| self.world.is_reachable(*peer));
        let mut own = [0; SIGNATURE_BYTES];
        own[0] = u8::from(can);
        own[CAPTURED_AT..8].copy_from_slice(&self.captured().to_le_bytes());
        own[8..].copy_from_slice(&bytes.to_le_bytes());
        let received = self.exchange_control(&own.repeat(self.ranks()), SIGNATURE_BYTES)?;
        let received = received.as_chunks::<SIGNATURE_BYTES>().0;
        must_be_of_one_call(received.iter(), bytes, self.captured())?;
        Ok(received.iter().all(|signatures| signatures[0] == 1))
    }

    /// Whether this rank can send what begins at this address: the kernels that a captured call becomes read it
    /// where it lies, and others need an offer.
    pub(super) fn can_send(&self, address: u64) -> bool {
        self.recording.is_some() || self.world.can_offer(address)
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
    pub(super) fn exchange_control(
        &mut self,
        message: &[u8],
        bytes: usize,
    ) -> Result<Vec<u8>, CollectiveError> {
        let mut received = vec![0; message.len()];
        match (self.exchange)(message, &mut received, bytes) {
            0 => Ok(received),
            code => Err(CollectiveError::Exchange(code)),
        }
    }
}

/// Whether all ranks' terms are of the same call for so many bytes, and captured at all of them or at none;
/// or which are not.
pub(super) fn must_be_of_one_call<'a>(
    signatures: impl Iterator<Item = &'a [u8; SIGNATURE_BYTES]>,
    ours: u64,
    captured: u32,
) -> Result<(), CollectiveError> {
    for (rank, signatures) in signatures.enumerate() {
        let call = signatures[CAPTURED_AT..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if (call == 0) != (captured == 0) {
            return Err(CollectiveError::Captured { rank, theirs: call != 0 });
        }
        let theirs = signatures.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if theirs != ours {
            return Err(CollectiveError::Counts { rank, theirs, ours });
        }
        if call != captured {
            return Err(CollectiveError::OtherCall(rank));
        }
    }
    Ok(())
}
