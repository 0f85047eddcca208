//! Links: how a client and its worker move messages and memory between each other.
//!
//! A [`Link`] joins two processes for one session. It carries ordered *messages*, gathered into batches, and
//! *transfers*: large copies that go straight into their destination. A *transport* moves both: which one is
//! chosen from the table in [`transports`], the only place that knows them all. What the bytes mean is the
//! business of `causeway-wire`.
//!
//! | Module               | Question it answers                                                          |
//! |----------------------|------------------------------------------------------------------------------|
//! | [`link`]             | What does the owner of a link do with it?                                     |
//! | `batch`              | When does an appended message leave, and in which order?                      |
//! | `receiver`           | How do the peer's frames come in, and when is the peer gone?                  |
//! | `inline_receive`     | Who receives: the thread whose task it is, or one that waits?                 |
//! | `one_sided`          | What is moved without a copy, where network cards reach memory?               |
//! | [`transports`]       | Which transports are there, what does each cost here, or why is it none?      |
//! | [`transport_choice`] | Which transport does a user want, and why is another not in use?              |
//! | [`inter_server`]     | What carries copies between devices of two servers?                           |
//! | `handshake`          | How does a caller prove itself, and say what it wants?                        |
//! | [`connect()`]        | How does a client get a session?                                              |
//! | [`accept`]           | How does a server find out who is calling before it trusts a byte?            |

pub mod accept;
mod batch;
mod connect;
mod handshake;
mod inline_receive;
pub mod inter_server;
pub mod link;
mod one_sided;
mod receiver;
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
