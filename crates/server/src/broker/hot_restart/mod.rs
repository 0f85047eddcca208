//! Hot restart: a new broker takes the place of the one that runs, and sessions go on.
//!
//! The running broker, the *parent*, starts the program anew, the *child*, with one end of a control connection at its
//! standard input. When the child is ready to serve, it gets the parent's listening sockets, and the parent accepts
//! nobody any more. Sessions and their workers stay with the parent, which ends with the last one: workers always have a
//! broker of their own release, and a child that does not start costs nothing. Who comes to one of these sessions later
//! (a bulk lane, another server's worker, ...) comes to the child, which hands the connection over to the parent. The
//! names are those of Envoy's hot restart.
//!
//! | Module      | Question it answers                                              |
//! |-------------|------------------------------------------------------------------|
//! | `link`      | How do the two ask each other?                                   |
//! | `sockets`   | Which listening sockets does a child get?                        |
//! | `relatives` | What does a broker have of its parent, and of its child?         |
//! | `take_over` | How does a child begin, and what does it hear from its parent?   |
//! | `hand_over` | How does a parent hand over, and what does it do for its child?  |

mod hand_over;
mod link;
mod relatives;
mod sockets;
mod take_over;

pub use hand_over::{HandOverError, hand_over};
pub use relatives::{Forward, Relatives};
pub use sockets::InheritedSockets;
pub use take_over::{Inheritance, TakeOverError, follow_parent};
