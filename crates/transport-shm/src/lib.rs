//! The transport over memory that both processes map, for two processes of one host.
//!
//! The worker makes the memory, a sealed memfd, and hands it over a Unix socket that stays open: descriptors
//! go over it later, and its end tells each side that the other has gone. The memory holds, for each
//! direction, a ring of bytes for frames, a ring of announcements, a ring of returns, and a *staging arena*:
//! slots of which the sender takes a range for a piece of a transfer, fills it, announces it, and gets it
//! back when the receiver has done with it. So the bytes of a transfer are written once and are read where
//! they lie.
//!
//! | module | contents |
//! | --- | --- |
//! | `layout` | Layout of the shared segment |
//! | `segment` | Shared segment: creation, hand-over, checks and mapping |
//! | `ring` | Ring buffers in shared memory, for bytes and for entries |
//! | `arena` | Slot allocator of the staging arena: leases, announcements and returns |
//! | `side` | Side channel (Unix socket): descriptor passing, and detection of disconnects |
//! | `state` | State shared by the threads of a link over shared memory, and its shutdown |
//! | `messages` | Frames of a link over shared memory |
//! | `transfers` | Transfers over shared memory |
//! | `staging` | Size of a session's staging arena |
//! | `upgrade` | Upgrade of a connection to shared memory |
//! | `error` | Errors of setting up shared memory between two processes |
//! | `violation` | Protocol violations of a peer in shared memory |
//! | `fuzzing` | Properties of the rings for anything that a peer writes into shared memory, between any two steps of this side |
//!
//! Everything in the memory is the peer's to change at any moment. So each word is read once, checked, and
//! only then used; what this side needs to know for certain (how far it has written or read, which slots it
//! has leased) it keeps for itself. A peer that breaks the rules ends its own link.

mod arena;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(test)]
mod hostile;
pub mod layout;
mod messages;
mod ring;
mod segment;
mod side;
pub mod staging;
mod state;
mod transfers;
pub mod upgrade;
mod violation;

pub use error::UpgradeError;
pub use segment::SegmentError;
pub use violation::Violation;
