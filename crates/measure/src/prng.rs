//! Numbers that follow no pattern and are the same in each run: xorshift by G. Marsaglia ("Xorshift RNGs",
//! 2003).

use crate::machine::PAGE;

/// A sequence of them.
#[derive(Debug)]
pub struct Random(u64);

impl Default for Random {
    /// Begins at a fixed number, so that a run can be repeated.
    fn default() -> Self {
        Self::beginning_at(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    /// Begins at this number, which is not 0.
    pub fn beginning_at(number: u64) -> Self {
        Self(number)
    }

    /// The next one.
    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next one, below `end`.
    pub fn next_below(&mut self, end: u32) -> u32 {
        (self.word() % u64::from(end)) as u32
    }

    /// Fills all of it.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            let value = self.word().to_ne_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
    }

    /// Changes the first bytes of each page, so that no cache of contents knows it.
    pub fn change(&mut self, bytes: &mut [u8]) {
        for page in bytes.chunks_mut(PAGE) {
            let count = page.len().min(8);
            page[..count].copy_from_slice(&self.word().to_ne_bytes()[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_changes() {
        let mut memory = vec![0; 3 * PAGE + 5];
        let mut random = Random::default();
        random.fill(&mut memory);
        let before = memory.clone();
        random.change(&mut memory);
        let pages = before.chunks(PAGE).zip(memory.chunks(PAGE));
        assert_eq!(pages.filter(|(old, new)| old != new).count(), 4);
        assert!(before.iter().filter(|byte| **byte == 0).count() < before.len() / 50);
    }
}
