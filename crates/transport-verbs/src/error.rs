//! Errors of connecting two processes by queue pairs.

use causeway_config::ValueError;
use causeway_ibverbs::{DeviceError, LoadError, ManagerError, QueuePairError, RegisterError};
use causeway_wire::text::Printable;
use thiserror::Error;

/// Why two processes are not joined by queue pairs; a part of a sentence, for people.
#[derive(Debug, Error)]
pub enum UpgradeError {
    /// The libraries cannot be used.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// A variable cannot be used.
    #[error(transparent)]
    Settings(#[from] ValueError),
    /// The machine has no RDMA device.
    #[error(
        "this machine has no RDMA device (InfiniBand, RoCE or iWARP): a card and its kernel driver are needed, \
         and in a container /dev/infiniband"
    )]
    NoDevice,
    /// No port can be used.
    #[error(
        "no RDMA device of this machine has an active port that can be used ({0}); `ibv_devinfo` or `rdma link` \
         show their states"
    )]
    NoPort(String),
    /// rdma_cm goes by another device than the one that was asked for.
    #[error(
        "rdma_cm goes by {found}, which has the address of the TCP connection, and CAUSEWAY_VERBS_DEVICE asks for {requested}: \
         unset it, or connect to an address of {requested}"
    )]
    OtherDevice {
        /// The device of the address.
        found: String,
        /// The one that was asked for.
        requested: String,
    },
    /// The GID that was asked for is not there.
    #[error("port {port} of {device} has no GID with index {index}")]
    NoGid {
        /// Which device.
        device: String,
        /// Which port.
        port: u8,
        /// Which index.
        index: u32,
    },
    /// The device does not do what it should.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Memory cannot be registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// A queue pair cannot be had.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// rdma_cm does not connect.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// The connection on which this is arranged failed.
    #[error("the connection for setting up verbs failed: {0}")]
    Connection(String),
    /// The server says no.
    #[error("the server refused it: {0}")]
    Refused(Printable),
    /// The other end says something that makes no sense here.
    #[error("the other end does not speak as it should: {0}")]
    Protocol(&'static str),
    /// The queue pairs do not carry messages.
    #[error("the queue pairs carry no messages: {0}")]
    Path(String),
}
