//! What goes wrong with a BAR.

use std::io;

use thiserror::Error;

use crate::cuda::CudaError;

/// `ENOTSUPP` of the kernel, which has no name for programs.
const ENOTSUPP: i32 = 524;

/// Why a GPU's memory cannot be reached through its BAR.
#[derive(Debug, Error)]
pub enum BarError {
    /// There is no module.
    #[error(
        "there is no /dev/gdrdrv: the kernel module gdrdrv (GDRCOPY) is not loaded, or its device is not in \
         this container"
    )]
    NoModule,
    /// It may not be used.
    #[error("/dev/gdrdrv cannot be opened: {0}")]
    Open(#[source] io::Error),
    /// It is another version.
    #[error("the kernel module gdrdrv has version {major}.{minor}, and 2.0 or a later 2.x is needed")]
    Version {
        /// The part before the point.
        major: u32,
        /// The part behind it.
        minor: u32,
    },
    /// It does not say its version.
    #[error("the kernel module gdrdrv does not say its version, as one before 2.0: {0}")]
    NoVersion(#[source] io::Error),
    /// Memory is not pinned.
    #[error("gdrdrv does not pin {bytes} bytes of the GPU's memory: {cause}")]
    Pin {
        /// How many there were.
        bytes: usize,
        /// What the system answered.
        cause: io::Error,
    },
    /// Memory is not mapped.
    #[error("{bytes} bytes of the GPU's memory cannot be mapped: {cause}{}", advice(cause))]
    Map {
        /// How many there were.
        bytes: usize,
        /// What the system answered.
        cause: io::Error,
    },
    /// The driver makes no dma-buf.
    #[error("the GPU's driver makes no dma-buf of its memory: {0}")]
    NoDmaBuf(#[source] CudaError),
    /// The GPU is elsewhere.
    #[error("the GPU is a server's, whose BAR is not on this host")]
    Remote,
    /// It cannot be reached, as was found out before.
    #[error("{0}")]
    Unusable(&'static str),
    /// Not in the allocation.
    #[error("the bytes do not lie in one allocation")]
    Outside,
}

fn advice(cause: &io::Error) -> &'static str {
    match cause.raw_os_error() {
        Some(ENOTSUPP | libc::ENODEV | libc::EOPNOTSUPP) => {
            ". NVIDIA's driver lets no dma-buf of a GPU's memory be mapped here (those of CUDA 13.3 and \
             later do)"
        }
        Some(libc::ENOMEM) => ". The BAR may be full",
        _ => "",
    }
}
