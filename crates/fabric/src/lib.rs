//! Links: how a client and its worker move messages and memory between each other.
//!
//! A [`Link`] joins two processes for one session. It carries ordered *messages*, gathered into batches, and
//! *transfers*: large copies that go straight into their destination. A *module* moves both.
//! What the bytes mean is the business of `causeway-wire`; this crate does the input and output.
//!
//! | Module        | Question it answers                                                        |
//! |---------------|----------------------------------------------------------------------------|
//! | `tcp`         | How do messages and transfers go over TCP connections?                     |
//! | [`shm`]       | How do two processes of one host share memory?                              |
//! | [`verbs`]     | How do two processes use InfiniBand, RoCE or iWARP?                         |
//! | [`via`]       | Which module is in use, and why not another?                                |
//! | [`between`]   | What carries copies between devices of two servers?                         |
//! | [`connect()`] | How does a client get a session?                                           |
//! | [`accept`]    | How does a server find out who is calling before it trusts a byte?          |
//! | [`link`]      | How do messages leave in batches, and where do transfers go?                |
//! | `module`      | What does a transport give a link?                                          |
//! | `line`        | Who sends transfers that nobody waits for, and who copies what has come?    |
//! | `staging`     | How do transfers pass through memory of a module?                           |

pub mod accept;
pub mod between;
mod connect;
mod line;
pub mod link;
mod module;
pub mod shm;
mod staging;
mod tcp;
pub mod verbs;
pub mod via;

pub use connect::{
    ConnectError, ConnectOptions, PeerAddress, PeerLink, Session, check, connect, connect_diagnosis,
    connect_monitor, connect_peer, describe_process,
};
pub use link::{
    Awaited, Carriage, ChooseMemory, Counters, DescriptorError, Destination, DeviceMemory, DeviceUse, Link,
    LinkError, LinkEvents, Meanwhile, NotRegistered, Receiver, Reception, Sending, TransferError,
};
pub use staging::{Lease, Piece, Region, Span};
pub use via::{Reason, Via, ViaChoice};
