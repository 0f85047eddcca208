//! Connection manager (rdma_cm) for queue pairs.
//!
//! It finds the device that belongs to an IP address, exchanges what both queue pairs need, and brings them
//! into their states. iWARP devices are connected in no other way. Both ends carry a few bytes of the
//! program's own with the request, by which they recognise each other.
//!
//! Everything here waits, up to a deadline, and is meant for the start of a session.
//!
//! | Module       | Question it answers                                          |
//! |--------------|--------------------------------------------------------------|
//! | `route`      | How is a peer that listens found and connected to?           |
//! | `listener`   | How are the requests of peers received and accepted?         |
//! | `connection` | What is this end of one before and after it is made?         |
//! | `identifier` | What does librdmacm keep for one end, and when does it end?  |
//! | `error`      | Why is a connection not made?                                |
//! | `address`    | In which form do the system's calls take an address?         |

mod address;
mod connection;
mod error;
mod identifier;
mod listener;
mod route;

pub use connection::{Connection, MAX_PRIVATE_DATA, Unjoined};
pub use error::ManagerError;
pub(crate) use error::step_failed;
pub use listener::{Listener, Request};
pub use route::Route;
