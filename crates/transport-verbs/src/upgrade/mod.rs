//! Upgrade of a connection to queue pairs.
//!
//! The client opens one more connection to the server, proves there that it owns the session, and says what
//! it would like; the broker hands the connection to the session's worker. Both then tell each other what
//! their queue pairs need and bring them up, or let rdma_cm do that, which iWARP demands; the client greets
//! the worker on each queue pair, the worker answers there, and with that the client decides to go on over
//! verbs and says so. Until then either may give up by ending the connection, and the session stays on TCP.
//!
//! | Module        | Question it answers                                                                   |
//! |---------------|---------------------------------------------------------------------------------------|
//! | `client`      | Could a client use verbs, and what does it do to be joined?                           |
//! | `worker`      | What does the worker do to be joined, and what does the client hear where that fails? |
//! | `description` | What does an end tell the other one, and what follows for the paths between them?     |
//! | `messages`       | What do the ends hear of each other on the connection beside the queue pairs?          |
//! | `hello`       | Do the queue pairs carry messages?                                                    |
//! | `joined`      | What is a link made of when its queue pairs are joined?                                |
//! | `rdma_cm`     | How does rdma_cm join the queue pairs of both ends?                                   |

mod client;
mod description;
mod hello;
mod joined;
mod messages;
mod rdma_cm;
mod worker;

pub use client::{VerbsCapability, chance, chance_with};
pub use joined::Joined;
pub use worker::{offer, offer_with};
