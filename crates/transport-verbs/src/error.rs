//! Errors: of the upgrade to queue pairs, and failures of a link over them.

use causeway_config::ValueError;
use causeway_ibverbs::{DeviceError, LoadError, ManagerError, QueuePairError, RegisterError, Status};
use causeway_transport::{LinkError, TransportError};
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
        "rdma_cm uses {found}, which has the address of the TCP connection, and CAUSEWAY_VERBS_DEVICE names \
         {requested}: unset it, or connect to an address of {requested}"
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
    #[error("protocol error at the other end: {0}")]
    Protocol(&'static str),
    /// The queue pairs do not carry messages.
    #[error("the queue pairs cannot send messages: {0}")]
    Path(String),
}

/// How a peer broke the rules that go with queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// A message is none.
    #[error("malformed message over verbs")]
    Message,
    /// Credits came back that were never spent.
    #[error("more credits were returned than were spent")]
    Credits,
    /// A completion is for a request that was never posted.
    #[error("received a completion of a request that was never posted")]
    Completion,
    /// The stripes of a piece contradict each other.
    #[error("a piece was announced in {0} stripes that do not fit together")]
    Stripes(u32),
    /// An announced piece lies outside the arena, or is longer than its transfer.
    #[error("a piece of {length} bytes in slot {slot} is not within the arena, or not within its transfer")]
    Piece {
        /// Its first slot.
        slot: u32,
        /// Its length in bytes.
        length: u32,
    },
    /// More pieces are announced than there are slots.
    #[error("more pieces were announced than the arena has slots")]
    TooManyPieces,
    /// A slot was released that was not leased.
    #[error("slot {0} was released, but was not leased")]
    NotLeased(u32),
}

/// Why a link over verbs has ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Failure {
    /// The peer broke the rules.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A request failed.
    #[error("the InfiniBand (verbs) connection has failed: {0}")]
    Request(Status),
    /// The device, or what drives it, has failed.
    #[error("the RDMA device has failed: {0}")]
    Device(String),
}

impl From<Violation> for LinkError {
    fn from(violation: Violation) -> Self {
        TransportError::violation(violation).into()
    }
}

impl From<Failure> for LinkError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Violation(violation) => violation.into(),
            other => TransportError::failed(other).into(),
        }
    }
}
