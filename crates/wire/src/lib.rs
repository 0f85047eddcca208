//! The session protocol without I/O: what the bytes between a client and its worker mean.
//!
//! Nothing here opens a socket, reads a clock or starts a thread; bytes come in as slices and go out into
//! vectors, so every rule can be tested (and fuzzed) without a network. From the outside in:
//!
//! | Module        | Question it answers                                                            |
//! |---------------|--------------------------------------------------------------------------------|
//! | [`handshake`] | How do two ends agree to talk, and in which version?                            |
//! | [`frame`]     | Where does a batch of messages begin and end on the command connection?         |
//! | [`sequence`]  | Did a frame get lost or come twice, and what has the peer already dealt with?   |
//! | [`message`]   | What does a client say to its worker, and the worker to its client?             |
//! | [`chunk`]     | How do large copies travel on the bulk lanes?                                   |
//! | [`remote_region`] | Which memory may the other end's network card read or write?                   |
//! | [`moves`]     | What do servers do when a session is moved?                                    |
//! | [`relocation`] | Where does a session go on, and in which state is its link?                    |
//! | [`status`]    | What does a client learn of a server's sessions and devices?                   |
//! | [`diagnosis`] | What does a client ask about the server's machine?                             |
//! | [`codec`]     | How is a value written as bytes and read back without trusting them?            |
//! | [`text`]      | Which characters of a text may be shown on a terminal or written to a log?      |

pub mod chunk;
pub mod codec;
pub mod compressed;
pub mod diagnosis;
pub mod frame;
pub mod handshake;
pub mod message;
pub mod moves;
pub mod relocation;
pub mod remote_region;
pub mod sequence;
pub mod status;
pub mod text;
