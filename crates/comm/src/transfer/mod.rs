//! Rendezvous transfers: what a rank offers, and what it fetches of others' offers.
//!
//! The sender *offers* a range of its memory under a number, which the message's descriptor tells. The
//! receiver *fetches* it: it chooses the channel, asks over the connection that joins the two, and moves the
//! bytes. At the sender a thread for each peer serves such requests, so that a transfer goes on whatever the
//! program does meanwhile; no thread but the program's own ever calls the MPI. What a channel does at both
//! ends is in `channels`.
//!
//! | module | contents |
//! | --- | --- |
//! | `offers` | Offers of this rank: the table of them, and copies of those that the program has back before they are fetched |
//! | `short` | Short messages that are offered |
//! | `serve` | Serving thread of a sender: it waits for a peer's requests, and has the channel send what was offered |
//! | `fetch` | Fetch: what a receiver has of a peer, the fetch of a payload (from memory that is open here, by the chosen channel, or by others where that one fails), and peer memory mapped for kernels |
//! | `choice` | Channel choice of a receiver: which channels it has with a peer, which of them are left alone for a while since they failed, and whether the time of a fetch is what its channel costs |
//! | `in_flight` | Copies in flight |
//! | `state_words` | State words of offers, in memory that both ranks map |
//! | `control_slot` | Control slots: small messages of collectives in shared memory |

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
