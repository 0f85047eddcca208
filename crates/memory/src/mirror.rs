//! Memory that two processes hold: which bytes changed here, and putting in place those that changed there.
//!
//! Each end has the memory itself, which others write to as they like (the program, a kernel), and *the
//! diff base*: what both ends last agreed on. An end compares its memory with the diff base and sends the
//! lines that differ; the other end takes from them the bytes that differ from its diff base, which is the
//! same. So when the two ends have written different bytes of one line, neither loses what it wrote.

use causeway_wire::codec::{DecodeError, Decoder, Encode};
use core::slice;

/// Memory is compared in blocks of this many bytes, and sent in whole lines.
const BLOCK: usize = 4096;
/// Bytes of a line: a cache line, so that two counters of different threads travel apart.
const LINE: usize = 64;

/// Changed bytes with their addresses, as they travel.
#[derive(Debug, Default)]
pub struct Changes {
    bytes: Vec<u8>,
    /// Where the length of the last piece is in `bytes`, and the address behind that piece.
    last: Option<(usize, u64)>,
}

impl Changes {
    /// Adds the bytes at `address`.
    pub fn add(&mut self, address: u64, bytes: &[u8]) {
        if let Some((length_at, end)) = self.last
            && end == address
        {
            let range = length_at..length_at + 4;
            let length = u32::from_le_bytes(self.bytes[range.clone()].try_into().expect("four bytes"));
            if let Some(longer) = u32::try_from(bytes.len()).ok().and_then(|more| length.checked_add(more)) {
                self.bytes[range].copy_from_slice(&longer.to_le_bytes());
                self.bytes.extend_from_slice(bytes);
                self.last = Some((length_at, end + bytes.len() as u64));
                return;
            }
        }
        address.encode(&mut self.bytes);
        let length_at = self.bytes.len();
        (bytes.len() as u32).encode(&mut self.bytes);
        self.bytes.extend_from_slice(bytes);
        self.last = Some((length_at, address + bytes.len() as u64));
    }

    /// Makes what is added next a piece of its own, although it may lie right behind the last one: a piece
    /// lies in one mirror.
    pub fn separate(&mut self) {
        self.last = None;
    }

    /// Bytes so far, addresses included.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// What travels.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Empties it for the next use.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.last = None;
    }
}

/// Calls `each` with every piece of what [`Changes::as_bytes`] gave at the other end.
pub fn read_changes<'a>(bytes: &'a [u8], mut each: impl FnMut(u64, &'a [u8])) -> Result<(), DecodeError> {
    let mut input = Decoder::new(bytes);
    while input.remaining() > 0 {
        let address = input.value()?;
        let length: u32 = input.value()?;
        each(address, input.take(length as usize)?);
    }
    Ok(())
}

/// Finds what differs between `memory` and `base` from byte `start` up to `end`, calls `found` with the
/// place and the new bytes of each stretch, and brings `base` up to date. Returns where it stopped: at
/// `end`, or earlier once `found` has said `false`.
///
/// # Safety
/// `memory` must be readable for as many bytes as `base` has. Others may write to it meanwhile; then old or
/// new bytes are found, and the new ones next time.
pub unsafe fn find_changes(
    memory: *const u8,
    base: &mut [u8],
    start: usize,
    end: usize,
    mut found: impl FnMut(usize, &[u8]) -> bool,
) -> usize {
    let mut copy = [0_u8; BLOCK];
    let end = end.min(base.len());
    let mut at = start;
    while at < end {
        let length = (BLOCK - at % BLOCK).min(end - at);
        let base = &mut base[at..at + length];
        // SAFETY: inside the memory that the caller vouches for. What another thread writes at this moment is
        // compared as it comes; what is sent is taken from the copy below.
        if unsafe { slice::from_raw_parts(memory.add(at), length) } == base {
            at += length;
            continue;
        }
        // SAFETY: the caller has `memory` readable for as many bytes as `base` has, and the copy has room for
        // a block.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(memory.add(at), length) };
        let mut is_equal = true;
        let mut line = 0;
        while line < length {
            let differs = |line: usize, base: &[u8]| {
                let line = line..(line + LINE).min(length);
                copy[line.clone()] != base[line]
            };
            if !differs(line, base) {
                line += LINE;
                continue;
            }
            let first = line;
            while line < length && differs(line, base) {
                line += LINE;
            }
            let line_range = first..line.min(length);
            base[line_range.clone()].copy_from_slice(&copy[line_range.clone()]);
            is_equal &= found(at + first, &copy[line_range]);
        }
        at += length;
        if !is_equal {
            break;
        }
    }
    at
}

/// Puts those bytes of `new` into `memory` that differ from `base`, and brings `base` up to date.
///
/// # Panics
/// When `base` and `new` differ in length.
///
/// # Safety
/// `memory` must be writable for as many bytes as `new` has. Others may write to other bytes of it meanwhile.
pub unsafe fn merge_changes(memory: *mut u8, base: &mut [u8], new: &[u8]) {
    assert_eq!(base.len(), new.len(), "the diff base covers what is new");
    const WORD: usize = 8;
    let words = new.len() / WORD * WORD;
    for at in (0..words).step_by(WORD) {
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes[at..at + WORD].try_into().expect("eight bytes"));
        let difference = word(new) ^ word(base);
        if difference == 0 {
            continue;
        }
        let differs = |byte: usize| difference.to_ne_bytes()[byte] != 0;
        if (0..WORD).all(differs) {
            // SAFETY: inside the memory that the caller vouches for, of any alignment.
            unsafe { memory.add(at).cast::<[u8; WORD]>().write_unaligned(word(new).to_ne_bytes()) };
        } else {
            for byte in (0..WORD).filter(|byte| differs(*byte)) {
                // SAFETY: inside the memory that the caller vouches for, of any alignment.
                unsafe { memory.add(at + byte).write(new[at + byte]) };
            }
        }
    }
    for at in words..new.len() {
        if new[at] != base[at] {
            // SAFETY: inside the memory that the caller vouches for, of any alignment.
            unsafe { memory.add(at).write(new[at]) };
        }
    }
    base.copy_from_slice(new);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends what changed in `here` and puts it into `there`.
    fn exchange(here: &mut (Vec<u8>, Vec<u8>), there: &mut (Vec<u8>, Vec<u8>)) -> usize {
        const BASE: u64 = 0x7000;
        let mut changes = Changes::default();
        let length = here.0.len();
        // SAFETY: the memory has the length of the base.
        let stopped = unsafe {
            find_changes(here.0.as_ptr(), &mut here.1, 0, length, |at, bytes| {
                changes.add(BASE + at as u64, bytes);
                true
            })
        };
        assert_eq!(stopped, length);
        read_changes(changes.as_bytes(), |address, bytes| {
            let at = (address - BASE) as usize;
            let base = &mut there.1[at..at + bytes.len()];
            // SAFETY: the range lies inside the memory, which the slice of the base has shown.
            unsafe { merge_changes(there.0.as_mut_ptr().add(at), base, bytes) };
        })
        .unwrap();
        changes.len()
    }

    #[test]
    fn both_ends_keep_what_they_wrote_even_in_one_line() {
        let size = 3 * BLOCK + 37;
        let mut host = (vec![0_u8; size], vec![0_u8; size]);
        let mut device = (vec![0_u8; size], vec![0_u8; size]);
        for at in (0..size).step_by(3) {
            host.0[at] = 1;
        }
        for at in (1..size).step_by(3) {
            device.0[at] = 2;
        }
        exchange(&mut host, &mut device);
        exchange(&mut device, &mut host);
        assert_eq!(host.0, device.0);
        assert!((0..size).all(|at| host.0[at] == [1, 2, 0][at % 3]));
        assert_eq!((exchange(&mut host, &mut device), exchange(&mut device, &mut host)), (0, 0));
    }

    #[test]
    fn only_changed_lines_travel_and_neighbours_travel_together() {
        let size = 4 * BLOCK;
        let mut host = (vec![0_u8; size], vec![0_u8; size]);
        let mut device = host.clone();
        host.0[BLOCK - 1] = 1;
        host.0[BLOCK] = 1;
        host.0[3 * BLOCK + 5] = 1;
        assert_eq!(exchange(&mut host, &mut device), 2 * 12 + 3 * LINE);
        assert_eq!(host.0, device.0);
    }

    #[test]
    fn a_search_stops_when_told_and_goes_on_from_there() {
        let memory = vec![1_u8; 3 * BLOCK];
        let mut base = vec![0_u8; 3 * BLOCK];
        // SAFETY: the memory has the length of the base.
        let stopped = unsafe { find_changes(memory.as_ptr(), &mut base, 0, 3 * BLOCK, |_, _| false) };
        assert_eq!(stopped, BLOCK);
        assert!(base[..BLOCK].iter().all(|byte| *byte == 1) && base[BLOCK] == 0);
    }

    #[test]
    fn pieces_that_touch_are_one_unless_they_are_separated() {
        let mut changes = Changes::default();
        changes.add(100, &[1, 2]);
        changes.add(102, &[3]);
        changes.separate();
        changes.add(103, &[4]);
        let mut pieces = Vec::new();
        read_changes(changes.as_bytes(), |address, bytes| pieces.push((address, bytes.to_vec()))).unwrap();
        assert_eq!(pieces, [(100, vec![1, 2, 3]), (103, vec![4])]);
    }

    #[test]
    fn senseless_changes_are_refused() {
        let mut changes = Changes::default();
        changes.add(1, &[1, 2, 3]);
        for length in 1..changes.len() {
            assert!(read_changes(&changes.as_bytes()[..length], |_, _| {}).is_err());
        }
    }
}
