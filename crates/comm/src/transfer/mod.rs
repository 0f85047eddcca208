//! Rendezvous transfers: what a rank offers, and what it fetches of others' offers.
//!
//! The sender *offers* a range of its memory under a number, which the message's descriptor tells. The
//! receiver *fetches* it: it chooses the channel, asks over the connection that joins the two, and moves the
//! bytes. At the sender a thread for each peer serves such requests, so that a transfer goes on whatever the
//! program does meanwhile; no thread but the program's own ever calls the MPI. What a channel does at both
//! ends is in `channels`.
//!
//! | Module         | Contents                                                                        |
//! |----------------|---------------------------------------------------------------------------------|
//! | `offers`       | What this rank sends, what has become of it, and copies that replace it         |
//! | `short`        | Short messages that are offered                                                 |
//! | `serve`        | The sender's thread for a peer                                                  |
//! | `fetch`        | What a receiver has of a peer, and the fetch of a payload                       |
//! | `choice`       | The channels of a peer's messages, and which are left alone since they failed   |
//! | `in_flight`    | Copies of a receiver that are under way, or have ended                          |
//! | `state_words`  | Shared memory by which both ends know of an offer without a message             |
//! | `control_slot` | Shared memory for the control messages of collective calls                      |

pub(crate) mod choice;
pub(crate) mod control_slot;
pub(crate) mod fetch;
pub(crate) mod in_flight;
pub mod offers;
pub(crate) mod serve;
pub(crate) mod short;
pub(crate) mod state_words;

pub(crate) use fetch::Fetcher;
pub use fetch::MappedMemory;
