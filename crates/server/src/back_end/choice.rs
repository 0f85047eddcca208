//! Back end selection by configuration.

use core::fmt;
use core::str::FromStr;

use thiserror::Error;

/// Which GPU a worker works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpuChoice {
    /// The NVIDIA driver.
    Auto {
        /// Whether the software GPU serves where the driver cannot be used. A program that runs a hundred
        /// times slower than its user believes is worse off than one that is told, so this is nobody's
        /// default.
        allows_software: bool,
    },
    /// The software GPU.
    Cpu,
    /// The NVIDIA driver.
    Driver,
}

impl Default for GpuChoice {
    fn default() -> Self {
        Self::Auto { allows_software: false }
    }
}

/// A text that names no [`GpuChoice`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a kind of GPU: choose auto, cpu (the software GPU) or driver (NVIDIA's driver)")]
pub struct UnknownGpu(String);

impl FromStr for GpuChoice {
    type Err = UnknownGpu;

    fn from_str(text: &str) -> Result<Self, UnknownGpu> {
        match text {
            "auto" => Ok(Self::default()),
            "cpu" => Ok(Self::Cpu),
            "driver" => Ok(Self::Driver),
            other => Err(UnknownGpu(other.to_owned())),
        }
    }
}

/// The name that [`FromStr`] reads; what `auto` allows is not in it.
impl fmt::Display for GpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto { .. } => "auto",
            Self::Cpu => "cpu",
            Self::Driver => "driver",
        })
    }
}
