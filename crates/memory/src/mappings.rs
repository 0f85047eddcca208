//! Memory mappings of this process (`/proc/self/maps`), and the files behind them.

use causeway_sync::descriptors::above_stdio;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

/// A mapping of this process, or the part of one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<usize>,
    /// Whether it may be read, written and executed.
    pub access: [bool; 3],
    /// Whether others see what is written to it (`MAP_SHARED`).
    pub is_shared: bool,
    /// Where it begins in its file.
    pub offset: u64,
    /// Major and minor number of the device that its file lies on.
    pub device: (u32, u32),
    /// The number of its file there; 0 for memory without one.
    pub inode: u64,
    /// What the system calls the file.
    pub path: Vec<u8>,
}

impl Mapping {
    /// What a line of `/proc/self/maps` says.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let start = rest.iter().position(|byte| *byte != b' ')?;
            let length = rest[start..].iter().position(|byte| *byte == b' ').unwrap_or(rest.len() - start);
            let (field, after) = rest[start..].split_at(length);
            rest = after;
            str::from_utf8(field).ok()
        };
        let hex = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = field()?.split_once('-')?;
        let flags = field()?.as_bytes();
        let offset = hex(field()?)?;
        let (major, minor) = field()?.split_once(':')?;
        let inode = field()?.parse().ok()?;
        let [read, write, execute, kind] = *flags else { return None };
        Some(Self {
            range: hex(start)? as usize..hex(end)? as usize,
            access: [read == b'r', write == b'w', execute == b'x'],
            is_shared: kind == b's',
            offset,
            device: (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?),
            inode,
            path: rest.trim_ascii().to_vec(),
        })
    }

    /// The part of it that lies in `range`, if any does.
    fn part(mut self, range: &Range<usize>) -> Option<Self> {
        let (start, end) = (self.range.start.max(range.start), self.range.end.min(range.end));
        if start >= end {
            return None;
        }
        // Memory without a file has no place in one.
        self.offset = if self.inode == 0 { 0 } else { self.offset + (start - self.range.start) as u64 };
        self.range = start..end;
        Some(self)
    }

    /// Whether `next` goes on where this ends, in the same file and with the same rights.
    fn is_continued_by(&self, next: &Self) -> bool {
        let offset = if self.inode == 0 { 0 } else { self.offset + self.range.len() as u64 };
        let is_same = (self.access, self.is_shared, self.device, self.inode)
            == (next.access, next.is_shared, next.device, next.inode);
        is_same && self.range.end == next.range.start && offset == next.offset
    }
}

/// The parts of mappings that lie in `range`, in order; neighbours that are alike are one.
///
/// # Errors
/// When the system does not say.
pub fn within(range: Range<usize>) -> io::Result<Vec<Mapping>> {
    find(BufReader::new(above_stdio(File::open("/proc/self/maps")?)?), &range)
}

/// What the kernel notes of the memory in `range` besides: the pairs of letters of `VmFlags` in
/// `/proc/self/smaps`, each once.
///
/// # Errors
/// When the system does not say.
pub fn flags_within(range: &Range<usize>) -> io::Result<BTreeSet<[u8; 2]>> {
    find_flags(BufReader::new(above_stdio(File::open("/proc/self/smaps")?)?), range)
}

fn find_flags(lines: impl BufRead, range: &Range<usize>) -> io::Result<BTreeSet<[u8; 2]>> {
    let mut found = BTreeSet::new();
    let mut is_inside = false;
    for line in lines.split(b'\n') {
        let line = line?;
        if let Some(mapping) = Mapping::parse(&line) {
            if mapping.range.start >= range.end {
                break;
            }
            is_inside = mapping.range.end > range.start;
        } else if let (true, Some(flags)) = (is_inside, line.strip_prefix(b"VmFlags:")) {
            found.extend(flags.split(|byte| *byte == b' ').filter_map(|flag| <[u8; 2]>::try_from(flag).ok()));
        }
    }
    Ok(found)
}

/// Bytes of this process that are pinned where they are for devices or for system calls to come, in the
/// kernel's count: by network cards and `io_uring`, for instance.
///
/// # Errors
/// When the system does not say.
pub fn pinned_bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"));
    let number = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    number.map(|kib| kib << 10).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn find(lines: impl BufRead, range: &Range<usize>) -> io::Result<Vec<Mapping>> {
    let mut found: Vec<Mapping> = Vec::new();
    for line in lines.split(b'\n') {
        let Some(mapping) = Mapping::parse(&line?) else { continue };
        if mapping.range.start >= range.end {
            break;
        }
        let Some(part) = mapping.part(range) else { continue };
        match found.last_mut() {
            Some(last) if last.is_continued_by(&part) => last.range.end = part.range.end,
            _ => found.push(part),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"\
00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon
7f0000000000-7f0000004000 rw-s 00002000 00:01 1049  /memfd:two words (deleted)
7f0000004000-7f0000008000 rw-s 00006000 00:01 1049  /memfd:two words (deleted)
7f0000008000-7f000000a000 rw-p 00000000 00:00 0
7f000000a000-7f000000b000 r--p 00000000 00:00 0   [anon:name]
";

    fn within(start: usize, end: usize) -> Vec<Mapping> {
        find(MAPS, &(0x7f00_0000_0000 + start..0x7f00_0000_0000 + end)).unwrap()
    }

    #[test]
    fn parts_of_one_file_are_one_and_begin_where_they_were_asked_for() {
        let [part] = within(0x1000, 0x5000).try_into().unwrap();
        assert_eq!(part.range, 0x7f00_0000_1000..0x7f00_0000_5000);
        assert_eq!((part.offset, part.device, part.inode), (0x3000, (0, 1), 1049));
        assert_eq!((part.access, part.is_shared), ([true, true, false], true));
        assert_eq!(part.path, b"/memfd:two words (deleted)");
    }

    #[test]
    fn what_differs_stays_apart_and_gaps_are_seen() {
        assert_eq!(within(0x7000, 0xb000).len(), 3);
        let [private] = within(0x9000, 0xa000).try_into().unwrap();
        assert_eq!((private.is_shared, private.inode, private.offset), (false, 0, 0));
        assert_eq!(within(0xb000, 0xc000), []);
        assert_eq!(within(0xa800, 0xc000)[0].range.end, 0x7f00_0000_b000);
    }

    #[test]
    fn flags_are_those_of_the_mappings_that_were_asked_for() {
        let smaps = b"\
00001000-00003000 rw-p 00000000 00:00 0
Size:                  8 kB
VmFlags: rd wr mr lo
00003000-00005000 rw-p 00000000 00:00 0
VmFlags: rd wr dc
00006000-00007000 rw-p 00000000 00:00 0
VmFlags: rd gd
";
        let flags = |range| find_flags(&smaps[..], &range).unwrap();
        assert_eq!(flags(0x2000..0x3000), [*b"rd", *b"wr", *b"mr", *b"lo"].into());
        assert_eq!(flags(0x2000..0x5000), [*b"rd", *b"wr", *b"mr", *b"lo", *b"dc"].into());
        assert_eq!(flags(0x5000..0x6000), BTreeSet::new());
        let local = 0_u8;
        let at = &raw const local as usize;
        assert!(flags_within(&(at..at + 1)).unwrap().contains(b"wr"));
        assert!(pinned_bytes().is_ok());
    }

    #[test]
    fn this_process_has_its_own_stack_and_code_mapped() {
        let local = 0_u8;
        let at = &raw const local as usize;
        let [stack] = super::within(at..at + 1).unwrap().try_into().unwrap();
        assert_eq!((stack.access[0], stack.access[1], stack.is_shared), (true, true, false));
    }
}
