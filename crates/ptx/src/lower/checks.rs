//! Addresses that were found to be inside the address space already, so that accesses near them need no
//! check.
//!
//! Compilers unroll loops and access structures as one base register with many constant offsets. Once one
//! address of such a group has passed its check, the others are inside the range too or at most [`GUARD`]
//! bytes outside of it, where there is nothing but pages without access: touching those faults without being
//! asked. What remains is the alignment, which follows from the first address's where the distance is a
//! multiple of the access's size.

use std::collections::HashMap;

use cranelift_codegen::ir::Value;

use crate::memory::GUARD;

/// The checks that every way to the current instruction has passed.
#[derive(Debug, Default)]
pub(super) struct PassedChecks {
    /// For each base the check with the greatest alignment.
    by_base: HashMap<Value, Check>,
}

/// An access of `size` bytes at a base with `offset` added, found to be inside and aligned to `size`.
#[derive(Debug, Clone, Copy)]
struct Check {
    offset: i64,
    size: u32,
}

impl PassedChecks {
    /// Notes that an access of `size` bytes at `base + offset` passed its check.
    pub(super) fn add(&mut self, base: Value, offset: i64, size: u32) {
        let check = Check { offset, size };
        let known = self.by_base.entry(base).or_insert(check);
        if size > known.size {
            *known = check;
        }
    }

    /// Whether an access of `size` bytes at `base + offset` would pass, or end in pages without access.
    pub(super) fn cover(&self, base: Value, offset: i64, size: u32) -> bool {
        self.by_base.get(&base).is_some_and(|known| {
            let Some(distance) = offset.checked_sub(known.offset) else { return false };
            let near = distance.unsigned_abs().saturating_add(u64::from(size)) <= GUARD;
            near && size <= known.size && distance % i64::from(size) == 0
        })
    }

    /// Forgets everything: the next instruction can be reached in other ways.
    pub(super) fn clear(&mut self) {
        self.by_base.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_covers_aligned_accesses_near_it() {
        let (base, other) = (Value::from_u32(1), Value::from_u32(2));
        let mut checks = PassedChecks::default();
        checks.add(base, 8, 4);
        for (offset, size, covered) in [
            (8, 4, true),
            (12, 4, true),
            (-4, 4, true),
            (9, 1, true),
            (10, 4, false),
            (8, 8, false),
            (16, 16, false),
            (8 + GUARD as i64 - 4, 4, true),
            (8 + GUARD as i64, 4, false),
            (8 - GUARD as i64, 4, false),
            (i64::MIN, 4, false),
            (i64::MAX, 1, false),
        ] {
            assert_eq!(checks.cover(base, offset, size), covered, "{size} bytes at {offset}");
            assert!(!checks.cover(other, offset, size));
        }
        checks.add(base, 16, 16);
        checks.add(base, 0, 4);
        assert!(checks.cover(base, 32, 16) && checks.cover(base, 12, 4));
        checks.clear();
        assert!(!checks.cover(base, 16, 16));
    }
}
