//! The transport over InfiniBand, RoCE or iWARP: queue pairs of RDMA devices.
//!
//! The session begins on TCP, where both ends are authenticated. On a second connection they tell each other
//! what their queue pairs need, and go on there; whatever fails on the way, the session stays on TCP. Both
//! connections stay open beside the queue pairs: the end of either is the session's.
//!
//! Frames go as messages into receives that the peer has posted, as many as it has given credits for; long
//! ones are written as transfers are, and announced in their place between the messages. A transfer is
//! written straight into the peer's *arena*, memory registered for that: the sender leases a range of its
//! slots, writes (split over the queue pairs, if it is long), and announces each stripe behind its write,
//! with the same doorbell. What is short goes with its announcement, several in one message while the queue
//! pair is busy, and the receiver puts it into its slot. The receiver reads the bytes where they lie and
//! gives the slots back.
//!
//! From top to bottom; a module uses those below it (`layers.toml`).
//!
//! | Module               | Contents |
//! |----------------------|----------|
//! | [`upgrade`]          | Upgrade of a connection to queue pairs |
//! | `transport`          | Transport traits over queue pairs: frames of a link, and transfers |
//! | `one_sided`          | One-sided operations between registered memory at both ends |
//! | `cq_poll`            | Completion queue polling, dispatch, and waiting with backoff |
//! | `receive_completion` | Receive completions: parsing, protocol checks, handling |
//! | `pieces`             | Pieces of transfers: leases of slots, striping, delivery |
//! | `state`              | State shared by the threads of a link, and its shutdown |
//! | `endpoint`           | Device, memory and queue pairs of one end |
//! | `poll_state`         | State between polls, received frames, and the fallback poller |
//! | `frames`             | Frames of the link and eager stripes in a queue pair |
//! | `path`               | Send path of one queue pair: posting, and the pump of what is queued |
//! | `stripe`             | Stripes of a piece: split, announcement, reassembly |
//! | `registered_memory`  | Registration cache, and regions exposed to the peer |
//! | `queue`              | Send queue accounting, operations of several requests, coalescing |
//! | `message`            | Layout of the messages |
//! | [`settings`]         | Settings of verbs, and limits of the device |
//! | `credit`             | Credit flow control |
//! | `error`              | Errors of the upgrade, and failures of a link |
//!
//! What the peer says is checked before it is used. What it writes goes to its arena here and nowhere else:
//! the device sees to that by the key, and a wrong one ends the peer's own queue pairs. Bytes over verbs are
//! not encrypted.

mod cq_poll;
mod credit;
mod endpoint;
mod error;
mod frames;
mod message;
mod one_sided;
mod path;
mod pieces;
mod poll_state;
mod queue;
mod receive_completion;
mod registered_memory;
pub mod settings;
mod state;
mod stripe;
mod transport;
pub mod upgrade;

pub use crate::error::{Failure, Violation};
pub use error::UpgradeError;
pub use settings::Settings;
