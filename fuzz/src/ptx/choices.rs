//! Choices made by bytes, so that a fuzzer steers them, or a seed.

/// Bytes that choose; when they are used up, every choice is the first.
pub struct Choices<'b> {
    bytes: &'b [u8],
}

impl<'b> Choices<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes }
    }

    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    /// A number below `limit`, which is at most 65536.
    pub fn below(&mut self, limit: usize) -> usize {
        let low = usize::from(self.byte());
        let value = if limit > 256 { low << 8 | usize::from(self.byte()) } else { low };
        value % limit
    }

    pub fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// True once in `count`, but never when the bytes are used up.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == count - 1
    }

    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// So many bytes that look random and are the same for the same seed.
    pub fn from_seed(seed: u64, count: usize) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..count)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }
}
