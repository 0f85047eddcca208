//! Journal of a session: the commands that made what it has now, so that another worker can make it again.
//!
//! A command whose effect is over when its work is done leaves nothing here: launches, copies, waits. What makes an
//! object stays until the object is destroyed, what changes a setting until it is changed again. What cannot be carried
//! out a second time with the same result, as far as a program can see that, is noted as a hindrance while it lasts.
//!
//! Kept is no more than what the session itself has: a client that makes no end of objects is stopped by their table.

//!
//! | module | contents |
//! | --- | --- |
//! | `entry` | Entry of a journal: a command that is carried out again, and memory |
//! | `record` | Recording of a journal: what each command leaves behind |
//! | `table` | Table of a journal: entries, hindrances and memory by what they belong to, and what ends with what |
//! | `read` | Reading of a journal: what has to be done again, and what stands against it |

mod entry;
mod read;
mod record;
mod table;

#[cfg(test)]
mod tests;

use parking_lot::Mutex;

pub use entry::Entry;
use table::Table;

/// The journal of one session, where one is kept.
#[derive(Default)]
pub struct Journal(Option<Mutex<Table>>);

/// The last record of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// The event.
    pub event: u64,
    /// The stream.
    pub stream: u64,
    /// The flags of the record.
    pub flags: u32,
    /// In which context.
    pub context: u64,
}

impl Journal {
    /// One that is kept, as the session may go to another worker.
    pub fn recording() -> Self {
        Self(Some(Mutex::default()))
    }

    /// Whether one is kept.
    pub fn is_recording(&self) -> bool {
        self.0.is_some()
    }
}
