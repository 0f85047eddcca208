//! Check of the bytes that have arrived.

use crate::endpoint::Joined;
use crate::traffic::parts;

impl Joined<'_> {
    /// Clears what the peer writes to, so that what is found there afterwards has come since.
    pub fn forget(&self, bytes: u64) {
        for (index, part) in parts(bytes, self.queue_pairs.len()).into_iter().enumerate() {
            // SAFETY: the part lies in the buffer; no request is under way.
            unsafe { self.endpoint.sink().add(self.segment_offset(index)).write_bytes(0, part as usize) };
        }
    }

    /// The digest of what is sent and read.
    pub fn digest_of_source(&self, bytes: u64) -> u64 {
        self.digest_of_parts(self.endpoint.source(), bytes)
    }

    /// The digest of what has come.
    pub fn digest_of_sink(&self, bytes: u64) -> u64 {
        self.digest_of_parts(self.endpoint.sink(), bytes)
    }

    fn digest_of_parts(&self, half: *const u8, bytes: u64) -> u64 {
        let parts = parts(bytes, self.queue_pairs.len()).into_iter().enumerate();
        parts.fold(BEGINNING, |state, (index, part)| {
            // SAFETY: the part lies in this half of the buffer.
            update_digest(state, unsafe { half.add(self.segment_offset(index)) }, part)
        })
    }
}

/// Where the FNV-1a hash begins.
const BEGINNING: u64 = 0xcbf2_9ce4_8422_2325;

/// The FNV-1a hash of bytes that nobody writes to now, taken as words where they last.
pub(crate) fn digest(memory: *const u8, bytes: u64) -> u64 {
    update_digest(BEGINNING, memory, bytes)
}

/// The hash of what was hashed already and these bytes behind it.
fn update_digest(mut state: u64, memory: *const u8, bytes: u64) -> u64 {
    let mix = |state: u64, value: u64| (state ^ value).wrapping_mul(0x0000_0100_0000_01b3);
    let words = bytes as usize / 8;
    for word in 0..words {
        // SAFETY: the word lies in the memory.
        state = mix(state, unsafe { memory.cast::<u64>().add(word).read_unaligned() });
    }
    for offset in words * 8..bytes as usize {
        // SAFETY: the byte lies there, too.
        state = mix(state, u64::from(unsafe { memory.add(offset).read_volatile() }));
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_makes_another_digest() {
        let mut bytes = [7_u64; 9];
        let whole = digest(bytes.as_ptr().cast(), 67);
        bytes[8] ^= 1 << 16;
        assert_ne!(digest(bytes.as_ptr().cast(), 67), whole);
        bytes[8] ^= 1 << 16 | 1 << 32;
        assert_eq!(digest(bytes.as_ptr().cast(), 67), whole, "the bytes behind the 67th do not count");
    }
}
