//! Bootstrap: connections between the two ends of a communicator.
//!
//! | module | contents |
//! | --- | --- |
//! | `hello` | proof of both ends that they know the handle's secret |
//! | `listener` | sockets of a process, and who has come for which listen call |
//! | `connect` | attempts to reach a receiver, on threads of their own |
//! | `stream` | a socket before and after its handshake |
//! | `names` | Unix sockets: folders that containers share, abstract names |
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
