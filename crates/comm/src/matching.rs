//! Message matching, with messages that carry no bytes.
//!
//! The rule is told in the book (`docs/src/concepts/messages.md`), and checked over all interleavings of
//! small programs by `tests/matching_model/main.rs`. It leaves all matching to the MPI: a message whose bytes
//! lie on a GPU is a [`Descriptor`] of fixed length that travels on the user's communicator and tag. What is
//! here is the rest: how much room a receive must give the MPI ([`receive_size`]), what has come
//! ([`classify`]), and where messages wait that a probe had to take out of the MPI's queue ([`Unexpected`]).

mod descriptor;
mod unexpected;

pub use descriptor::{DESCRIPTOR_BYTES, Descriptor, Source};
pub use unexpected::{Pattern, Unexpected};

use crate::job::Job;

/// Bytes of memory that a receive with so many bytes of the user's must give the MPI, which may have a
/// descriptor for it.
pub fn receive_size(size: u64) -> u64 {
    size.max(DESCRIPTOR_BYTES as u64)
}

/// What has come for a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Arrived {
    /// The message itself, of so many bytes, which fit.
    Payload(u64),
    /// The message itself, which is longer than the user's memory.
    TooLong(u64),
    /// Word of a message that is to be fetched. It may be longer than the user's memory.
    Elsewhere(Descriptor),
}

/// What the `length` bytes are that came for a receive with `size` bytes of the user's. `start` holds the
/// first of them, up to [`DESCRIPTOR_BYTES`]. `own` is the rank that receives.
pub fn classify(job: &Job, own: u32, start: &[u8], length: u64, size: u64) -> Arrived {
    let is_of_that_length = length == DESCRIPTOR_BYTES as u64;
    match is_of_that_length.then(|| Descriptor::decode(start, job)).flatten() {
        Some(descriptor) if descriptor.to == own => Arrived::Elsewhere(descriptor),
        _ if length > size => Arrived::TooLong(length),
        _ => Arrived::Payload(length),
    }
}
