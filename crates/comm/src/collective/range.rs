//! Range of memory that a call sends or receives. Pure.

/// A range of memory on this rank's GPU: `struct causeway_comm_range`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Range {
    /// Where it begins.
    pub address: u64,
    /// Its bytes; 0 for none.
    pub bytes: u64,
}

impl Range {
    /// Whether they share a byte.
    pub fn overlaps(&self, other: &Self) -> bool {
        let starts_in = |one: &Self, other: &Self| {
            one.address.checked_sub(other.address).is_some_and(|before| before < other.bytes)
        };
        self.bytes > 0 && other.bytes > 0 && (starts_in(self, other) || starts_in(other, self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_overlap_that_share_a_byte() {
        let range = |address, bytes| Range { address, bytes };
        for (one, other, overlap) in [
            (range(8, 8), range(8, 8), true),
            (range(8, 8), range(15, 1), true),
            (range(8, 8), range(0, 100), true),
            (range(8, 8), range(16, 8), false),
            (range(8, 0), range(0, 100), false),
            (range(8, u64::MAX), range(0, 9), true),
        ] {
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (overlap, overlap), "{one:?} {other:?}");
        }
    }
}
