//! Device-initiated RDMA. The host's side of
//! `device/include/causeway/verbs.cuh`: it makes queues whose rings kernels write and read, and joins them.
//!
//! | Module         | Question it answers                                                     |
//! |----------------|-------------------------------------------------------------------------|
//! | [`layout`]     | What do kernels and the host know of the same bytes?                    |
//! | [`nic`]        | Which card is used, and which memory does it reach?                     |
//! | [`completion`] | How is a completion queue made?                                         |
//! | [`queue_pair`] | How is a queue pair made, joined with its peer's, and used again?       |
//! | `doorbell`     | How is a doorbell rung by a thread of the host?                         |
//! | [`error`]      | Why can kernels not use a card?                                         |

pub mod completion;
mod doorbell;
pub mod error;
pub mod layout;
pub mod nic;
pub mod queue_pair;

pub use completion::CompletionQueue;
pub use doorbell::Doorbell;
pub use error::VerbsError;
pub use nic::{Nic, NicOptions, Registered};
pub use queue_pair::{QueuePair, QueuePairOptions};
