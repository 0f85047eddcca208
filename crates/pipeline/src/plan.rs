//! Copy plan: its parameters and their limits.

use core::fmt;

use causeway_config::Size;

/// Commands and replies with more bulk data than this carry it as a transfer over the bulk lanes.
pub const INLINE_BYTES: usize = 64 << 10;

/// The way a copy goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the program's memory to a device.
    ToDevice,
    /// From a device to the program's memory.
    FromDevice,
}

impl Direction {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::ToDevice, Self::FromDevice];

    /// Its name, as people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ToDevice => "to-device",
            Self::FromDevice => "from-device",
        }
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How a copy is carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Staging buffers: pieces that are under way at a time.
    pub buffers: usize,
    /// Bytes of a buffer: the most that a piece has.
    pub buffer_bytes: usize,
    /// Lanes that carry a piece.
    pub lanes: usize,
    /// Threads that copy between the program's memory and staging, where the module has such a stage.
    pub threads: usize,
}

impl Plan {
    /// The most buffers.
    pub const MAX_BUFFERS: usize = 64;
    /// The smallest buffer, in bytes. What is smaller travels with the commands.
    pub const MIN_BYTES: usize = 64 << 10;
    /// The largest buffer, in bytes: the largest transfer that a worker receives into pinned memory.
    pub const MAX_BYTES: usize = 64 << 20;
    /// The most lanes.
    pub const MAX_LANES: usize = crate::lanes::MAX_LANES as usize;
    /// The most copying threads.
    pub const MAX_THREADS: usize = 64;

    /// The plan with every number at least 1 and none beyond its limit.
    #[must_use]
    pub fn within_limits(self) -> Self {
        Self {
            buffers: self.buffers.clamp(1, Self::MAX_BUFFERS),
            buffer_bytes: self.buffer_bytes.clamp(Self::MIN_BYTES, Self::MAX_BYTES),
            lanes: self.lanes.clamp(1, Self::MAX_LANES),
            threads: self.threads.clamp(1, Self::MAX_THREADS),
        }
    }
}

/// Bytes of a chunk, the unit in which lanes take the bytes of a transfer of `length` bytes that `lanes`
/// lanes carry: small enough that all lanes have work until its end, large enough that the work for a chunk
/// does not show. A quarter of a transfer is enough up to 512 KiB: what is longer is a piece of a copy as a
/// rule, whose next piece gives the other lanes work (16 MiB from a device in pieces of 2: 28 GB/s in chunks
/// of 256 KiB, 33 in chunks of 512; 16 cores, 2026-11-23). One that is `spread` is whole sooner when each
/// lane has a part of it (16 MiB to a device in pieces of 2: 28.5 GB/s in chunks of 512 KiB, 31 in chunks of
/// 256; medians of 17 rounds, the same day), and 256 KiB when they come in four parts rather than two: 1.5 and 1.9
/// GB/s to a device from pinned and pageable memory, encrypted, instead of 1.1 and 1.5 (medians of 3 rounds, 2026-11-29).
pub fn chunk_bytes(length: usize, lanes: usize, spread: bool) -> usize {
    const MIN_PIECE_BYTES: usize = 256 << 10;
    const MAX_PIECE_BYTES: usize = 1 << 20;
    if spread {
        let part = length.div_ceil(lanes.max(1)).clamp(MIN_PIECE_BYTES / 4, 2 * MIN_PIECE_BYTES);
        return part.next_multiple_of(4 << 10);
    }
    let min = (length / 4).clamp(MIN_PIECE_BYTES, 2 * MIN_PIECE_BYTES);
    length.div_ceil(2 * lanes.max(1)).clamp(min, MAX_PIECE_BYTES).next_multiple_of(MIN_PIECE_BYTES)
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Size(self.buffer_bytes as u64);
        let lanes = match self.lanes {
            1 => "1 lane".to_owned(),
            Self::MAX_LANES => "all lanes".to_owned(),
            lanes => format!("{lanes} lanes"),
        };
        let threads =
            if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        write!(f, "{}x{bytes}, {lanes}, {threads}", self.buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_give_every_lane_work() {
        let chunk = |length, lanes, spread| chunk_bytes(length, lanes, spread) >> 10;
        assert_eq!([chunk(0, 4, false), chunk(0, 4, true)], [256, 64]);
        assert_eq!([chunk(1 << 20, 4, false), chunk(1 << 20, 4, true)], [256, 256]);
        assert_eq!([chunk(2 << 20, 8, false), chunk(2 << 20, 8, true)], [512, 256]);
        assert_eq!([chunk(4 << 20, 4, false), chunk(4 << 20, 4, true)], [512, 512]);
        assert_eq!([chunk(64 << 20, 4, false), chunk(64 << 20, 4, true)], [1024, 512]);
        assert_eq!([chunk(usize::MAX, 0, false), chunk(usize::MAX, 0, true)], [1024, 512]);
    }
}
