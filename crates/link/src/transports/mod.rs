//! Transports: the table, their cost, and why one is unavailable.
//!
//! One table, [`TRANSPORTS`], with a row for each. A row's *probe* is pure: from facts about both ends it
//! says what the transport can be expected to cost, or why it cannot be used. Its *dial* joins the two ends.
//! Whoever wants a session tries the rows in the order of their costs; nothing else here knows one transport
//! from another.
//!
//! | Module  | Question it answers                                                   |
//! |---------|-----------------------------------------------------------------------|
//! | `table` | Which transports are there?                                            |
//! | `order` | Which one is tried first, and which next?                              |
//! | `row`   | What does the table say of a transport?                                |
//! | `facts` | What is known of both ends before anything is tried?                   |
//! | `shm`, `verbs`, `tcp` | How is that transport judged, and how does it join two ends? |

mod facts;
mod order;
mod row;
mod shm;
mod table;
mod tcp;
mod verbs;

pub use facts::{Facts, Rdma};
pub(crate) use order::{NotEstablished, cannot_be_had, establish};
pub use row::{Accept, Cost, Dialling, NotJoined, Transport, Upgrade};
pub use table::TRANSPORTS;
