//! What is measured?

use core::fmt;
use core::str::FromStr;

use serde::Serialize;

/// What a figure is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Half a round trip.
    Latency,
    /// Bytes in a second in one direction, with a window of messages under way.
    Bandwidth,
    /// Messages in a second in the same loop.
    Rate,
    /// Bytes in a second in both directions together.
    Bidirectional,
    /// A bare copy within the GPU, and the wait for its end.
    CopyLatency,
    /// As many bare copies as a window has messages, one behind the other.
    CopyBandwidth,
}

impl Quantity {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Latency,
        Self::Bandwidth,
        Self::Rate,
        Self::Bidirectional,
        Self::CopyLatency,
        Self::CopyBandwidth,
    ];

    /// What the measuring program calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "rate",
            Self::Bidirectional => "bidirectional",
            Self::CopyLatency => "copy_latency",
            Self::CopyBandwidth => "copy_bandwidth",
        }
    }

    /// The unit of its figures.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::CopyLatency => "us",
            Self::Bandwidth | Self::Bidirectional | Self::CopyBandwidth => "GB/s",
            Self::Rate => "M/s",
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::Rate => "message rate",
            Self::Bidirectional => "bandwidth in both directions",
            Self::CopyLatency => "time of a bare copy",
            Self::CopyBandwidth => "bandwidth of bare copies",
        })
    }
}

/// Where the bytes of messages lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// On the GPU, by `cuMemAlloc`.
    Gpu,
    /// On the GPU, by `cuMemCreate`, with a descriptor to be had of it.
    Exportable,
    /// On the GPU, by `cuMemAllocAsync`.
    Pool,
    /// Managed memory.
    Managed,
    /// Pinned memory of the host.
    Pinned,
    /// Ordinary memory of the host.
    Pageable,
}

impl Memory {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Gpu, Self::Exportable, Self::Pool, Self::Managed, Self::Pinned, Self::Pageable];

    /// Its name on command lines and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Exportable => "exportable",
            Self::Pool => "pool",
            Self::Managed => "managed",
            Self::Pinned => "pinned",
            Self::Pageable => "pageable",
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names nothing of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName;

impl FromStr for Quantity {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|quantity| quantity.name() == text).ok_or(UnknownName)
    }
}

impl FromStr for Memory {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        Self::ALL.into_iter().find(|memory| memory.name() == text).ok_or(UnknownName)
    }
}

/// What one figure is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Case {
    /// What of.
    pub quantity: Quantity,
    /// Where the bytes lie.
    pub memory: Memory,
    /// Bytes of a message.
    pub bytes: u64,
}
