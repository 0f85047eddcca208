//! Address ranges in use where a server would reserve windows.

use causeway_config::table::ADDRESSES_TAKEN;
use core::ops::Range;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::sync::OnceLock;

/// Where servers place windows: from 16 to 64 TiB. Programs, their libraries and stacks lie above.
const WINDOW_RANGE: Range<u64> = 1 << 44..1 << 46;

/// What lies nearer together than this is one range: no window fits between.
const GAP: u64 = 1 << 30;

/// Maximum number of ranges that are sent.
const MAX_TAKEN: usize = 64;

/// The ranges as a variable for the worker, with its value; nothing if there are none, as in most programs.
///
/// It is found out once: windows that servers have come to have later are no obstacle to those of other servers.
pub fn variable() -> Option<(String, String)> {
    static FOUND: OnceLock<String> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let maps = std::fs::File::open("/proc/self/maps");
        maps.map_or_else(|_| String::new(), |maps| text(&ranges(BufReader::new(maps))))
    });
    (!found.is_empty()).then(|| (ADDRESSES_TAKEN.name.to_owned(), found.clone()))
}

/// The ranges of a list of mappings that lie where servers place windows.
fn ranges(maps: impl BufRead) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for line in maps.lines().map_while(Result::ok) {
        let mut ends = line.split([' ', '-']).map(|text| u64::from_str_radix(text, 16));
        let (Some(Ok(start)), Some(Ok(end))) = (ends.next(), ends.next()) else { continue };
        let found = start.max(WINDOW_RANGE.start)..end.min(WINDOW_RANGE.end);
        if found.is_empty() {
            continue;
        }
        let is_full = ranges.len() == MAX_TAKEN;
        match ranges.last_mut() {
            Some(last) if is_full || found.start - last.end < GAP => last.end = found.end,
            _ => ranges.push(found),
        }
    }
    ranges
}

fn text(ranges: &[Range<u64>]) -> String {
    let mut text = String::new();
    for range in ranges {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string does not fail.
        let _ = write!(text, "{comma}{:x}-{:x}", range.start, range.end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_where_windows_would_lie_are_told() {
        let maps = "\
00400000-00401000 r-xp 00000000 00:00 0 program
040000000000-048000000000 ---p 00000000 00:00 0
0fffffff0000-100080000000 ---p 00000000 00:00 0
1000a0000000-1000b0000000 rw-p 00000000 00:00 0
108000000000-108000001000 rw-p 00000000 00:00 0
555555554000-555555555000 r-xp 00000000 00:00 0 program
7ffff7fc5000-7ffff7fff000 r-xp 00000000 00:00 0 [vdso]
";
        let found = ranges(maps.as_bytes());
        assert_eq!(text(&found), "100000000000-1000b0000000,108000000000-108000001000");
        assert_eq!(text(&ranges(&b"no list\n"[..])), "");
        let many: String = (0..2 * MAX_TAKEN as u64)
            .map(|number| {
                format!(
                    "{:x}-{:x} rw-p\n",
                    WINDOW_RANGE.start + (number << 32),
                    WINDOW_RANGE.start + (number << 32) + 4096
                )
            })
            .collect();
        let found = ranges(many.as_bytes());
        assert_eq!(
            (found.len(), found[MAX_TAKEN - 1].end),
            (MAX_TAKEN, WINDOW_RANGE.start + (127 << 32) + 4096)
        );
    }
}
