//! Receiver of payloads.
//!
//! | Module    | Question it answers                                                      |
//! |-----------|--------------------------------------------------------------------------|
//! | `order`   | What is to be fetched, and what has come of it?                          |
//! | `fetcher` | What does a receiver have of a peer, and where do bytes go?              |
//! | `choose`  | By which channel is a payload fetched, and by which where that one fails? |
//! | `open`    | How does a payload come out of memory that is open here?                 |
//! | `kernel_access`   | How do kernels here come to memory where it lies?                        |
//! | `ask`     | How does a payload come that the sender is asked for?                    |
//! | `bar`     | How does a payload come that the processors of both ends copy?           |
//! | `rdma`    | How does a payload come that this rank's card reads?                     |
//! | `reading` | What does a receiver have of a peer that it reads by a card?             |
//! | `pass`    | How does a payload come through slots?                                   |
//! | `openings` | Is the time of a fetch what its channel costs?                          |

mod ask;
mod bar;
mod choose;
mod fetcher;
mod kernel_access;
mod open;
mod openings;
mod order;
mod pass;
mod rdma;
mod reading;

pub(crate) use fetcher::Fetcher;
pub use kernel_access::MappedMemory;
pub(crate) use order::{Order, Outcome, PendingFetch, Wait};
