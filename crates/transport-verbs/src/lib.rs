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
//! | Module         | Question it answers |
//! |----------------|---------------------|
//! | [`upgrade`]    | How do two processes come to be joined by queue pairs? |
//! | `transfers`    | How do the bytes of a transfer travel? |
//! | `messages`     | How do the frames of a link travel? |
//! | `one_sided`    | How do bytes move where both ends' cards know the memory? |
//! | `ending`       | How does a link end in order? |
//! | `waiting`      | How does a thread wait for something that a completion brings? |
//! | `cq_poll`      | Who polls for completions, and when is what came told? |
//! | `follow`       | What follows from what a poll has found? |
//! | `receive_completion` | What has come, and does it keep the rules? |
//! | `carry`        | How do bytes move over all queue pairs, and what follows when they have? |
//! | `pieces`       | Which slots are leased to whom, and who is told of pieces that have come? |
//! | `state`        | What do the threads of a link have in common, and how does it end? |
//! | `endpoint`     | Which device, which memory, which queue pairs does an end have? |
//! | `path`         | How do messages and writes get into one queue pair? |
//! | `poll_state`   | What does whoever polls keep, from one poll to the next? |
//! | `received`     | Where do bytes of frames lie that have come? |
//! | `exposed_regions` | Which memory is exposed to the peer, and what keeps it? |
//! | `registration_cache` | Which memory of the link's owner do cards reach? |
//! | `fallback_poller` | Who polls while the receiver of frames is busy with a command? |
//! | `operation`    | When is work done that consists of several requests, and what follows? |
//! | `stripes`      | How is a piece split over the queue pairs, and when has all of it come? |
//! | `coalesce`      | When do short transfers wait for each other, to go in one message? |
//! | `queue`        | How full is a send queue, which requests are signalled, what does a completion end? |
//! | `message`      | What do the messages say? |
//! | [`settings`]   | What has the user set, and what does the device allow of it? |
//! | `credit`       | How many messages may be sent, so that each finds a receive? |
//! | `error`        | Why are two processes not joined by queue pairs? |
//! | `failure`      | How does a link over queue pairs fail? |
//!
//! What the peer says is checked before it is used. What it writes goes to its arena here and nowhere else:
//! the device sees to that by the key, and a wrong one ends the peer's own queue pairs. Bytes over verbs are
//! not encrypted.

mod carry;
mod coalesce;
mod cq_poll;
mod credit;
mod ending;
mod endpoint;
mod error;
mod exposed_regions;
mod failure;
mod fallback_poller;
mod follow;
mod message;
mod messages;
mod one_sided;
mod operation;
mod path;
mod pieces;
mod poll_state;
mod queue;
mod receive_completion;
mod received;
mod registration_cache;
pub mod settings;
mod state;
mod stripes;
mod transfers;
pub mod upgrade;
mod waiting;

pub use error::UpgradeError;
pub use failure::{Failure, Violation};
pub use settings::Settings;
