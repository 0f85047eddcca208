//! Migration of a rank to another container.
//!
//! | Module  | Question it answers                                                |
//! |---------|--------------------------------------------------------------------|
//! | `epoch` | Which messages may start, and which step of a move comes next? Pure. |
//! | `gate`  | How do threads that move messages wait for a move, and it for them? |

mod epoch;
mod gate;

pub use epoch::{Epoch, MoveError, Start};
pub(crate) use gate::Gate;
