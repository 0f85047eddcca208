//! Hot restart: a new broker takes the place of the one that runs, and sessions go on.
//!
//! The running broker, the *parent*, starts the program anew, the *child*, with one end of a control connection at its
//! standard input. When the child is ready to serve, it gets the parent's listening sockets, and the parent accepts
//! nobody any more. Sessions and their workers stay with the parent, which ends with the last one: workers always have a
//! broker of their own release, and a child that does not start costs nothing. Who comes to one of these sessions later
//! (a bulk lane, another server's worker, ...) comes to the child, which hands the connection over to the parent. The
//! names are those of Envoy's hot restart.
//!
//! | module | contents |
//! | --- | --- |
//! | `link` | Control connection between two brokers: messages, and questions that are answered |
//! | `sockets` | Listening sockets that a broker gets from the one whose place it takes |
//! | `relatives` | Parent and child of a broker, whose sessions belong to the same server |
//! | `take_over` | Child's side of a hot restart: what it gets from its parent, and what it hears from it as long as that lives |
//! | `hand_over` | Parent's side of a hot restart: what it gives its child, and what it does for it as long as its own sessions last |

mod hand_over;
mod link;
mod relatives;
mod sockets;
mod take_over;

pub use hand_over::{HandOverError, hand_over};
pub use relatives::{Forward, Relatives};
pub use sockets::InheritedSockets;
pub use take_over::{Inheritance, TakeOverError, follow_parent};
