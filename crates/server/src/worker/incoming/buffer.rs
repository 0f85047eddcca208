//! Buffer of received bytes: staged, leased, plain or mapped.

use crate::worker::arena::Leased;
use causeway_gpu::Staging;
use causeway_gpu::in_flight::HostMemory;
use memmap2::Mmap;
use std::borrow::Cow;
use std::sync::Arc;

/// Received bytes.
pub enum Buffer {
    /// In memory that the GPU copies from directly.
    Staged(Staging),
    /// In memory shared with the client, who may still write to it.
    Leased(Leased),
    /// In ordinary memory.
    Plain(Vec<u8>),
    /// In a file of the image cache.
    Mapped(Mmap),
    /// Anywhere, and being kept for later sessions at the same time.
    Shared(Arc<Buffer>),
}

impl Buffer {
    /// Where the bytes are.
    pub fn as_ptr(&self) -> *const u8 {
        match self {
            Self::Staged(staging) => staging.as_ptr(),
            Self::Leased(leased) => leased.as_ptr(),
            Self::Plain(bytes) => bytes.as_ptr(),
            Self::Mapped(bytes) => bytes.as_ptr(),
            Self::Shared(buffer) => buffer.as_ptr(),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Staged(staging) => staging.len(),
            Self::Leased(leased) => leased.len(),
            Self::Plain(bytes) => bytes.len(),
            Self::Mapped(bytes) => bytes.len(),
            Self::Shared(buffer) => buffer.len(),
        }
    }

    /// The bytes, for whoever interprets them: nobody else can change them.
    pub fn contents(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Staged(staging) => Cow::Borrowed(staging.as_slice()),
            Self::Leased(leased) => Cow::Owned(leased.to_vec()),
            Self::Plain(bytes) => Cow::Borrowed(bytes),
            Self::Mapped(bytes) => Cow::Borrowed(bytes),
            Self::Shared(buffer) => buffer.contents(),
        }
    }
}

// SAFETY: each of these owns its bytes, or keeps them mapped, until it is dropped.
unsafe impl HostMemory for Buffer {
    fn address(&self) -> *const u8 {
        self.as_ptr()
    }

    fn bytes(&self) -> usize {
        self.len()
    }
}
