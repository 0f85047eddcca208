//! Errors of collective calls.

use thiserror::Error;

use crate::channels::TransferError;
use crate::cuda::CudaError;

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
