//! Reliable connected queue pair (RC QP), and its settings.
//!
//! | Module     | Question it answers                                                       |
//! |------------|---------------------------------------------------------------------------|
//! | `lifetime` | How is a queue pair made, and when does it end?                           |
//! | `settings` | How does a queue pair behave towards the path and the peer?               |
//! | `states`   | Through which states does it go, and where is it joined with the peer's?  |
//! | `posting`  | How do requests get into its queues?                                      |

mod lifetime;
mod posting;
mod settings;
mod states;

pub use lifetime::{Capacity, QueuePair, QueuePairError};
pub(crate) use lifetime::{DestroyQueuePair, initial};
pub use settings::{PathMtu, Settings};
pub use states::RemoteEnd;
