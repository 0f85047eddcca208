//! Activity counters of a session, which the broker reads while it runs.
//!
//! A worker counts into a page that it shares with its broker. That reads the page whenever somebody asks,
//! also of a worker that hangs, and believes nothing of it but that it is numbers.
//!
//! | Module      | Question it answers                                |
//! |-------------|----------------------------------------------------|
//! | `histogram` | How many took how long?                            |
//! | `page`      | Where are the counts, and who may read them?       |

mod histogram;
mod page;

pub use histogram::{BOUNDS, Histogram};
pub use page::{Activity, ActivityPage, Counts};
