//! Queue pair settings: path, timeouts and retries.

use core::ffi::c_int;
use core::fmt;

/// Bytes of a packet's payload on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathMtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl PathMtu {
    /// All of them, the smallest first.
    pub const ALL: [Self; 5] = [Self::Mtu256, Self::Mtu512, Self::Mtu1024, Self::Mtu2048, Self::Mtu4096];

    /// The one of so many bytes.
    pub fn from_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }

    /// How many bytes it is.
    pub fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// From the number that libibverbs has for it; the nearest one where the number is unknown.
    pub(crate) fn from_code(code: c_int) -> Self {
        Self::ALL[(code.clamp(1, 5) - 1) as usize]
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.bytes(), f)
    }
}

/// How a queue pair behaves towards the path and the peer. The names are those of the InfiniBand
/// specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Payload of a packet.
    pub mtu: PathMtu,
    /// How long a packet may stay unanswered: 4.096 us times two to this power; 0 waits for ever, 31 is the
    /// most.
    pub timeout: u8,
    /// How often an unanswered packet is sent again, 0 to 7.
    pub retries: u8,
    /// How often a message is sent again that found no receive posted, 0 to 6; 7 means without end.
    pub rnr_retries: u8,
    /// How long the peer is asked to wait then; a code of the specification's table, 12 is 0.64 ms.
    pub rnr_timer: u8,
    /// Reads that may be under way, at most what this device can start.
    pub reads: u8,
    /// Reads of the peer that are answered at a time, at most what this device can answer.
    pub answered_reads: u8,
    /// InfiniBand's service level, 0 to 15.
    pub service_level: u8,
    /// RoCE's traffic class (the IP header's DSCP and ECN bits).
    pub traffic_class: u8,
}

impl Settings {
    /// What suits a path with packets of `mtu` bytes: 67 ms until a packet is sent again, seven times, so
    /// that a dead path is known after half a second to two seconds.
    pub fn new(mtu: PathMtu) -> Self {
        Self {
            mtu,
            timeout: 14,
            retries: 7,
            rnr_retries: 6,
            rnr_timer: 12,
            reads: 16,
            answered_reads: 16,
            service_level: 0,
            traffic_class: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_are_the_five_of_the_specification() {
        let bytes: Vec<u32> = PathMtu::ALL.iter().map(|mtu| mtu.bytes()).collect();
        assert_eq!(bytes, [256, 512, 1024, 2048, 4096]);
        assert_eq!(PathMtu::from_bytes(2048), Some(PathMtu::Mtu2048));
        assert_eq!(PathMtu::from_bytes(1500), None);
        assert_eq!(PathMtu::from_code(9), PathMtu::Mtu4096);
    }
}
