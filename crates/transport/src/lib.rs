//! What a link and its transports know of each other, and what transports have in common. No transport is
//! known here.
//!
//! A link joins two processes for one session. It carries ordered *messages*, gathered into batches, and
//! *transfers*: large copies that go straight into their destination. A *transport* moves both: see
//! [`transport`] for what it implements.
//!
//! | Module           | Question it answers                                                             |
//! |------------------|---------------------------------------------------------------------------------|
//! | [`transport`]    | What does a transport give a link?                                               |
//! | [`one_sided`]    | What can a transport do whose network cards reach memory by themselves?          |
//! | [`shared`]       | What do a link and its transport share, and how does a link end?                 |
//! | [`events`]       | What is the owner of a link told?                                                |
//! | [`error`]        | What can go wrong?                                                               |
//! | [`sending`]      | What is sent as a transfer, how, and until when is its memory in use?            |
//! | [`destination`]  | Where do the bytes of a transfer go?                                             |
//! | [`transfers`]    | Which transfers are expected or under way, and who hears of their end?           |
//! | [`pacing`]       | How do transfers keep to a rate?                                                  |
//! | [`counters`]     | What has gone over a link?                                                       |
//! | [`slots`]        | Which slots of staging memory are free?                                          |
//! | [`delivery`]     | How does a piece get out of staging memory to where it belongs?                  |
//! | [`staging`]      | Through which memory do transfers pass?                                          |
//! | [`send_queue`]  | Who sends transfers that nobody waits for, and who copies what has come?         |

pub mod counters;
pub mod delivery;
pub mod destination;
pub mod error;
pub mod events;
pub mod one_sided;
pub mod pacing;
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
pub use events::{Awaited, LinkEvents};
pub use one_sided::{DeviceMemory, DeviceUse, NotRegistered, OnComplete, OneSided, RegionSlice};
pub use pacing::{Direction, Pacer};
pub use sending::{Address, BufferGuard, Order, Pending, Sending, TransferOptions};
pub use shared::{Carrier, Shared, spawn_or_lose};
pub use transfers::{ChunkDestination, ReceivedChunk, Transfers};
pub use transport::{Memory, Parts, ReceiveMessages, SendMessages};
