//! The transport over InfiniBand, RoCE or iWARP: queue pairs of RDMA devices.
//!
//! The session begins on TCP, where both ends are authenticated. On a second connection they tell each other
//! what their queue pairs need, and go on there; whatever fails on the way, the session stays on TCP. Both
//! connections stay open beside the queue pairs: the end of either is the session's.
//!
//! Frames go as messages into receives that the peer has posted, as many as it has given credits for; long
//! ones are written as transfers are, and announced in their place between the messages. A transfer is
//! written straight into the peer's *arena*, memory registered for that: the sender lends itself a run of its
//! slots, writes (split over the queue pairs, if it is long), and announces each part behind its write, with
//! the same doorbell. What is short goes with its announcement, several in one message while the queue pair
//! is busy, and the receiver puts it into its slot. The receiver reads the bytes where they lie and gives the
//! slots back.
//!
//! | Module         | Question it answers                                                              |
//! |----------------|----------------------------------------------------------------------------------|
//! | [`settings`]   | What has the user set, and what does the device allow of it?                     |
//! | `credit`       | How many messages may be sent, so that each finds a receive?                     |
//! | `queue`        | How full is a send queue, which requests are signalled, what does a completion end? |
//! | `bundles`      | When do short transfers wait for each other, to go in one message?               |
//! | `parts`        | How is a piece split over the queue pairs, and when has all of it come?          |
//! | `message`      | What do the messages say?                                                        |
//! | `ends`         | Which device, which memory, which queue pairs does an end have?                  |
//! | [`join`]       | How do two processes come to be joined by queue pairs?                           |
//! | `path`         | How do messages and writes get into one queue pair?                              |
//! | `state`        | What do the threads of a link have in common, and how does it end?               |
//! | `look`         | Who looks for completions, and when is what came told?                           |
//! | `come`         | What has come, and does it keep the rules?                                       |
//! | `stand_in`     | Who looks while the receiver of frames is busy with a command?                   |
//! | `waiting`      | How does a thread wait for something that a completion brings?                   |
//! | `pieces`       | Which slots are lent to whom, and who is told of pieces that have come?          |
//! | `operation`    | When is work done that consists of several requests, and what follows?          |
//! | `known`        | Which memory of the link's owner do cards reach?                                 |
//! | `one_sided`    | How do bytes move where both ends' cards know the memory?                         |
//! | `messages`     | How do the frames of a link travel?                                              |
//! | `transfers`    | How do the bytes of a transfer travel?                                           |
//!
//! What the peer says is checked before it is used. What it writes goes to its arena here and nowhere else:
//! the device sees to that by the key, and a wrong one ends the peer's own queue pairs. Bytes over verbs are
//! not encrypted.

mod bundles;
mod come;
mod credit;
mod ends;
pub mod join;
mod known;
mod look;
mod message;
mod messages;
mod one_sided;
mod operation;
mod parts;
mod path;
mod pieces;
mod queue;
pub mod settings;
mod stand_in;
mod state;
mod transfers;
mod waiting;

use causeway_config::ValueError;
use causeway_ibverbs::{DeviceError, LoadError, ManagerError, QueuePairError, RegisterError, Status};
use causeway_transport::{LinkError, TransportError};
use causeway_wire::text::Printable;
use thiserror::Error;

pub use settings::Settings;

/// How a peer broke the rules that go with queue pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// A message is none.
    #[error("a message over verbs makes no sense")]
    Message,
    /// Credits came back that were never spent.
    #[error("more credits were returned than were spent")]
    Credits,
    /// A completion is for a request that was never posted.
    #[error("a completion came for a request that was never posted")]
    Completion,
    /// The parts of a piece contradict each other.
    #[error("a piece was announced in {0} parts that do not fit together")]
    Parts(u32),
    /// An announced piece lies outside the arena, or is longer than its transfer.
    #[error("a piece of {length} bytes in slot {slot} does not lie in the arena or not in its transfer")]
    Piece {
        /// Its first slot.
        slot: u32,
        /// Its length in bytes.
        length: u32,
    },
    /// More pieces are announced than there are slots.
    #[error("more pieces were announced than the arena has slots")]
    TooManyPieces,
    /// A slot was given back that was not lent.
    #[error("slot {0} was given back, which was not lent")]
    NotLent(u32),
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

/// Why two processes are not joined by queue pairs; a part of a sentence, for people.
#[derive(Debug, Error)]
pub enum JoinError {
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
        "rdma_cm goes by {found}, which has the address of the TCP connection, and CAUSEWAY_VERBS_DEVICE asks for {wanted}: \
         unset it, or connect to an address of {wanted}"
    )]
    OtherDevice {
        /// The device of the address.
        found: String,
        /// The one that was asked for.
        wanted: String,
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
