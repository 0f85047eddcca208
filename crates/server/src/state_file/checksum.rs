//! Checksum of a state file: the sum of its records' BLAKE3 hashes, whatever their order.
//!
//! It finds damage. Against forgery it does nothing: a state is believed no more than what a client says.

use super::error::StateFileError;

/// The sum so far.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Checksum {
    sums: [u64; LANES],
    records: u64,
}

/// 64-bit parts of a hash, each of which has its own sum.
const LANES: usize = 4;

/// Bytes of the last record.
const CHECKSUM_SIZE: usize = (LANES + 1) * 8;

impl Checksum {
    /// Of one record.
    pub(super) fn of(tag: u8, body: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[tag]).update(&(body.len() as u64).to_le_bytes()).update(body);
        let hash = hasher.finalize();
        let mut sums = [0; LANES];
        for (sum, part) in sums.iter_mut().zip(hash.as_bytes().as_chunks::<8>().0) {
            *sum = u64::from_le_bytes(*part);
        }
        Self { sums, records: 1 }
    }

    /// Adds that of other records.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            *sum = sum.wrapping_add(more);
        }
        self.records += other.records;
    }

    /// As the last record has it.
    pub(super) fn to_bytes(self) -> [u8; CHECKSUM_SIZE] {
        let mut bytes = [0; CHECKSUM_SIZE];
        for (slot, word) in
            bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.sums.into_iter().chain([self.records]))
        {
            *slot = word.to_le_bytes();
        }
        bytes
    }

    /// Compares it with that of all records, as the last one says.
    ///
    /// # Errors
    /// When that is another one.
    pub(super) fn verify(&self, last: &[u8]) -> Result<(), StateFileError> {
        if last == self.to_bytes() {
            Ok(())
        } else {
            Err(StateFileError::Damaged("its checksum is another one".to_owned()))
        }
    }
}
