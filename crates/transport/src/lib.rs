//! What a link and its transports know of each other, and what transports have in common. No transport is
//! known here.
//!
//! A link joins two processes for one session. It carries ordered *messages*, gathered into batches, and
//! *transfers*: large copies that go straight into their destination. A *transport* moves both: see
//! [`transport`] for what it implements.
//!
//! | module | contents |
//! | --- | --- |
//! | `transport` | What a transport gives a link: *messages* and *memory* |
//! | `one_sided` | One-sided interface of transports with RDMA |
//! | `shared` | State shared by a link and its transport, and the end of a link |
//! | `events` | Callbacks to the owner of a link: what has come or was lost, and how fast transfers may go |
//! | `error` | What can go wrong on a link |
//! | `sending` | Outgoing transfer: its source, options, and the lifetime of its memory |
//! | `destination` | Destination of a transfer's bytes |
//! | `transfers` | Incoming transfers: expected and in flight, and their completion callbacks |
//! | `counters` | What has gone over a link |
//! | `slots` | Slot allocator of the arena |
//! | `delivery` | Delivery of received pieces from staging memory to their destination |
//! | `staging` | Memory through which transfers pass, whatever transport it belongs to: pieces that are filled, leases that are read, and the regions in which they lie |
//! | `send_queue` | Send queue and worker threads: background sends, and copies of received pieces |

pub mod counters;
pub mod delivery;
pub mod destination;
pub mod error;
pub mod events;
pub mod one_sided;
pub mod send_queue;
pub mod sending;
pub mod shared;
pub mod slots;
pub mod staging;
pub mod transfers;
pub mod transport;

pub use causeway_pipeline::TransportKind;
pub use counters::{Counters, count};
pub use destination::{ChooseMemory, ChunkAddress, Destination};
pub use error::{DescriptorError, LinkError, TransferError, TransportError};
pub use events::{Awaited, Direction, LinkEvents, Pacer};
pub use one_sided::{DeviceMemory, DeviceUse, NotRegistered, OnComplete, OneSided, RegionSlice};
pub use sending::{Address, BufferGuard, OutgoingTransfer, Pending, Sending, TransferOptions};
pub use shared::{Carrier, Shared, spawn_or_lose};
pub use transfers::{ChunkDestination, ReceivedChunk, Transfers};
pub use transport::{Memory, Parts, ReceiveMessages, SendMessages};
