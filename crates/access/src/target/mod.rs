//! Server address and key, as the user writes them.
//!
//! | module | contents |
//! | --- | --- |
//! | `address` | Server address (target): host, port or socket, protection, and the parser of addresses that users write |
//! | `key` | Key: the secret that a server and its clients share, its IDs and proofs, and the name of a client with its own |
//! | `invitation` | Invitation: a server's address with a secret by which one new client enrols its key there, once |
//! | `vsock` | vsock address: the number of a virtual machine or of its host (CID), and a port (`man 7 vsock`) |

mod address;
mod invitation;
mod key;
mod vsock;

pub use crate::target::address::TargetError;
pub use crate::target::key::{ClientName, ClientNameError};
pub use address::{DEFAULT_PORT, Endpoint, Target};
pub use invitation::{Invitation, InvitationError};
pub use key::{
    Key, KeyError, address_proof, invitation_id, is_address_proof, is_socket_proof, key_id, random_bytes,
    socket_proof, ticket_id,
};
pub use vsock::{VsockAddress, VsockAddressError};
