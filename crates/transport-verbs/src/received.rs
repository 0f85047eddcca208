//! Received frames: where their bytes are.

/// Where bytes of frames lie.
pub enum FrameLocation {
    /// In a receive, by its number; then their offset is that in the receives' buffer.
    InReceive(usize),
    /// In a range of slots, by the first one; then it is that in the arena.
    InSlots(u32),
}

/// Bytes of frames that have come.
pub struct Filled {
    pub lies: FrameLocation,
    pub at: usize,
    pub end: usize,
}

impl Filled {
    /// Whether they keep a receive from being posted.
    pub fn is_in_receive(&self) -> bool {
        matches!(self.lies, FrameLocation::InReceive(_))
    }
}
