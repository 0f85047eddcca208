//! Where do bytes of frames lie that have come?

/// Where bytes of frames lie.
pub enum Lies {
    /// In a receive, by its number; then their offset is that in the receives' buffer.
    InReceive(usize),
    /// In a run of slots, by the first one; then it is that in the arena.
    InSlots(u32),
}

/// Bytes of frames that have come.
pub struct Filled {
    pub lies: Lies,
    pub at: usize,
    pub end: usize,
}

impl Filled {
    /// Whether they keep a receive from being posted.
    pub fn is_in_receive(&self) -> bool {
        matches!(self.lies, Lies::InReceive(_))
    }
}
