//! RDMA verbs for messages.
//!
//! The receiver of a message reads it: its queue pair is joined with one of the sender's, which only lets
//! itself be read. Each pair of ranks has a protection domain of its own at both ends, so that a rank reaches
//! no memory but what the peer has registered for it.
//!
//! | module | contents |
//! | --- | --- |
//! | `nic` | RDMA device that messages use: its choice, the address of this host for rdma_cm, registration of GPU memory, and errors |
//! | `topology` | PCI topology: the RDMA devices that are nearest to a GPU, by the bridges that the paths of both have in common on the PCI bus, in the words of `nvidia-smi topo` |
//! | `endpoint` | Endpoint address of an RDMA connection, as exchanged |
//! | `links` | Queue pairs for links of a team: a device with one completion queue for all of them, memory that peers write and read by themselves, and short messages |
//! | `path` | Path between two RDMA devices: the resources of an end, the receiver's end, which reads over connected queue pairs, and the sender's, which lets its memory be read |

mod endpoint;
mod links;
mod nic;
mod path;
mod topology;

pub(crate) use endpoint::{ENDPOINT_BYTES, EndpointAddress, Slots};
pub(crate) use links::{Ended, Event, LinkNic, LinkQueuePair, MESSAGE_BYTES, UnjoinedLink};
pub use nic::RdmaError;
pub(crate) use nic::{NicSelector, Use, count_rdma_devices, is_gpudirect, register, usable};
pub(crate) use path::{MAX_QUEUE_PAIRS, Path, ReadTarget, Reader};
