//! Cases: the settings of one measurement.

use core::fmt;

use causeway_measure::sizes::Size;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// A message into a receive that the peer has posted.
    Send,
    /// A read of the peer's memory.
    Read,
    /// A write to the peer's memory.
    Write,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Send => "send",
            Self::Read => "RDMA read",
            Self::Write => "RDMA write",
        })
    }
}

/// What is asked of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// GB/s (1e9 bytes a second) of messages one behind the other.
    Bandwidth,
    /// Microseconds: of a read until it is done, of a send or write half of the time until the peer's answer
    /// is here.
    Latency,
}

impl Quantity {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Bandwidth, Self::Latency];

    /// In which unit.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "GB/s",
            Self::Latency => "us",
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bandwidth => "bandwidth",
            Self::Latency => "latency",
        })
    }
}

/// How the two ends are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Queue pairs, over which each message is split.
    pub queue_pairs: u32,
    /// Requests that a queue pair may have under way.
    pub capacity: u32,
    /// Payload of a packet in bytes: the path MTU.
    pub mtu: u32,
}

impl Setting {
    /// The most queue pairs.
    pub const MAX_QUEUE_PAIRS: u32 = 64;
    /// The most requests under way in each of them.
    pub const MAX_CAPACITY: u32 = 4096;

    /// Path MTUs.
    pub const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

    /// Whether both ends can be asked for it.
    pub fn is_sane(self) -> bool {
        (1..=Self::MAX_QUEUE_PAIRS).contains(&self.queue_pairs)
            && (1..=Self::MAX_CAPACITY).contains(&self.capacity)
            && Self::MTUS.contains(&self.mtu)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.queue_pairs == 1 { "" } else { "s" };
        write!(f, "{} queue pair{plural}, capacity {}, MTU {}", self.queue_pairs, self.capacity, self.mtu)
    }
}

/// One thing that is measured with each setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// What moves the bytes.
    pub operation: Operation,
    /// What is asked of it.
    pub quantity: Quantity,
    /// Bytes of a message.
    pub bytes: u64,
}

/// The longest message.
pub const MAX_MESSAGE_BYTES: u64 = 8 << 20;

impl Case {
    /// Messages in one repetition. For bandwidth 16 MiB of them, but at least 8 and at most 1024: several
    /// times the deepest queue that is swept. For latency 4 MiB of them, 8 to 64 round trips: the first ones
    /// after a pause are slower, and the one in the middle must not be one of these.
    pub fn messages(self) -> u32 {
        let (bytes, min, max) = match self.quantity {
            Quantity::Bandwidth => (16 << 20, 8, 1024),
            Quantity::Latency => (4 << 20, 8, 64),
        };
        (bytes / self.bytes.max(1)).clamp(min, max) as u32
    }

    /// Whether ends look for marks in their memory that the peer writes, where older ones must not lie.
    pub fn waits_for_marks(self) -> bool {
        self.operation == Operation::Write && self.quantity == Quantity::Latency
    }

    /// The sample of a repetition in which a message, or a round trip, took so many seconds, in the
    /// quantity's unit.
    pub fn sample(self, seconds: f64) -> f64 {
        match (self.quantity, self.operation) {
            (Quantity::Bandwidth, _) => self.bytes as f64 / seconds / 1e9,
            (Quantity::Latency, Operation::Read) => seconds * 1e6,
            (Quantity::Latency, _) => seconds / 2.0 * 1e6,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}, {}", self.quantity, self.operation, Size(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repetition_is_long_enough_for_the_deepest_queue_and_never_endless() {
        let case = |quantity, bytes| Case { operation: Operation::Write, quantity, bytes };
        for power in 1..=23 {
            let case = case(Quantity::Bandwidth, 1 << power);
            assert!((8..=1024).contains(&case.messages()), "{case}");
            assert!(case.bytes * u64::from(case.messages()) <= 64 << 20, "{case}");
        }
        assert_eq!(case(Quantity::Bandwidth, 64).messages(), 1024);
        assert_eq!(case(Quantity::Latency, 2).messages(), 64);
        assert_eq!(case(Quantity::Latency, 256 << 10).messages(), 16);
        assert_eq!(case(Quantity::Latency, MAX_MESSAGE_BYTES).messages(), 8);
    }

    #[test]
    fn samples_are_in_their_units() {
        let case = |operation, quantity| Case { operation, quantity, bytes: 1 << 20 };
        let rate = case(Operation::Send, Quantity::Bandwidth).sample(1.048_576e-3);
        assert!((rate - 1.0).abs() < 1e-9, "1 MiB in 1.05 ms is 1 GB/s, not {rate}");
        // A round trip of 20 us: a read takes all of it, a message in one direction half.
        assert!((case(Operation::Read, Quantity::Latency).sample(20e-6) - 20.0).abs() < 1e-9);
        assert!((case(Operation::Send, Quantity::Latency).sample(20e-6) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn settings_that_no_device_has_are_told_apart() {
        let setting = Setting { queue_pairs: 2, capacity: 128, mtu: 4096 };
        assert!(setting.is_sane());
        for other in [
            Setting { queue_pairs: 0, ..setting },
            Setting { queue_pairs: 65, ..setting },
            Setting { capacity: 0, ..setting },
            Setting { capacity: 1 << 20, ..setting },
            Setting { mtu: 1500, ..setting },
        ] {
            assert!(!other.is_sane(), "{other}");
        }
    }
}
