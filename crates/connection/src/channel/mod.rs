//! The two directions of a connection, encrypted or not.
//!
//! Memory of the program (the source or the destination of a large copy) is handed to the kernel as it is,
//! never as a Rust slice: the program's other threads may touch it meanwhile. On an encrypted connection it
//! is copied into a record before it is encrypted, and decrypted where it arrives.
//!
//! | module | contents |
//! | --- | --- |
//! | `handshake` | Handshake frames: sending and receiving before there is a link |
//! | `connection` | Connection: an encrypted or clear socket, and its transfer to another process |
//! | `outgoing` | Send direction of a connection |
//! | `incoming` | Receive direction of a connection |
//! | `socket` | Socket shared by both directions of a connection, and its shutdown |

mod connection;
mod handshake;
mod incoming;
mod outgoing;
mod socket;

pub use connection::{Connection, SpokeTooSoon};
pub use handshake::{HandshakeReadError, handshake_frame};
pub use incoming::Incoming;
pub use outgoing::Outgoing;
pub use socket::{Socket, end_after_goodbye, shut_down};
