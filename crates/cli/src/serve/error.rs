//! Errors of `causeway serve`.

use std::path::PathBuf;

use causeway_access::DEFAULT_PORT;
use causeway_access::keys::file::KeyFileError;
use causeway_server::broker::{DeviceListError, GpuChoice, StartError};
use thiserror::Error;

use crate::try_driver::TrialError;

/// Why a server does not start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error(
        "`{address}` is no address to listen at ({cause}): give HOST:PORT, for example 127.0.0.1:{DEFAULT_PORT}"
    )]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        cause: String,
    },
    /// Metrics cannot be served there.
    #[error(
        "`{address}` is no address for metrics ({cause}): give HOST:PORT, for example --metrics 127.0.0.1:9469"
    )]
    MetricsAddress {
        /// What was given.
        address: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The user names one back end and allows another one.
    #[error(
        "--allow-software requires --gpu auto, which then serves the software GPU if the driver cannot be \
         used; --gpu {0} serves nothing else: omit one of the two"
    )]
    NoFallback(GpuChoice),
    /// A file that was named would be in a folder that is not there.
    #[error(
        "there is no folder {folder} for {what}: check the name; to create the folder, run `mkdir -p -m 700 \
         {folder}`"
    )]
    NoFolder {
        /// The folder.
        folder: PathBuf,
        /// What is to be in it.
        what: &'static str,
    },
    /// There is something else where a folder is to be.
    #[error("{path}, which is for {what}, is not a folder: name another one")]
    NotAFolder {
        /// The path.
        path: PathBuf,
        /// What is to be in it.
        what: &'static str,
    },
    /// A file or folder cannot be written.
    #[error(
        "{path}, which is for {what}, is not writable by this user ({cause}): name another one, or change \
         its permissions"
    )]
    NotWritable {
        /// The path.
        path: PathBuf,
        /// What it is for.
        what: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// NVIDIA's driver is the only thing that is to serve, and cannot be used.
    #[error(
        "--gpu driver cannot serve, since the GPU cannot be used: {0}. `nvidia-smi` and `causeway doctor` \
         report the cause; --gpu cpu serves the software GPU"
    )]
    NoDriver(TrialError),
    /// A device that is to be shown is not there.
    #[error(transparent)]
    Devices(#[from] DeviceListError),
    /// There is no place for the key.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// More is to be listened at than one server does.
    #[error(
        "`{0}` names several addresses of one kind: a server listens at one address over TCP, at one vsock and at one Unix socket"
    )]
    TooMany(String),
    /// The broker does not start.
    #[error(transparent)]
    Start(#[from] StartError),
}
