//! Links over TCP.
//!
//! | Module      | Question it answers                                                         |
//! |-------------|-----------------------------------------------------------------------------|
//! | [`socket`]  | How is a connection made, and how is a dead peer told from a quiet one?      |
//! | [`noise`]   | How do two ends that share a key prove it and agree on session keys?         |
//! | [`record`]  | How are bytes encrypted and checked on their way?                            |
//! | [`channel`] | How are bytes sent and received, encrypted or not?                           |
//! | `splice`    | How do bytes get to the kernel without being copied?                         |
//! | `transmit`  | How does a system call on a socket finish what it began?                     |
//! | `messages`  | How do the frames of a link travel?                                          |
//! | `lanes`     | How is a large copy striped over several connections?                        |
//! | `schedule`  | Which lane sends what next, and what again when a lane has died?              |

pub mod channel;
pub(crate) mod lanes;
pub(crate) mod messages;
pub mod noise;
pub mod record;
pub(crate) mod schedule;
pub mod socket;
mod splice;
mod transmit;
