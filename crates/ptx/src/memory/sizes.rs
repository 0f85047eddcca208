//! Sizes of the reserved address space and of its parts.

/// Where the first address space of a process is placed when the kernel grants it, and nothing is said against it.
pub const PREFERRED_BASE: u64 = 0x1000_0000_0000;
/// Bytes of address (not of memory) that a space takes when the process's limits allow it: 1 TiB.
pub(super) const PREFERRED_RESERVATION: u64 = 1 << 40;
/// The smallest reservation that is still of use: 4 GiB.
pub(super) const MIN_RESERVATION_BYTES: u64 = 1 << 32;
/// Bytes of address before and behind the range that are mapped without access. Compiled code relies on them:
/// it does not check an access that is nearer than this to one that is known to be inside the range.
pub(crate) const GUARD: u64 = 64 << 10;
/// Granularity of allocations: the size of a page on every machine this crate generates code for.
pub(super) const PAGE: u64 = 4096;
