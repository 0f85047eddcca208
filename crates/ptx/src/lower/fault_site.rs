//! What can go wrong where compiled code looks.

/// What a fault block reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultSite {
    /// An access of so many bytes to the address the block is given.
    Access(u32),
    Stack,
    CallTarget,
    BranchTarget,
}
