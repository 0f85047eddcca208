//! Access to servers: connect strings, keys, and where they are kept. Which clients a server admits is
//! decided there, in `broker::access`.
//!
//! | module | contents |
//! | --- | --- |
//! | `target` | Server address and key, as the user writes them |
//! | `keys` | Keys of servers and clients, and where they are stored |
//! | `user` | Name of this process' user: as its variables have it, or the file of users |
//! | `local` | Servers of this host: names of their sockets, private runtime folder, and the system service of the machine |
//! | `servers` | Server lists: as users write them, and as configuration files have them |

pub mod keys;
pub mod local;
pub mod servers;
pub mod target;
mod user;

pub use local::{machine_service, private_folder, service_key_file};
pub use servers::{ServersError, servers};
pub use target::{
    ClientName, DEFAULT_PORT, Endpoint, Invitation, Key, KeyError, Target, TargetError, VsockAddress,
};
pub use user::current_user;
