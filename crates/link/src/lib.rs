//! Links: how a client and its worker move messages and memory between each other.
//!
//! A [`Link`] joins two processes for one session. It carries ordered *messages*, gathered into batches, and
//! *transfers*: large copies that go straight into their destination. A *transport* moves both: which one is
//! chosen from the table in [`transports`], the only place that knows them all. What the bytes mean is the
//! business of `causeway-wire`.
//!
//! | module | contents |
//! | --- | --- |
//! | `link` | The link: one session's messages and transfers |
//! | `batch` | Message batching and flush policy |
//! | `receiver` | Receiver of a link's frames, and detection of disconnects |
//! | `inline_receive` | Inline receive: a thread that waits for a reply receives it itself |
//! | `one_sided` | One-sided operations (RDMA read and write) of a link |
//! | `transports` | Transports: the table, their cost, and why one is unavailable |
//! | `transport_choice` | Transport selection by the user, and why another is not in use |
//! | `inter_server` | Transport of device copies between two servers, by the user's setting |
//! | `handshake` | Client side of the handshake: proof of the key, and the request |
//! | `accept` | How a server finds out who is calling, before it trusts a byte |
//! | `connect` | How a client gets a session |
//! | `refusal` | Refusal of a key: how the server's sentence begins, by which the client recognizes it |
//! | `locks` | The locks of this crate, in the order in which a thread may take them: `causeway_sync::ranked` checks it in debug builds |

pub mod accept;
mod batch;
mod connect;
mod handshake;
mod inline_receive;
pub mod inter_server;
pub mod link;
mod locks;
mod one_sided;
mod receiver;
pub mod refusal;
pub mod transport_choice;
pub mod transports;

pub use causeway_transport::{
    Awaited, ChooseMemory, Counters, DescriptorError, Destination, DeviceMemory, DeviceUse, Direction,
    LinkError, LinkEvents, NotRegistered, OnComplete, Pacer, Sending, TransferError, TransferOptions,
    TransportKind,
    staging::{Lease, Piece, Region, Span},
};
pub use connect::{
    PeerAddress, PeerLink, Session, check, check_choice, connect, connect_diagnosis, connect_monitor,
    connect_over, connect_peer, connect_status, describe_process, enrol,
};
pub use handshake::error::ConnectError;
pub use handshake::options::ConnectOptions;
pub use handshake::relocations::Relocations;
pub use inline_receive::{InlineReceiver, SharedReceiver};
pub use link::Link;
pub use receiver::{IdleHook, Receiver};
pub use transport_choice::{Reason, TransportChoice};
pub use transports::Upgrade;
