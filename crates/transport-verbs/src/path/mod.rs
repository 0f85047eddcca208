//! Send path of one queue pair: messages, writes and reads.
//!
//! | Module    | Question it answers                                                             |
//! |-----------|---------------------------------------------------------------------------------|
//! | `pump`    | What of that which waits for room is posted now?                                  |
//! | `eager`   | How do short stripes go with their announcements, one or several in a message?      |
//! | `frames`  | How do bytes of the link's frames get into a queue pair?                          |
//! | `posting` | How does a request get into one queue pair, and what ends it?                     |
//! | `stripe`  | What is a stripe of a piece, which one queue pair moves and announces?              |

mod eager;
mod frames;
mod posting;
mod pump;
mod stripe;

pub use frames::SlotFrames;
pub use posting::{Path, send_layout};
pub use stripe::{MAX_EAGER_BYTES, Notice, Stripe, Work};
