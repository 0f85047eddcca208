//! Memory that is in a file for now: which bytes, and where in the file.

/// Bytes of a file that belong to an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) offset: u64,
}

/// What an address space has in a file instead of in memory.
#[derive(Debug)]
pub struct SwappedOut {
    pub(super) extents: Vec<Extent>,
    pub(super) end: u64,
}

impl SwappedOut {
    /// Where its part of the file ends.
    pub fn end(&self) -> u64 {
        self.end
    }
}
