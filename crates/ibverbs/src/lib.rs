//! InfiniBand verbs: RDMA devices and queue pairs, through rdma-core's libraries loaded at run time.
//!
//! Nothing of RDMA is needed to build this, and a machine without it gets an error that says what is missing.
//! The types are thin: what they add to the C interface is ownership (nothing is freed while something else
//! stands on it), checked lengths, and errors in words.
//!
//! | module | contents |
//! | --- | --- |
//! | `library` | libibverbs, librdmacm and libmlx5, opened at run time |
//! | `device` | Device list, and opening a device |
//! | `description` | Device attributes: ports, GIDs and limits |
//! | `choice` | Default port: selection when the user names none |
//! | `gid` | GID selection: which of a port's GIDs names this end of a path |
//! | `memory` | Memory registration (memory regions, lkey and rkey) |
//! | `completion` | Completion queue (CQ): polling and events |
//! | `queue_pair` | Reliable connected queue pair (RC QP): creation and destruction, states (INIT, RTR, RTS), and posting of work requests |
//! | `mlx5` | Queue memory of mlx5 devices (DevX and DV layout) |
//! | `work` | Batch of work requests that are posted with one doorbell |
//! | `manager` | Connection manager (rdma_cm) for queue pairs: route to a listener, and the listener with its connection requests |
//! | `sys` | What `<infiniband/verbs.h>` and `<rdma/rdma_cma.h>` declare, as far as it is used here |
//!
//! ```no_run
//! use causeway_ibverbs::{Access, Buffer, CompletionQueue, Device, Libraries, ProtectionDomain};
//!
//! let libraries = Libraries::load()?;
//! for description in Device::list(libraries)? {
//!     println!("{} {:?}", description.name, description.ports);
//! }
//! let device = Device::open(libraries, "rxe1")?;
//! let domain = ProtectionDomain::new(&device)?;
//! let buffer = Buffer::new(&domain, 1 << 20, Access::LOCAL_WRITE)?;
//! let completions = CompletionQueue::new(&device, 256)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod choice;
pub mod completion;
pub mod description;
pub mod device;
pub mod gid;
pub mod library;
pub mod manager;
pub mod memory;
pub mod mlx5;
pub mod queue_pair;
pub mod sys;
pub mod work;

pub use choice::{Chosen, choose};
pub use completion::{Completion, CompletionQueue, Outcome, Status};
pub use description::{Description, Limits, Port, PortState};
pub use device::{Device, DeviceError, Transport};
pub use gid::{Gid, GidEntry, GidKind, LinkLayer};
pub use library::{Libraries, LoadError};
pub use manager::{Connection, Listener, ManagerError, Request, Route, Unjoined};
pub use memory::{Access, Buffer, MemoryRegion, ProtectionDomain, RegisterError};
pub use queue_pair::{Capacity, PathMtu, QueuePair, QueuePairError, RemoteEnd, Settings};
pub use work::{Operation, PostError, Receive, RemoteMemory, Segment, SendBatch, SendRequest};
