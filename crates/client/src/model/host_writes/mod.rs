//! Write order of device-to-host copies to the program's memory.
//!
//! **The rule.** Accesses of commands to host memory take effect, byte range by byte range, in the order that
//! streams, events, the legacy default stream, host functions, graphs and their launches give: write after
//! write, read after write and write after read, for pinned, registered, mapped, managed and pageable memory,
//! in one, two and three dimensions, over every transport, from one server or several. A later access waits
//! for accesses that are ordered *before* it, never for others: those may stand behind a wait-value that the
//! program ends only after it has seen the later one.
//!
//! Who keeps it:
//!
//! - *Write after write*, this folder. The bytes of copies from devices are on the wire after their stream
//!   has passed the copy, and the parts of several copies come on several lanes. So all pieces of a copy are
//!   behind a *barrier*, which stands for the unfinished transfers that lie before the copy, whichever memory
//!   they go to (`model/context/pending_writes.rs`): a thread of the program that polls must not
//!   find a byte of a later copy before the bytes of an earlier one. What comes of a transfer when all that
//!   has finished goes in place; what comes before that into a *bounce buffer*, and is stored in place when
//!   everything before it has finished, few bytes by the thread that finds that, more by a thread of its own. A
//!   transfer has finished when its bytes are in place, so every wait stays right.
//! - *Read after write*: a copy to a device whose source may still be written reads it when its stream gets
//!   there (`copy/upload.rs`), and a host function runs when the bytes before it are in place
//!   (`submit/callbacks.rs`).
//! - *Write after read*: the server issues a copy from a device behind the copies to a device that its stream
//!   holds, for which their bytes must have come (`worker/order.rs` of the server).
//! - Memory that the device reaches itself, mapped, managed or shared with the server, is written by commands
//!   of the device, whose order is the device's (`mirrored`).
//!
//! Memory: transfers that are in order share a flow on the lanes, where the next one begins when all chunks
//! of the one before have been taken. So only what other lanes deliver while one lane is late is received into
//! bounce buffers, no more than a chunk for each lane where a copy follows another; a server that sends
//! otherwise fills no more of them than the program has asked for.//!
//! | module | contents |
//! | --- | --- |
//! | `ranges` | Index of unfinished writes by address range |
//! | `order` | Order of writes: which bytes of a transfer go in place, and which buffered ones may be stored |
//! | `store` | Bounce buffers and the thread that stores them |

mod order;
mod ranges;
mod store;

pub use order::Writes;
pub use ranges::Key;
pub use store::Bounce;
pub use store::{Store, carry_out, forget_thread};
