//! Destination side of copies between servers.
//!
//! A copy takes one step after the other on one thread, so that a thread that notices something, a lane's or
//! a completion of the back end, has only to say so there.
//!
//! | module | contents |
//! | --- | --- |
//! | `copy` | Destination side of one copy between servers: its pieces in flight, and its stream |
//! | `reader` | Reader: read requests to another worker, dispatch of its responses, and the fair queue of the copies that read from it |

mod copy;
mod reader;

pub use copy::copy;
pub use reader::Reader;
