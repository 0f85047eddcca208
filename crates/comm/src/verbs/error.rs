//! What goes wrong with a card.

use std::io;
use std::net::IpAddr;

use causeway_config::ValueError;
use causeway_ibverbs::{
    DeviceError, LoadError, ManagerError, PostError, QueuePairError, RegisterError, Status,
};
use thiserror::Error;

use crate::cuda::CudaError;

/// Why a card does not move a message.
#[derive(Debug, Error)]
pub enum RdmaError {
    /// The kernel knows no device.
    #[error("there is no RDMA device (/sys/class/infiniband is empty)")]
    NoDevice,
    /// No port has a link.
    #[error("no port of an RDMA device is active, or of the one that CAUSEWAY_VERBS_DEVICE names")]
    NoPort,
    /// The port has no such GID.
    #[error("the RDMA device `{device}` has no GID of index {index} (CAUSEWAY_VERBS_GID)")]
    NoGid {
        /// The device.
        device: String,
        /// The index.
        index: u32,
    },
    /// The device's interface has no address.
    #[error(
        "the RDMA device `{0}` is iWARP, which is reached at an address of a network, and its network interface \
         has none here"
    )]
    NoAddress(String),
    /// The system tells no addresses.
    #[error("the addresses of this host cannot be read: {0}")]
    Addresses(#[source] io::Error),
    /// The peer's address is not of this host.
    #[error(
        "the peer's RDMA device is iWARP and takes connections at {0}, which is no address of this host in this \
         network namespace"
    )]
    Elsewhere(IpAddr),
    /// A setting.
    #[error(transparent)]
    Setting(#[from] ValueError),
    /// No library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The queue pair.
    #[error(transparent)]
    QueuePair(#[from] QueuePairError),
    /// rdma_cm.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// Memory.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The driver of the GPU.
    #[error(transparent)]
    Cuda(#[from] CudaError),
    /// A card cannot reach this memory.
    #[error("a card does not reach such memory")]
    NotAccessible,
    /// The queue pair takes no request.
    #[error("the RDMA device takes no request: {0}")]
    Post(#[from] PostError),
    /// A read has failed.
    #[error("the RDMA device could not read the peer's memory: {0}")]
    Read(Status),
    /// The peer tells numbers that cannot be.
    #[error("what the peer tells of its RDMA device makes no sense")]
    Senseless,
    /// Nothing came.
    #[error("the RDMA device has not said for {0} s that a read is done")]
    Silent(u64),
    /// The peer has gone meanwhile.
    #[error("the peer has ended while its memory was read")]
    PeerDisconnected,
    /// The system.
    #[error("the RDMA device's completions cannot be waited for: {0}")]
    System(#[from] io::Error),
}
