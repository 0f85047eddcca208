//! Checkpoint of a session: at a quiet point its state goes to a file, from which another worker makes it again.
//!
//! The client takes no part. Its commands are held back where it has sent them: what this worker has not dealt with, the
//! client keeps, as for any session that is resumed, and sends it to the worker it finds. So it does not matter for
//! what it computes where the session goes on: here, when anything fails, or there.
//!
//! | module | contents |
//! | --- | --- |
//! | `hold` | The quiet point of a session: its client's commands are held back until the state is written, and until it is known where it goes on |
//! | `write` | The state of a session that is held, as it goes to a file |
//! | `restore` | A session made of the state that another worker has written |
//! | `code` | Loaded code of a session: addresses of its variables, here and in the worker that goes on with it |
//! | `stages` | Stages of a move in the log |
//! | `memory` | Device memory of a session at rest: read and written piece by piece, by several threads |

mod code;
mod hold;
mod memory;
mod restore;
mod stages;
mod write;

pub use hold::{Held, hold, relocated};
pub use restore::{NotRestored, compare, read_link, restore};
