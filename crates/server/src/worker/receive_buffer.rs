//! Receive buffers of device-to-host copies.

use super::arena::Credit;
use causeway_gpu::Staging;
use causeway_gpu::in_flight::{HostMemory, HostMemoryMut};
use causeway_link::Piece;

/// Where the GPU puts what a client or another worker reads.
pub enum ReceiveBuffer {
    /// In memory of this process.
    Staged(Staging),
    /// In memory shared with the reader, and what it counts for there if it may stay for long.
    Shared(Piece, Option<Credit>),
}

// SAFETY: staging owns its memory and a piece its slots, until they are dropped.
unsafe impl HostMemory for ReceiveBuffer {
    fn address(&self) -> *const u8 {
        self.address_mut()
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Shared(piece, _) => piece.len(),
        }
    }
}

// SAFETY: as above; nobody reads a piece before it is sent.
unsafe impl HostMemoryMut for ReceiveBuffer {
    fn address_mut(&self) -> *mut u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Shared(piece, _) => piece.as_ptr(),
        }
    }
}
