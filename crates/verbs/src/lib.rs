//! InfiniBand verbs: RDMA devices and queue pairs, through rdma-core's libraries loaded at run time.
//!
//! Nothing of RDMA is needed to build this, and a machine without it gets an error that says what is missing. The types
//! are thin: what they add to the C interface is ownership (nothing is freed while something else stands on it), checked
//! lengths, and errors in words.
//!
//! | Module              | Question it answers                                                          |
//! |---------------------|------------------------------------------------------------------------------|
//! | [`library`]         | Are libibverbs and librdmacm there?                                          |
//! | [`device`]          | Which devices, ports and GIDs are there, and what can they do?               |
//! | [`gid`]             | Which of a port's GIDs names this end of a path?                             |
//! | [`memory`]          | How is memory made known to a device?                                        |
//! | [`completion`]      | How does a program learn that work is done?                                  |
//! | [`queue_pair`]      | How is a reliable connection made, and which settings does it have?          |
//! | [`work`]            | How are many work requests handed over with one doorbell?                    |
//! | [`manager`]         | How does rdma_cm connect queue pairs, where numbers alone do not do (iWARP)? |
//! | [`sys`]             | What do the C headers declare?                                               |
//!
//! ```no_run
//! use causeway_verbs::{Access, Buffer, CompletionQueue, Device, Libraries, ProtectionDomain};
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

pub mod completion;
pub mod device;
pub mod gid;
pub mod library;
pub mod manager;
pub mod memory;
pub mod queue_pair;
pub mod sys;
pub mod work;

pub use completion::{Completion, CompletionQueue, Outcome, Status};
pub use device::{Description, Device, DeviceError, Limits, LinkLayer, Port, PortState, Transport};
pub use gid::{Gid, GidEntry, GidKind};
pub use library::{Libraries, LoadError};
pub use manager::{Connection, Listener, ManagerError, Request, Route};
pub use memory::{Access, Buffer, MemoryRegion, ProtectionDomain, RegisterError};
pub use queue_pair::{Capacity, PathMtu, QueuePair, QueuePairError, RemoteEnd, Settings};
pub use work::{Operation, PostError, Receive, RemoteMemory, Segment, SendBatch, SendRequest};
