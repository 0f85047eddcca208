//! RDMA verbs for messages.
//!
//! The receiver of a message reads it: its queue pair is joined with one of the sender's, which only lets
//! itself be read. Each pair of ranks has a protection domain of its own at both ends, so that a rank reaches
//! no memory but what the peer has registered for it.
//!
//! | Module    | Question it answers                                                     |
//! |-----------|-------------------------------------------------------------------------|
//! | `address` | At which address of this host does rdma_cm join two ranks of it?        |
//! | `nic`    | Which card is used, or why is there none?                               |
//! | `endpoint`| What do two ends tell each other to be joined?                          |
//! | `topology`    | Which cards are near a GPU?                                              |
//! | `queue_pair`| What is an end made of?                                                 |
//! | `read_target`  | How does a sender let its memory be read?                               |
//! | `reader`  | How does a receiver come to a queue pair by which it reads?             |
//! | `path`    | How are bytes read over it, and when are they there?                    |
//! | `memory`  | How does a card come to reach memory of a GPU?                          |

mod address;
mod endpoint;
mod error;
mod memory;
mod nic;
mod path;
mod queue_pair;
mod read_target;
mod reader;
mod topology;

pub(crate) use endpoint::{END_BYTES, EndpointAddress, Slots};
pub use error::RdmaError;
pub(crate) use memory::{Use, is_gpudirect, register};
pub(crate) use nic::{NicSelector, count_rdma_devices, usable};
pub(crate) use path::Path;
pub(crate) use queue_pair::MAX_READS;
pub(crate) use read_target::ReadTarget;
pub(crate) use reader::Reader;
