//! Mappings at addresses that the caller has chosen.

/// What may be done in a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nothing.
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// One mapping of the device window.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapping {
    pub(super) size: u64,
    pub(super) access: Access,
}
