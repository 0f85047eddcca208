//! Access to servers: connect strings, keys, and where they are kept. Which clients a server admits is
//! decided there, in `broker::access`.
//!
//! | Module          | Contents |
//! |-----------------|----------|
//! | [`mod@servers`] | Server lists: as users write them, and as configuration files have them |
//! | [`target`]      | Server addresses, keys, names of clients, invitations |
//! | [`keys`]        | Key files, the list of clients, and their limits |
//! | `user`          | Name of this process' user |
//! | [`local`]       | Servers of this host: names of sockets, private folder, system service |

pub mod keys;
pub mod local;
pub mod servers;
pub mod target;
mod user;

pub use local::{machine_service, private_folder, service_key_file};
pub use servers::{ServersError, servers};
pub use target::{ClientName, DEFAULT_PORT, Endpoint, Invitation, Key, KeyError, Target, TargetError};
pub use user::current_user;
