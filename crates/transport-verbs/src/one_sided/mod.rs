//! One-sided operations: RDMA between registered memory at both ends.
//!
//! *To the peer's owner*, memory that is registered needs no copy into staging: it is written to the peer's
//! arena from where it is, or offered to the peer, which reads it into its arena
//! ([`Preference`](super::settings::Preference) decides). *For one copy* memory can be exposed: to be written
//! by the peer, which then says that a transfer is in place, or to be read by the peer, which then gives it
//! back. Whoever exposes memory keeps it until then.
//!
//! An operation whose link ends fails; what was exposed is not in use any more then, since the queue pairs
//! have ended.
//!
//! | Module         | Question it answers                                                          |
//! |----------------|------------------------------------------------------------------------------|
//! | `registration` | How does memory come to be known to the card?                                |
//! | `to_arena`     | How does a piece get into the arena of whoever receives it?                  |
//! | `expose`       | How is memory exposed to the peer?                                            |
//! | `access`       | How is memory used that the peer has exposed?                                 |
//! | `pending`      | How does somebody wait for the end of an operation?                          |
//! | `offered`      | What of this is offered to the link?                                         |

mod access;
mod expose;
mod offered;
mod pending;
mod registration;
mod to_arena;
