//! The two directions of a connection, encrypted or not.
//!
//! Memory of the program (the source or the destination of a large copy) is handed to the kernel as it is,
//! never as a Rust slice: the program's other threads may touch it meanwhile. On an encrypted connection it
//! is copied into a record before it is encrypted, and decrypted where it arrives.
//!
//! | Module       | Question it answers                                           |
//! |--------------|---------------------------------------------------------------|
//! | `handshake`  | How do the first frames travel, before there is a link?        |
//! | `connection` | What is a connection, and how does it go to another process?   |
//! | `outgoing`   | How do bytes get to the peer?                                  |
//! | `incoming`   | How do bytes come from the peer?                               |
//! | `socket`     | What do both directions share, and how does it end?            |

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
