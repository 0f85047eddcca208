//! Where a server is and with which key it is reached, as the user writes it.
//!
//! | Module    | Question it answers                                |
//! |-----------|----------------------------------------------------|
//! | `parse`   | How does a user write a target?                    |
//! | `address` | Where is a server, and how is that written?        |
//! | `key`     | What do a server and its clients share as a secret? |
//! | `invitation` | How is a new client invited to enrol a key?         |
//! | `client_name` | What is a client called that has a key of its own? |

mod address;
mod client_name;
mod invitation;
mod key;
mod parse;

pub use address::{DEFAULT_PORT, Endpoint, Target};
pub use client_name::{ClientName, ClientNameError};
pub use invitation::{Invitation, InvitationError};
pub use key::{
    Key, KeyError, address_proof, invitation_id, is_address_proof, is_socket_proof, key_id, random_bytes,
    socket_proof, ticket_id,
};
pub use parse::TargetError;
