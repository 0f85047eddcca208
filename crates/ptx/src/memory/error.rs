//! Why memory could not be had or reached.

use std::io;

use thiserror::Error;

use super::sizes::MIN_RESERVATION_BYTES;

/// Device memory could not be allocated.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error(
    "{requested} bytes of device memory were requested, but {allocated} of {capacity} bytes are in use; free \
     some, or give the device more memory"
)]
pub struct OutOfMemory {
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes allocated when the request came.
    pub allocated: u64,
    /// Bytes the space may hand out in all.
    pub capacity: u64,
}

/// An access to device memory from the host was refused.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum MemoryError {
    /// Some byte of the range is not inside a live allocation.
    #[error("the {size} bytes at {address:#x} are not within one live allocation of the device")]
    OutsideAllocation {
        /// First address of the range.
        address: u64,
        /// Bytes in the range.
        size: u64,
    },
    /// The range was asked for and cannot be had.
    #[error(
        "the {size} bytes at {address:#x} are not free for an allocation at an address of the client's choice"
    )]
    NotFree {
        /// First address of the range.
        address: u64,
        /// Bytes in the range.
        size: u64,
    },
    /// The address given to `free` is not the start of a live allocation.
    #[error("{address:#x} is not the start of a live allocation, so it cannot be freed")]
    NotAllocated {
        /// The address given.
        address: u64,
    },
    /// A range that was to be mapped is not a free part of the window.
    #[error("the {size} bytes at {address:#x} are not a free part of the window in whole pages")]
    NotInWindow {
        /// First address of the range.
        address: u64,
        /// Bytes in the range.
        size: u64,
    },
    /// The system does not map or protect pages.
    #[error("the system refused to change the pages at {address:#x}")]
    Refused {
        /// First address of the range.
        address: u64,
    },
}

/// The addresses could not be reserved.
#[derive(Debug, Error)]
#[error("cannot reserve {MIN_RESERVATION_BYTES} bytes of address space: {0}; raise `ulimit -v`")]
pub struct ReservationError(pub(super) io::Error);
