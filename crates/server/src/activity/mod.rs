//! Activity counters of a session, which the broker reads while it runs.
//!
//! A worker counts into a page that it shares with its broker. The broker reads the page when it is queried,
//! also of a worker that hangs, and believes nothing of it but that it is numbers.
//!
//! | module | contents |
//! | --- | --- |
//! | `histogram` | Latency histogram of one session |
//! | `page` | Counter page: shared memory with the counters of one session |

mod histogram;
mod page;

pub use histogram::{BOUNDS, Histogram};
pub use page::{Activity, ActivityPage, Counts};
