//! InfiniBand verbs: RDMA devices and queue pairs, through rdma-core's libraries loaded at run time.
//!
//! Nothing of RDMA is needed to build this, and a machine without it gets an error that says what is missing.
//! The types are thin: what they add to the C interface is ownership (nothing is freed while something else
//! stands on it), checked lengths, and errors in words.
//!
//! | Module              | Question it answers                                                          |
//! |---------------------|------------------------------------------------------------------------------|
//! | [`library`]         | Are libibverbs and librdmacm there?                                          |
//! | [`device`]          | Which devices are there, and how is one opened?                              |
//! | [`description`]     | Which ports and GIDs does a device have, and what does it allow?             |
//! | [`choice`]          | Which port is used when the user names none?                                 |
//! | [`gid`]             | Which of a port's GIDs names this end of a path?                             |
//! | [`memory`]          | How is memory made known to a device?                                        |
//! | [`completion`]      | How does a program learn that work is done?                                  |
//! | [`queue_pair`]      | How is a reliable connection made, and which settings does it have?          |
//! | [`mlx5`]            | Where do the queues of an mlx5 device lie?                                   |
//! | [`work`]            | How are many work requests handed over with one doorbell?                    |
//! | [`manager`]         | How does rdma_cm connect queue pairs, where numbers alone do not do (iWARP)? |
//! | `events`            | What does rdma_cm report, and how is it waited for?                          |
//! | [`sys`]             | What do the C headers declare?                                               |
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
mod events;
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
