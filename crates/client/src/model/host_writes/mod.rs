//! In which order do copies from devices write to the program's memory?
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
//!   has passed the copy, and the parts of several copies come on several lanes. So a transfer knows its
//!   *dependencies*: unfinished transfers into an overlapping range that lie before it
//!   ([`StreamState::pending_writes`](crate::model::stream::StreamState::pending_writes)). Its first chunk
//!   goes in place when they have finished; otherwise the transfer is received into a *bounce buffer*, and
//!   stored in place by a thread of its own when the last dependency has finished. A transfer has finished
//!   when its bytes are in place, so every wait stays right.
//! - *Read after write*: a copy to a device whose source may still be written reads it when its stream gets
//!   there (`copy/to_device.rs`), and a host function runs when the bytes before it are in place
//!   (`session/callbacks.rs`).
//! - *Write after read*: the server issues a copy from a device behind the copies to a device that its stream
//!   holds, for which their bytes must have come (`worker/order.rs` of the server).
//! - Memory that the device reaches itself, mapped, managed or shared with the server, is written by commands
//!   of the device, whose order is the device's (`mirrored`).
//!
//! Memory: overlapping transfers share a flow on the lanes, where the next one begins when all chunks of the
//! one before have been taken. So only what other lanes deliver while one lane is late is received into
//! bounce buffers; a transfer whose first chunk comes after its dependencies takes none. A program that goes
//! on posting is stopped at [`MOST_OVERLAPPING`] bytes of unfinished transfers that have dependencies.
//!
//! | Module | Question it answers |
//! |---|---|
//! | `ranges` | Which unfinished writes overlap a range? |
//! | `order` | May this transfer be written in place, and which ones may be stored now? |
//! | `bounce` | Where do bounce buffers come from? |
//! | `store` | Who stores what lies in bounce buffers? |

mod bounce;
mod order;
mod ranges;
mod store;

pub use bounce::Bounce;
pub use order::Writes;
pub use ranges::Key;
pub use store::{Store, later};

/// Bytes of unfinished transfers that have dependencies at which a copying call waits for the oldest of them,
/// if nothing that the program's own code has to end lies before it.
pub const MOST_OVERLAPPING: usize = 256 << 20;
