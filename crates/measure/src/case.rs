//! Cases: what can be measured.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::sizes::Size;

/// One thing to measure, with its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "case")]
pub enum Case {
    /// Copies of this many bytes.
    Copy {
        /// From where to where.
        path: Path,
        /// Bytes of one copy.
        bytes: u64,
    },
    /// A call, or a call and the wait for it.
    Wait {
        /// Which.
        wait: Wait,
    },
    /// Launches of a kernel that has this many bytes of arguments, many in a row.
    Launches {
        /// Bytes of arguments: 0, or at least 8 and a multiple of 8.
        arguments: u64,
    },
}

/// From where to where bytes are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Path {
    /// `cuMemcpyHtoD` from memory of the program.
    PageableToDevice,
    /// `cuMemcpyDtoH` into memory of the program.
    PageableFromDevice,
    /// `cuMemcpyHtoD` from pinned memory.
    PinnedToDevice,
    /// `cuMemcpyDtoH` into pinned memory.
    PinnedFromDevice,
    /// `cuMemcpyHtoDAsync` from pinned memory, [`ROW_OF_COPIES`] in a row.
    AsyncToDevice,
    /// `cuMemcpyDtoHAsync` into pinned memory, [`ROW_OF_COPIES`] in a row.
    AsyncFromDevice,
    /// `cuMemcpyDtoD` within the first device.
    WithinDevice,
    /// `cuMemcpyPeer` from the first device to the second.
    Peer,
}

/// How many asynchronous copies are issued before they are waited for.
pub const ROW_OF_COPIES: u64 = 16;

/// The largest asynchronous copy: a row of them takes sixteen times as much pinned memory.
pub const MAX_ASYNC_BYTES: u64 = 64 << 20;

/// How many kernels are launched before they are waited for.
pub const ROW_OF_LAUNCHES: u64 = 1000;

/// Bytes of arguments with which launches are measured. 4096 is the most that every device takes.
pub const ARGUMENTS: [u64; 5] = [0, 64, 256, 1024, 4096];

/// Bytes of the copies among the [`Wait`]s.
pub const SMALL_COPY: u64 = 8;

/// A call, or a call and the wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// A copy of [`SMALL_COPY`] bytes from memory of the program.
    CopyPageableToDevice,
    /// The same into memory of the program.
    CopyPageableFromDevice,
    /// The same from pinned memory.
    CopyPinnedToDevice,
    /// The same into pinned memory.
    CopyPinnedFromDevice,
    /// A launch of an empty kernel, then `cuCtxSynchronize`.
    LaunchAndSynchronize,
    /// `cuEventRecord`, then `cuEventSynchronize`.
    RecordAndSynchronize,
    /// `cuStreamQuery` of a stream that is idle.
    QueryIdle,
    /// `cuStreamSynchronize` of a stream that is idle.
    SynchronizeIdle,
}

impl Wait {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::CopyPageableToDevice,
        Self::CopyPageableFromDevice,
        Self::CopyPinnedToDevice,
        Self::CopyPinnedFromDevice,
        Self::LaunchAndSynchronize,
        Self::RecordAndSynchronize,
        Self::QueryIdle,
        Self::SynchronizeIdle,
    ];

    /// The copy that this is, if it is one.
    pub fn copy(self) -> Option<Path> {
        match self {
            Self::CopyPageableToDevice => Some(Path::PageableToDevice),
            Self::CopyPageableFromDevice => Some(Path::PageableFromDevice),
            Self::CopyPinnedToDevice => Some(Path::PinnedToDevice),
            Self::CopyPinnedFromDevice => Some(Path::PinnedFromDevice),
            _ => None,
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::CopyPageableToDevice => "8 B pageable to the device",
            Self::CopyPageableFromDevice => "8 B pageable from the device",
            Self::CopyPinnedToDevice => "8 B pinned to the device",
            Self::CopyPinnedFromDevice => "8 B pinned from the device",
            Self::LaunchAndSynchronize => "launch, synchronise",
            Self::RecordAndSynchronize => "event record, synchronise",
            Self::QueryIdle => "query an idle stream",
            Self::SynchronizeIdle => "synchronise an idle stream",
        })
    }
}

/// Which side of the copy the host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From host to device.
    ToDevice,
    /// From device to host.
    FromDevice,
    /// Between devices, or within one.
    Device,
}

impl Path {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::PageableToDevice,
        Self::PageableFromDevice,
        Self::PinnedToDevice,
        Self::PinnedFromDevice,
        Self::AsyncToDevice,
        Self::AsyncFromDevice,
        Self::WithinDevice,
        Self::Peer,
    ];

    /// Which side the host has.
    pub fn direction(self) -> Direction {
        match self {
            Self::PageableToDevice | Self::PinnedToDevice | Self::AsyncToDevice => Direction::ToDevice,
            Self::PageableFromDevice | Self::PinnedFromDevice | Self::AsyncFromDevice => {
                Direction::FromDevice
            }
            Self::WithinDevice | Self::Peer => Direction::Device,
        }
    }

    /// How many copies are issued before they are waited for.
    pub fn row(self) -> u64 {
        if matches!(self, Self::AsyncToDevice | Self::AsyncFromDevice) { ROW_OF_COPIES } else { 1 }
    }

    /// Whether copies of this size are measured.
    pub fn takes(self, bytes: u64) -> bool {
        self.row() == 1 || bytes <= MAX_ASYNC_BYTES
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::PageableToDevice => "pageable to the device",
            Self::PageableFromDevice => "pageable from the device",
            Self::PinnedToDevice => "pinned to the device",
            Self::PinnedFromDevice => "pinned from the device",
            Self::AsyncToDevice => "pinned to the device, 16 in a row",
            Self::AsyncFromDevice => "pinned from the device, 16 in a row",
            Self::WithinDevice => "within the device",
            Self::Peer => "from device to device",
        })
    }
}

impl Case {
    /// The path, for copies.
    pub fn path(self) -> Option<Path> {
        match self {
            Self::Copy { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Bytes that one operation copies; 0 if it is not a copy.
    pub fn bytes(self) -> u64 {
        match self {
            Self::Copy { bytes, .. } => bytes,
            Self::Wait { wait } if wait.copy().is_some() => SMALL_COPY,
            Self::Wait { .. } | Self::Launches { .. } => 0,
        }
    }

    /// What it is called in a table of its kind: copies there are distinguished by their size.
    pub fn in_table(self) -> String {
        match self {
            Self::Copy { bytes, .. } => Size(bytes).to_string(),
            Self::Launches { arguments } => Size(arguments).to_string(),
            Self::Wait { wait } => wait.to_string(),
        }
    }

    /// How many operations one repetition has.
    pub fn row(self) -> u64 {
        match self {
            Self::Copy { path, .. } => path.row(),
            Self::Wait { .. } => 1,
            Self::Launches { .. } => ROW_OF_LAUNCHES,
        }
    }

    /// Whether a call can return before the work is done, so that there are two times.
    pub fn returns_early(self) -> bool {
        match self {
            Self::Copy { path, .. } => path.direction() != Direction::FromDevice || path.row() > 1,
            Self::Wait { wait } => wait.copy().is_some_and(|path| path.direction() == Direction::ToDevice),
            Self::Launches { .. } => true,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Copy { path, bytes } => write!(f, "{} {path}", Size(*bytes)),
            Self::Wait { wait } => wait.fmt(f),
            Self::Launches { arguments } => write!(f, "launches with {} of arguments", Size(*arguments)),
        }
    }
}
