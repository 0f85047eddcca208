//! Connections: byte streams between two processes, authenticated and encrypted, before and beside a link.
//!
//! Every session begins on one, whatever carries it later, and bulk lanes are nothing else.
//!
//! | module | contents |
//! | --- | --- |
//! | `dial` | Connecting to a server, in this process or by another one |
//! | `host_socket` | Abstract Unix sockets of this host: connecting by name, and proof of the listener's identity |
//! | `socket` | Making TCP connections, and telling a dead peer from a quiet one |
//! | `noise` | The encrypted handshake: Noise `NNpsk0` with Curve25519, AES-256-GCM and SHA-256, by the `snow` library |
//! | `record` | Records: the units in which an encrypted connection carries bytes |
//! | `channel` | The two directions of a connection, encrypted or not |
//! | `splice` | Zero-copy sending with `vmsplice` and `splice` |
//! | `unix` | Unix sockets whose path is longer than `sockaddr_un` allows |
//! | `vsock` | vsock connections: byte streams between a virtual machine and its host, without a network |
//! | `transmit` | System calls on sockets that go on until everything is done, also on memory that is not ours alone |
//! | `keepalive` | Keepalive timeouts: when a connection on which nothing is received counts as dead, although TCP still acknowledges |
//! | `exchange` | Questions and answers over one connection: what a monitoring session needs, which has no posted calls, no transfers and no threads |

pub mod channel;
pub mod dial;
pub mod exchange;
pub mod host_socket;
pub mod keepalive;
pub mod noise;
pub mod record;
pub mod socket;
mod splice;
mod transmit;
pub mod unix;
pub mod vsock;

pub use dial::{Dial, dial_here};
