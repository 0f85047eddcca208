//! Communicators: one connection between a sender and a receiver, over several lanes.
//!
//! | module | contents |
//! | --- | --- |
//! | `requests` | Requests: what NCCL tests until it is done |
//! | `lanes` | Lanes of a communicator, and its end |
//! | `side` | Side of a connection: what sender and receiver have both, and how either stops |
//! | `send` | Sender of a connection: messages, each cut into parts for the lanes, or offered to the receiver |
//! | `staging` | Copies of GPUs for the parts of messages: into blocks of the host before they are sent, and out of them when they have come; and from memory that the sender has exported |
//! | `receive` | Receiver of a connection: receives, in the order of the messages |
//!
//! Messages have numbers, and the receives that take them have the same, in the order of the calls. The receiver says up
//! to which number it has posted receives (*credit*), and the sender sends no message before: so whatever comes has a
//! memory to go to, and no lane ever stands still because a receive is late.

mod lanes;
mod receive;
mod requests;
mod send;
mod side;
mod staging;

pub use receive::RecvCommunicator;
pub use requests::Request;
pub use send::{SendCommunicator, SendMemory};
