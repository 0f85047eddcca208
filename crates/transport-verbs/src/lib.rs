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
//! pair is busy, and the receiver puts it into its slot. The receiver reads the bytes in place and
//! gives the slots back.
//!
//! From top to bottom; a module uses those below it (`layers.toml`).
//!
//! | module | contents |
//! | --- | --- |
//! | `upgrade` | Upgrade of a connection to queue pairs: the client's side, and the worker's side |
//! | `transport` | Transport traits over queue pairs: the frames of a link in both directions, and its transfers |
//! | `one_sided` | One-sided operations: RDMA between registered memory at both ends |
//! | `cq_poll` | Completion queue polling: dispatch of what it finds, and waiting with backoff and sleep |
//! | `receive_completion` | Receive completions: parsing, protocol checks, and handling of what they bring |
//! | `pieces` | Pieces of transfers: leases of staging slots, striping over all queue pairs, and delivery |
//! | `state` | State shared by the threads of a link over verbs, and its shutdown: goodbye, and flushing of its queue pairs |
//! | `endpoint` | Endpoint: device, memory and queue pairs of one end |
//! | `poll_state` | Poll state: what is kept between polls, where received frames lie, and the fallback poller |
//! | `frames` | Frames of the link and eager stripes in a queue pair: in messages, or written to slots of the peer |
//! | `path` | Send path of one queue pair: posting of messages, writes and reads, and the pump of what is queued for them |
//! | `stripe` | Stripes of a piece over the queue pairs: how it is split, what is announced, and its reassembly |
//! | `registered_memory` | Registered memory: the registration cache, by address, and the regions exposed to the peer, by number |
//! | `queue` | Send queue accounting: free slots, signalled requests, completions, operations of several requests, and coalescing |
//! | `message` | Message formats over queue pairs |
//! | `settings` | Settings of verbs for a session: queue pairs, depth and device limits |
//! | `credit` | Credit flow control: receives that are posted at the peer |
//! | `error` | Errors: of the upgrade to queue pairs, and failures of a link over them |
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
