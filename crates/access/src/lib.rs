//! Where a server is and who may use it: connect strings, keys, and where they are kept. Whom a server lets in is
//! decided there, in `broker::access`.
//!
//! | Module              | Question it answers                                                   |
//! |---------------------|-----------------------------------------------------------------------|
//! | [`mod@servers`]     | Which servers does somebody mean who writes a list of them?            |
//! | [`target`]          | Where is the server, and with which key?                               |
//! | [`keys`]            | Which key is a server's, and where is it kept?                         |
//! | [`private_folder()`] | Where are sockets and files that no other user may reach?             |
//! | `machine_service`   | Is there a service of this machine, and where is its key?              |
//! | [`local`]           | Which sockets of this host are servers', and is a server on this host? |

pub mod keys;
pub mod local;
mod machine_service;
mod private_folder;
pub mod servers;
pub mod target;

pub use machine_service::{machine_service, service_key_file};
pub use private_folder::private_folder;
pub use servers::{ServersError, servers};
pub use target::{ClientName, DEFAULT_PORT, Endpoint, Invitation, Key, KeyError, Target, TargetError};
