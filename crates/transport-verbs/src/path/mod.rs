//! How do messages, writes and reads get into one queue pair?
//!
//! | Module    | Question it answers                                                             |
//! |-----------|---------------------------------------------------------------------------------|
//! | `pump`    | What of that which waits for room is posted now?                                  |
//! | `carried` | How do short parts go with their announcements, one or several in a message?      |
//! | `frames`  | How do bytes of the link's frames get into a queue pair?                          |
//! | `posting` | How does a request get into one queue pair, and what ends it?                     |
//! | `part`    | What is a part of a piece, which one queue pair moves and announces?              |

mod carried;
mod frames;
mod part;
mod posting;
mod pump;

pub use frames::SlotFrames;
pub use part::{MOST_CARRIED, Part, Said, Work};
pub use posting::{Path, send_layout};
