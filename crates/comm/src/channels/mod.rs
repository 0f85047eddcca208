//! Channels between two GPUs, and their requirements.
//!
//! A channel is a folder. Its `probe` says what a pair of ranks needs for it, or in a sentence what is
//! missing; it is pure, so that it can be asked about any pair that can be thought of.

pub(crate) mod bar;
pub(crate) mod cache;
mod channel;
mod error;
mod exchange;
mod ipc;
mod loopback;
pub(crate) mod message;
pub(crate) mod rdma;
mod staged;
pub(crate) mod staging;
mod tcp;
mod vmm;

pub use channel::{Channel, Ends, Gpu, Joined, Missing, UnknownChannel};
pub use error::TransferError;

use crate::pair::Pair;

impl Channel {
    /// Whether two ranks have this channel, or why not.
    ///
    /// # Errors
    /// What is missing.
    pub fn probe(self, pair: &Pair, ends: &Ends) -> Result<(), Missing> {
        match self {
            Self::Ipc => ipc::probe(pair, ends),
            Self::Vmm => vmm::probe(pair, ends),
            Self::Staged => staged::probe(pair, ends),
            Self::Bar => bar::probe(pair, ends),
            Self::Rdma => rdma::probe(pair, ends),
            Self::Loopback => loopback::probe(pair, ends),
            Self::Tcp => tcp::probe(pair, ends),
        }
    }
}
