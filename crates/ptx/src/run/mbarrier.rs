//! What the 64 bits of an `mbarrier` object hold, and how arrivals change them.
//!
//! PTX leaves the layout open. Here it is, from the lowest bit on: arrivals that the phase still waits for
//! (20 bits), arrivals of the next phases (20 bits), bytes that the phase still waits for (21 bits, signed),
//! and in the highest bit the parity of the phase.

const COUNT_BITS: u32 = 20;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const BYTES_AT: u32 = 2 * COUNT_BITS;
const BYTES: u64 = (1 << 21) - 1;
const PHASE: u64 = 1 << 63;

/// The highest bit is the parity of the phase.
pub(crate) const PHASE_AT: u32 = 63;

/// The object for so many arrivals a phase, in its first phase.
pub(crate) extern "C" fn initial(count: u32) -> u64 {
    let count = u64::from(count) & COUNT;
    count | count << COUNT_BITS
}

/// Arrivals that the phase of a state still waited for.
pub(crate) extern "C" fn pending(state: u64) -> u32 {
    (state & COUNT) as u32
}

/// Whether the phase with this parity is over, or is the one before the object's first.
pub(super) fn is_over(state: u64, parity: u32) -> bool {
    (state >> PHASE_AT) as u32 != parity & 1
}

/// The object after so many arrivals, of which `dropped` will not come again, and after a change of the bytes
/// that it waits for. When neither arrivals nor bytes are left the next phase begins.
pub(crate) extern "C" fn changed(state: u64, arrivals: u32, dropped: u32, bytes: u32) -> u64 {
    let expected = (state >> COUNT_BITS & COUNT).wrapping_sub(u64::from(dropped)) & COUNT;
    let pending = (state & COUNT).wrapping_sub(u64::from(arrivals)) & COUNT;
    let bytes = (state >> BYTES_AT).wrapping_add(i64::from(bytes.cast_signed()).cast_unsigned()) & BYTES;
    if pending == 0 && bytes == 0 {
        return expected | expected << COUNT_BITS | (state ^ PHASE) & PHASE;
    }
    pending | expected << COUNT_BITS | bytes << BYTES_AT | state & PHASE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_with_its_last_arrival_and_byte_and_the_next_has_all_arrivals_but_the_dropped() {
        let first = initial(3);
        let two_left = changed(first, 1, 0, 0);
        assert_eq!((pending(first), pending(two_left), two_left >> PHASE_AT), (3, 2, 0));
        let waits_for_bytes = changed(two_left, 0, 0, 100);
        let none_left = changed(waits_for_bytes, 2, 1, 0);
        assert_eq!((pending(none_left), none_left >> PHASE_AT), (0, 0));
        let still = changed(none_left, 0, 0, 99_u32.wrapping_neg());
        assert_eq!(still >> PHASE_AT, 0);
        let next = changed(still, 0, 0, 1_u32.wrapping_neg());
        assert_eq!((pending(next), next >> PHASE_AT), (2, 1));
        assert_eq!(changed(next, 2, 0, 0), initial(2));
    }

    #[test]
    fn bytes_may_come_before_they_are_expected() {
        let early = changed(initial(1), 0, 0, 8_u32.wrapping_neg());
        assert_eq!((pending(early), early >> PHASE_AT), (1, 0));
        let expected = changed(early, 0, 0, 8);
        assert_eq!(expected, initial(1));
        assert_eq!(changed(expected, 1, 0, 0), initial(1) | PHASE);
    }
}
