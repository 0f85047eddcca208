//! Reception of transfers into the program's memory.
//!
//! | module | contents |
//! | --- | --- |
//! | `expect` | Registration of expected transfers with the link, and waking of the receiver |
//! | `receive_buffer` | Receive buffer of a transfer: direct, scattered, or through a bounce buffer |

pub mod expect;
pub mod receive_buffer;
