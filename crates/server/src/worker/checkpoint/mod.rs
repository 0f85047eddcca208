//! Checkpoint of a session: at a quiet point its state goes to a file, from which another worker makes it again.
//!
//! The client takes no part. Its commands are held back where it has sent them: what this worker has not dealt with, the
//! client keeps, as for any session that is resumed, and sends it to the worker it finds. So it does not matter for
//! what it computes where the session goes on: here, when anything fails, or there.
//!
//! | Module    | Question it answers                                                      |
//! |-----------|--------------------------------------------------------------------------|
//! | `hold`    | When is there a quiet point, and what follows it?                         |
//! | `write`   | What is the session's state?                                              |
//! | `restore` | How is a session made of its state?                                       |
//! | `code`    | Where do the variables of loaded code lie, and where when it is loaded anew? |
//! | `stages`  | Where does the time of a move go?                                       |
//! | `memory`  | How do bytes get from and to the memory of a device?                      |

mod code;
mod hold;
mod memory;
mod restore;
mod stages;
mod write;

pub use hold::{Held, hold, relocated};
pub use restore::{NotRestored, compare, read_link, restore};
