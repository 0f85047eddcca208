//! Server address and key, as the user writes them.
//!
//! | Module       | Contents |
//! |--------------|----------|
//! | `address`    | Server address, and its parser |
//! | `key`        | Secret of a server and its clients, and the name of a client that has its own |
//! | `invitation` | Invitation of a new client to enrol a key |

mod address;
mod invitation;
mod key;

pub use crate::target::address::TargetError;
pub use crate::target::key::{ClientName, ClientNameError};
pub use address::{DEFAULT_PORT, Endpoint, Target};
pub use invitation::{Invitation, InvitationError};
pub use key::{
    Key, KeyError, address_proof, invitation_id, is_address_proof, is_socket_proof, key_id, random_bytes,
    socket_proof, ticket_id,
};
