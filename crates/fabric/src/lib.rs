//! Links: how a client and its worker move messages and memory between each other.
//!
//! A [`Link`] joins two processes for one session. It carries ordered *messages*, gathered into batches, and
//! *transfers*: large copies that go straight into their destination. A *module* moves both.
//! What the bytes mean is the business of `causeway-wire`; this crate does the input and output.
//!
//! | Module        | Question it answers                                                        |
//! |---------------|----------------------------------------------------------------------------|
//! | [`target`]    | Where is the server, and with which key?                                   |
//! | [`keys`]      | Which key is a server's, and where is it kept?                              |
//! | [`private_folder()`] | Where are sockets and files that no other user may reach?            |
//! | [`tcp`]       | How are connections made, encrypted, used side by side, and found dead?      |
//! | [`shm`]       | How do two processes of one host share memory?                              |
//! | [`verbs`]     | How do two processes use InfiniBand, RoCE or iWARP?                         |
//! | [`via`]       | Which module is in use, and why not another?                                |
//! | [`between`]   | What carries copies between devices of two servers?                         |
//! | [`connect()`] | How does a client get a session?                                           |
//! | [`accept`]    | How does a server find out who is calling before it trusts a byte?          |
//! | [`exchange`]  | How do questions and answers go over a connection without a link?           |
//! | [`link`]      | How do messages leave in batches, and where do transfers go?                |
//! | `module`      | What does a transport give a link?                                          |
//! | [`pipeline`]  | Into which pieces is a copy cut, and how many are under way?                |
//! | `line`        | Who sends transfers that nobody waits for, and who copies what has come?    |
//! | `staging`     | How do transfers pass through memory of a module?                           |
//! | [`copiers`]   | How do several threads copy memory?                                         |
//! | [`past_caches`] | How are bytes copied that a device reads next?                           |
//! | [`mirror`]    | Which bytes of memory that two processes hold have changed?                 |
//! | [`awake`]     | How long does a thread stay awake for what is about to come?                |
//! | `doorbell`    | How is a thread woken for what somebody begins to wait for?                 |
//! | [`threads`]   | Why do our threads not disturb the program they live in?                    |
//! | [`delays`]    | How do tests meet rare orders of threads?                                     |

pub mod accept;
pub mod awake;
pub mod between;
mod connect;
pub mod copiers;
pub mod delays;
mod doorbell;
pub mod exchange;
pub mod keys;
mod line;
pub mod link;
pub mod mirror;
mod module;
mod numa;
pub mod pages;
pub mod past_caches;
pub mod pipeline;
mod private_folder;
pub mod shm;
mod staging;
pub mod target;
pub mod tcp;
pub mod threads;
pub mod verbs;
pub mod via;

pub use connect::{
    ConnectError, ConnectOptions, DEFAULT_LANES, MOST_LANES, PeerAddress, PeerLink, Session, check, connect,
    connect_diagnosis, connect_monitor, connect_peer, describe_process,
};
pub use connect::{Dial, dial_here};
pub use link::{
    Awaited, Carriage, ChooseMemory, Counters, DescriptorError, Destination, DeviceMemory, DeviceUse, Link,
    LinkError, LinkEvents, Meanwhile, NotRegistered, Receiver, Reception, Sending, TransferError,
};
pub use private_folder::private_folder;
pub use shm::SealedMemory;
pub use staging::{Lease, Piece, Region, Span};
pub use target::{DEFAULT_PORT, Endpoint, Key, KeyError, Target, TargetError};
pub use via::{Reason, Via, ViaChoice};
