//! Layout of a board in shared memory.
//!
//! A head of 128 bytes, then a byte a rank that says whether the rank is here, then, from a multiple of 128
//! on, a slot of 128 bytes a rank: 129 bytes a rank. Who looks for ranks reads the bytes alone, and slots
//! only of those that are here, so that memory is used by those who are here and nobody else: a job of a
//! million ranks with eight on this host takes 1 MB and a page or two, of 129 MB of addresses.

use super::slot::SLOT_BYTES;

/// Bytes of the head.
pub(super) const HEAD_BYTES: usize = 128;

const MAGIC: [u8; 8] = *b"CWboard1";

/// Where the marks of the ranks begin.
pub(super) const MARKS_AT: u64 = HEAD_BYTES as u64;

/// Whether a rank is here, in one byte: 0 when it is not, otherwise its epoch in the lower seven bits, never
/// 0, and whether it is about to move in the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(pub u8);

impl Mark {
    /// The rank is not here.
    pub const ABSENT: Self = Self(0);

    const MOVING: u8 = 0x80;

    /// A rank that is here in this epoch.
    pub fn present(epoch: u32, moving: bool) -> Self {
        // The remainder is below 127.
        let number = (epoch % 127) as u8 + 1;
        Self(if moving { number | Self::MOVING } else { number })
    }

    /// Whether the rank lets what is under way come to an end and sends nothing new.
    pub fn is_moving(self) -> bool {
        self.0 & Self::MOVING != 0
    }
}

/// A board's layout for so many ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) ranks: u32,
}

impl Layout {
    /// Where a rank's mark lies.
    pub(super) fn mark(self, rank: u32) -> u64 {
        MARKS_AT + u64::from(rank)
    }

    /// Where a rank's slot lies.
    pub(super) fn slot(self, rank: u32) -> u64 {
        let slots = (MARKS_AT + u64::from(self.ranks)).next_multiple_of(SLOT_BYTES as u64);
        slots + u64::from(rank) * SLOT_BYTES as u64
    }

    /// Bytes of the whole board.
    pub(super) fn bytes(self) -> u64 {
        self.slot(self.ranks)
    }

    /// The layout of the board that begins so, if it is one.
    pub(super) fn of_head(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes(core::array::from_fn(|index| head[at + index]));
        let is_board = head[..8] == MAGIC && number(20) == SLOT_BYTES as u32;
        is_board.then(|| Self { ranks: number(16) })
    }

    /// The head of a job's board.
    pub(super) fn head(self, tag: u64, epoch: u32) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&tag.to_le_bytes());
        head[16..20].copy_from_slice(&self.ranks.to_le_bytes());
        head[20..24].copy_from_slice(&(SLOT_BYTES as u32).to_le_bytes());
        head[24..28].copy_from_slice(&epoch.to_le_bytes());
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_has_129_bytes_a_rank() {
        let million = Layout { ranks: 1_000_000 };
        assert_eq!(million.bytes() - million.slot(0), 128_000_000);
        assert_eq!(million.bytes(), 129_000_192);
        for ranks in [1, 127, 128, 129, 1_000_000] {
            let layout = Layout { ranks };
            assert!(layout.slot(0) > layout.mark(ranks - 1));
            assert!(layout.bytes() <= u64::from(ranks) * 129 + 256);
        }
    }

    #[test]
    fn a_board_is_known_by_its_head() {
        let head = Layout { ranks: 7 }.head(3, 9);
        assert_eq!(Layout::of_head(&head), Some(Layout { ranks: 7 }));
        for at in [0, 7, 20] {
            let mut other = head;
            other[at] ^= 1;
            assert_eq!(Layout::of_head(&other), None);
        }
        assert_eq!(Layout::of_head(&[0; HEAD_BYTES]), None);
    }

    #[test]
    fn marks_say_epoch_and_movement() {
        assert_eq!(Mark::ABSENT.0, 0);
        for epoch in [0, 1, 126, 127, u32::MAX] {
            let (here, moving) = (Mark::present(epoch, false), Mark::present(epoch, true));
            assert!(here != Mark::ABSENT && !here.is_moving() && moving.is_moving());
            assert_ne!(here, Mark::present(epoch.wrapping_add(1), false));
        }
    }
}
