//! Rendezvous transfers: offers, fetches, staging.
//!
//! The sender *offers* a range of its memory under a number, which the message's descriptor tells. The
//! receiver *fetches* it: it chooses the channel, asks over the connection that joins the two, and moves
//! the bytes. At the sender a thread for each peer serves such requests, so that a transfer goes on whatever
//! the program does meanwhile; no thread but the program's own ever calls the MPI.
//!
//! | Module      | Question it answers                                                    |
//! |-------------|------------------------------------------------------------------------|
//! | `state_words`     | How do both ends know what has become of an offer, without a message?  |
//! | `control_slot`   | Through which memory do ranks exchange the words of collective calls?  |
//! | `network`   | How do they travel over a network?                                     |
//! | `offers`    | What does this rank send, and what has become of it?                   |
//! | `short`     | Which short messages are offered?                                      |
//! | `serve`     | What does the sender's thread do for a peer?                           |
//! | `sender`    | How does it give a payload, by each channel?                           |
//! | `fetch`     | How does the receiver get the bytes?                                   |
//! | `in_flight` | Which copies of a receiver are under way, and which have ended?        |
//! | `choosing`  | Which channel does a receiver take for the messages of a peer?         |
//! | `failures`  | Which channels are left alone for a while, since they have failed?     |

pub(crate) mod choosing;
pub(crate) mod control_slot;
mod failures;
pub(crate) mod fetch;
pub(crate) mod in_flight;
mod network;
pub mod offers;
mod sender;
pub(crate) mod serve;
pub(crate) mod short;
pub(crate) mod state_words;
