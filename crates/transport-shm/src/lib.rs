//! The transport over memory that both processes map, for two processes of one host.
//!
//! The worker makes the memory, a sealed memfd, and hands it over a Unix socket that stays open: descriptors
//! go over it later, and its end tells each side that the other has gone. The memory holds, for each
//! direction, a ring of bytes for frames, a ring of announcements, a ring of returns, and a *staging arena*:
//! slots of which the sender takes a range for a piece of a transfer, fills it, announces it, and gets it
//! back when the receiver has done with it. So the bytes of a transfer are written once and are read where
//! they lie.
//!
//! | Module       | Question it answers                                                        |
//! |--------------|----------------------------------------------------------------------------|
//! | [`layout`]   | What lies where in the memory?                                             |
//! | `segment`    | How is the memory made, handed over, checked and mapped?                    |
//! | `ring`       | How do bytes and entries get across in order?                               |
//! | `arena`      | How are pieces leased, announced, and given back?                             |
//! | `side`       | How do descriptors get across, and who notices that the peer has gone?      |
//! | `state`      | What do the threads of a link have in common, and how does it end?          |
//! | `messages`   | How do the frames of a link travel?                                         |
//! | `transfers`  | How do the bytes of a transfer travel?                                      |
//! | [`staging`]  | How large is the staging arena of a session?                                |
//! | [`upgrade`]  | How do two processes come to share a segment?                               |
//! | `error`      | Why do two processes not share memory?                                      |
//! | `violation`  | How can a peer break the rules?                                             |
//! | `fuzzing`    | What must hold whatever the peer writes, and whenever?                       |
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
