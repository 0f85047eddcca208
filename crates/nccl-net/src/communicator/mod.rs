//! Communicators: one connection between a sender and a receiver, over several lanes.
//!
//! | module | contents |
//! | --- | --- |
//! | `requests` | requests that NCCL tests |
//! | `lanes` | lanes of a communicator, and its end |
//! | `side` | what both sides have, and how either stops |
//! | `send` | sender: messages, cut into a part a lane |
//! | `staging` | copies of GPUs |
//! | `receive` | receiver: receives, in the order of the messages |
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
