//! Connections: byte streams between two processes, authenticated and encrypted, before and beside a link.
//!
//! Every session begins on one, whatever carries it later, and bulk lanes are nothing else.
//!
//! | Module       | Question it answers                                                        |
//! |--------------|----------------------------------------------------------------------------|
//! | [`dial`]     | How is a connection to a server made, and by whom?                          |
//! | [`host_socket`] | How is a Unix socket reached whose name a peer has told, and who listens there? |
//! | [`socket`]   | How is a TCP connection made, and a dead peer told from a quiet one?        |
//! | [`noise`]    | How do two ends that share a key prove it and agree on session keys?        |
//! | [`record`]   | How are bytes encrypted and checked on their way?                           |
//! | [`channel`]  | How are bytes sent and received, encrypted or not?                          |
//! | `splice`     | How do bytes get to the kernel without being copied?                        |
//! | [`unix`]     | How is a Unix socket reached or made whose path is long?                    |
//! | `transmit`   | How does a system call on a socket finish what it began?                    |
//! | [`keepalive`] | When does a connection count as dead, although TCP still answers?          |
//! | [`exchange`] | How do questions and answers go over a connection without a link?           |

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

pub use dial::{Dial, dial_here};
