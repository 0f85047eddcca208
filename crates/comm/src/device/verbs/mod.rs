//! Device-initiated RDMA. The host's side of
//! `device/include/causeway/verbs.cuh`: it makes queues whose rings kernels write and read, and joins them.
//!
//! | module | contents |
//! | --- | --- |
//! | `layout` | Layout of the memory that kernels and host share |
//! | `nic` | RDMA device of a team, and registered memory |
//! | `completion` | Completion queue, and the syndromes of failed completions, which `mlx5.h` names |
//! | `queue_pair` | Queue pair: creation, connection, reset after an error, and its address of 32 bytes, which the program brings to the peer |
//! | `doorbell` | Doorbell by a thread of the host |
//! | `error` | Errors of device-initiated RDMA |

pub mod completion;
mod doorbell;
pub mod error;
pub mod layout;
pub mod nic;
pub mod queue_pair;

pub use completion::{CompletionQueue, operation_name, text as syndrome_text};
pub use doorbell::Doorbell;
pub use error::VerbsError;
pub use nic::{Nic, NicOptions, Registered};
pub use queue_pair::{QueuePair, QueuePairOptions};
