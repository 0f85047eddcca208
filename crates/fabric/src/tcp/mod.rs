//! Links over TCP.
//!
//! | Module      | Question it answers                                                         |
//! |-------------|-----------------------------------------------------------------------------|
//! | `messages`  | How do the frames of a link travel?                                          |
//! | `lanes`     | How is a large copy striped over several connections?                        |
//! | `schedule`  | Which lane sends what next, and what again when a lane has died?              |

pub(crate) mod lanes;
pub(crate) mod messages;
pub(crate) mod schedule;
