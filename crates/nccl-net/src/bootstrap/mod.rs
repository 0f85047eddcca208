//! Bootstrap: connections between the two ends of a communicator.
//!
//! | module | contents |
//! | --- | --- |
//! | `hello` | Handshake of a lane: both ends prove that they know the secret of the handle |
//! | `listener` | Sockets of a process, and the connections that come for each listen call |
//! | `connect` | Connecting to a receiver, on a thread: within the host where its sockets are in reach, else over TCP |
//! | `stream` | Socket of a lane before its handshake, and the connection that its lanes make |
//! | `names` | Unix sockets of a process: files in folders that containers may share, and an abstract name, which those of its network namespace reach |
//!
//! Every lane is a socket of its own, and proves by itself that it belongs to the connection.

mod connect;
mod hello;
mod listener;
mod names;
mod stream;

pub use connect::connect;
pub use listener::Listener;
pub use stream::Arrived;
