//! Layout of the shared segment. Pure arithmetic.
//!
//! ```text
//! page 0      words of both directions: indexes and futexes, each on cache lines of its own
//! ...         entries: announcements and returns, client to worker, then worker to client
//! ...         bytes of frames, client to worker, then worker to client
//! 2 MiB * n   arena for transfers from the client, then arena for transfers from the worker
//! ```

use causeway_config::table::SHM_STAGING_DEFAULT;
use causeway_transport::slots::{SLOT, STAGING_LIMITS};
use thiserror::Error;

/// Bytes of a ring for frames; a batch leaves when it has 64 KiB.
pub const RING: usize = 1 << 20;

/// Bytes of the staging arena, both directions together, unless `CAUSEWAY_SHM_STAGING` says otherwise.
/// Sixteen pieces of a long copy fit into each half; untouched parts cost nothing.
pub const DEFAULT_STAGING: usize = SHM_STAGING_DEFAULT as usize;

/// What parts of the arena begin at multiples of: large pages, and what the GPU registers at once.
const ALIGNMENT: usize = 2 << 20;

/// Distance of words that different processors write: two cache lines, since processors fetch pairs.
pub(super) const LINE: usize = 128;

const PAGE: usize = 4096;

/// Bytes of an announcement and of a return.
pub(super) const ANNOUNCEMENT: usize = 5 * 8;
pub(super) const RETURN: usize = 8;

/// How large the parts are; what the worker tells the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Slots for transfers from the client.
    pub upload_slots: u32,
    /// Slots for transfers from the worker.
    pub download_slots: u32,
}

/// The layout cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a staging arena of {upload} + {download} slots is not one that this program creates")]
pub struct BadLayout {
    upload: u32,
    download: u32,
}

/// Who writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the client to the worker.
    Up,
    /// From the worker to the client.
    Down,
}

/// Where the parts of one direction begin, in bytes from the start of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) words_offset: usize,
    pub(super) announcements: usize,
    pub(super) returns: usize,
    /// Entries in each of the two, a power of two and at least as many as there are slots.
    pub(super) entries: usize,
    pub(super) frames: usize,
    pub(super) arena: usize,
    pub(super) slots: u32,
}

impl Layout {
    /// Two equal halves of about `bytes`, within [`STAGING_LIMITS`].
    pub fn halves(bytes: usize) -> Self {
        let slots = (bytes.clamp(STAGING_LIMITS.0, STAGING_LIMITS.1) / 2 / SLOT) as u32;
        Self { upload_slots: slots, download_slots: slots }
    }

    /// The layout that a peer states, if it can be.
    pub fn checked(upload: u32, download: u32) -> Result<Self, BadLayout> {
        let (min, max) = ((STAGING_LIMITS.0 / 2 / SLOT) as u32, (STAGING_LIMITS.1 / 2 / SLOT) as u32);
        let fits = |slots| (min..=max).contains(&slots);
        if fits(upload) && fits(download) {
            Ok(Self { upload_slots: upload, download_slots: download })
        } else {
            Err(BadLayout { upload, download })
        }
    }

    /// Bytes of the whole memory.
    pub fn bytes(&self) -> usize {
        let down = self.parts(Direction::Down);
        (down.arena + down.slots as usize * SLOT).next_multiple_of(ALIGNMENT)
    }

    pub(super) fn parts(&self, direction: Direction) -> Parts {
        let entry_bytes = |slots: u32| {
            (slots.next_power_of_two() as usize * (ANNOUNCEMENT + RETURN)).next_multiple_of(PAGE)
        };
        let (up, down) = (entry_bytes(self.upload_slots), entry_bytes(self.download_slots));
        let frames = PAGE + up + down;
        let arena = (frames + 2 * RING).next_multiple_of(ALIGNMENT);
        let upload_arena = (self.upload_slots as usize * SLOT).next_multiple_of(ALIGNMENT);
        let (words_offset, announcements, frames, arena, slots) = match direction {
            Direction::Up => (0, PAGE, frames, arena, self.upload_slots),
            Direction::Down => {
                (PAGE / 2, PAGE + up, frames + RING, arena + upload_arena, self.download_slots)
            }
        };
        let entries = slots.next_power_of_two() as usize;
        Parts {
            words_offset,
            announcements,
            returns: announcements + entries * ANNOUNCEMENT,
            entries,
            frames,
            arena,
            slots,
        }
    }
}

/// The words of one direction, each on a line of its own, in the order in which they lie there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Word {
    /// Bytes of frames written and read so far.
    FramesWritten,
    FramesRead,
    /// Announcements written and read so far.
    Announced,
    Taken,
    /// Returns written and read so far.
    Returned,
    Collected,
    /// What the receiver of frames is doing: the futex that it sleeps on.
    Receiver,
    /// The futex on which the sender of frames waits for room in the ring.
    Sender,
    /// The futex of the thread that takes announcements while the receiver is busy.
    Aside,
    /// The futex on which the sender of transfers waits for slots.
    SlotAllocator,
}

const _: () = assert!((Word::SlotAllocator as usize + 1) * LINE <= PAGE / 2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap() {
        for layout in [
            Layout::halves(0),
            Layout::halves(DEFAULT_STAGING),
            Layout::halves(usize::MAX),
            Layout::checked(100, 9).unwrap(),
        ] {
            let (up, down) = (layout.parts(Direction::Up), layout.parts(Direction::Down));
            let mut spans = Vec::new();
            for parts in [up, down] {
                assert!(parts.entries.is_power_of_two() && parts.entries >= parts.slots as usize);
                spans.push((parts.words_offset, PAGE / 2));
                spans.push((parts.announcements, parts.entries * ANNOUNCEMENT));
                spans.push((parts.returns, parts.entries * RETURN));
                spans.push((parts.frames, RING));
                spans.push((parts.arena, parts.slots as usize * SLOT));
                assert!(parts.arena.is_multiple_of(ALIGNMENT));
            }
            spans.sort_unstable();
            for pair in spans.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?} of {layout:?}");
            }
            let (start, length) = spans[spans.len() - 1];
            assert!(start + length <= layout.bytes());
        }
    }

    #[test]
    fn layouts_that_cannot_be_are_refused() {
        for (upload, download) in [(0, 8), (8, 0), (7, 8), (8, u32::MAX)] {
            assert!(Layout::checked(upload, download).is_err());
        }
        let Layout { upload_slots, download_slots } = Layout::halves(DEFAULT_STAGING);
        assert_eq!(Layout::checked(upload_slots, download_slots), Ok(Layout::halves(DEFAULT_STAGING)));
    }
}
