//! Rendezvous transfers: offers, fetches, staging.
//!
//! The sender *offers* a range of its memory under a number, which the message's descriptor tells. The
//! receiver *fetches* it: it chooses the channel, asks over the connection that joins the two, and moves
//! the bytes. At the sender a thread for each peer serves such requests, so that a transfer goes on whatever
//! the program does meanwhile; no thread but the program's own ever calls the MPI.
//!
//! | Module      | Question it answers                                                    |
//! |-------------|------------------------------------------------------------------------|
//! | `message`   | What do two ranks say to each other about a transfer?                  |
//! | `exchange`  | How do they exchange it?                                               |
//! | `state_words`     | How do both ends know what has become of an offer, without a message?  |
//! | `control_slot`   | Through which memory do ranks exchange the words of collective calls?  |
//! | `slots`     | Through which memory do bytes pass that the receiver cannot map?       |
//! | `network`   | How do they travel over a network?                                     |
//! | `rdma_staging` | Through which memory do they pass that a card cannot reach where they lie? |
//! | `regions`   | Which memory of GPUs here does a card reach?                           |
//! | `offers`    | What does this rank send, and what has become of it?                   |
//! | `short`     | Which short messages are offered?                                      |
//! | `serve`     | What does the sender's thread do for a peer?                           |
//! | `sender`    | How does it give a payload, by each channel?                           |
//! | `fetch`     | How does the receiver get the bytes?                                   |
//! | `in_flight` | Which copies of a receiver are under way, and which have ended?        |
//! | `choosing`  | Which channel does a receiver take for the messages of a peer?         |
//! | `failures`  | Which channels are left alone for a while, since they have failed?     |
//! | `cache`     | Which memory of a peer stays open?                                     |

pub(crate) mod cache;
pub(crate) mod choosing;
pub(crate) mod control_slot;
mod error;
mod exchange;
mod failures;
pub(crate) mod fetch;
pub(crate) mod in_flight;
pub(crate) mod message;
mod network;
pub mod offers;
mod rdma_staging;
mod regions;
mod sender;
pub(crate) mod serve;
pub(crate) mod short;
pub(crate) mod slots;
pub(crate) mod state_words;

pub use error::TransferError;
