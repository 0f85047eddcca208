//! Address ranges in use by the client's program, which address windows must avoid.
//!
//! A window is a range that client and worker both keep free. Programs reserve ranges before they use a GPU: a JVM with
//! ZGC takes terabytes from 4, 8 and 16 TiB on. The client tells its worker what is taken before the GPU is started.

use causeway_config::read::PROCESS;
use causeway_config::table::ADDRESSES_TAKEN;
use core::ops::Range;

/// More are not read.
const MAX_TAKEN: usize = 64;

/// What the client says of its program.
pub fn of_client() -> Vec<Range<u64>> {
    PROCESS.text(&ADDRESSES_TAKEN).map_or_else(Vec::new, |text| parse(&text))
}

/// Ranges of hexadecimal addresses, as in `/proc/PID/maps`, with commas between them. What makes no sense says nothing.
pub fn parse(text: &str) -> Vec<Range<u64>> {
    let range = |text: &str| {
        let (start, end) = text.split_once('-')?;
        let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16));
        Some(start.ok()?..end.ok()?)
    };
    text.split(',').take(MAX_TAKEN).filter_map(range).collect()
}

/// The first of these places, each of which is some ranges, that has nothing of what is taken; the first of all where
/// none is free.
pub fn first_free<P: Copy, R: IntoIterator<Item = Range<u64>>>(
    places: impl IntoIterator<Item = P>,
    ranges: impl Fn(P) -> R,
    taken: &[Range<u64>],
) -> Option<P> {
    let mut places = places.into_iter().peekable();
    let first = places.peek().copied();
    let overlaps = |range: Range<u64>| taken.iter().any(|one| one.start < range.end && range.start < one.end);
    places.find(|place| !ranges(*place).into_iter().any(overlaps)).or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_the_program_uses_are_passed_over() {
        let taken = parse("1000-2000,zz-1,3000,2fff-3001,5-");
        assert_eq!(taken, [0x1000..0x2000, 0x2fff..0x3001]);
        let first = |taken: &[Range<u64>]| {
            first_free([0x1800, 0x2000, 0x3000, 0x4000], |start| Some(start..start + 0x1000), taken)
        };
        assert_eq!(first(&[]), Some(0x1800));
        assert_eq!(first(&taken), Some(0x4000));
        assert_eq!(first(&[0..u64::MAX]), Some(0x1800), "none is free");
    }
}
