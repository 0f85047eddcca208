//! RDMA verbs for messages.
//!
//! The receiver of a message reads it: its queue pair is joined with one of the sender's, which only lets
//! itself be read. Each pair of ranks has a protection domain of its own at both ends, so that a rank reaches
//! no memory but what the peer has registered for it.
//!
//! | Module     | Contents                                                              |
//! |------------|-----------------------------------------------------------------------|
//! | `nic`      | the card: its choice, its address, registration of GPU memory, errors |
//! | `topology` | which cards are near a GPU                                            |
//! | `endpoint` | what two ends send each other to be joined                            |
//! | `path`     | the two ends, and reads over the path                                 |

mod endpoint;
mod nic;
mod path;
mod topology;

pub(crate) use endpoint::{ENDPOINT_BYTES, EndpointAddress, Slots};
pub use nic::RdmaError;
pub(crate) use nic::{NicSelector, Use, count_rdma_devices, is_gpudirect, register, usable};
pub(crate) use path::{MAX_READS, Path, ReadTarget, Reader};
