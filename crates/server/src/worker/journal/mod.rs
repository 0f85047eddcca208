//! Journal of a session: the commands that made what it has now, so that another worker can make it again.
//!
//! A command whose effect is over when its work is done leaves nothing here: launches, copies, waits. What makes an
//! object stays until the object is destroyed, what changes a setting until it is changed again. What cannot be carried
//! out a second time with the same result, as far as a program can see that, is noted as a hindrance while it lasts.
//!
//! Kept is no more than what the session itself has: a client that makes no end of objects is stopped by their table.
//!
//! This file reads it: entries, memory, and what stands against a move.
//!
//! | module | contents |
//! | --- | --- |
//! | `record` | Recording of a journal: what each command leaves behind |
//! | `table` | Table of a journal: entries, hindrances and memory by what they belong to, and what ends with what |

mod record;
mod table;

#[cfg(test)]
mod tests;

use crate::locks::{Mutex, rank};
use std::sync::Arc;

use causeway_api::calls::{Opcode, Request};

pub use table::Entry;

use crate::worker::incoming::Buffer;
use table::{Key, MemoryRange, Table};

/// The journal of one session, where one is kept.
#[derive(Default)]
pub struct Journal(Option<Mutex<rank::Leaf, Table>>);

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

/// A command that was carried out well.
pub struct Executed<'a> {
    /// The command.
    pub request: &'a Request<'a>,
    /// Which one it is.
    pub opcode: Opcode,
    /// The client's handle of the context that it was carried out in.
    pub context: u64,
    /// Its arguments, encoded.
    pub arguments: &'a [u8],
    /// What it has answered, if that is known.
    pub reply: &'a [u8],
    /// The bytes that belong to it.
    pub image: Option<Arc<Buffer>>,
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

    /// What cannot be carried to another worker, for people; nothing where all can.
    pub fn hindrance(&self) -> Option<String> {
        let table = self.0.as_ref()?.lock();
        let (key, what) = table.hindrances.iter().next()?;
        let more = match table.hindrances.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} thing(s) more of that kind"),
        };
        Some(match key {
            Key::Session(_) => format!(
                "its program has called {what}, whose effect cannot be carried to another server{more}"
            ),
            Key::Address(address) => format!(
                "it has {what} at {address:#x}, which cannot be carried to another server{more}; once the program has freed \
                 that, it can move"
            ),
            Key::Object(object) => format!(
                "it has {what} ({object:#x}), which cannot be carried to another server{more}; once the program has \
                 destroyed that, it can move"
            ),
            Key::Setting(..) | Key::Each(_) => what.to_string(),
        })
    }

    /// The commands that have loaded code.
    pub fn code(&self) -> Vec<Entry> {
        let is_code = |entry: &Entry| matches!(entry.opcode, Opcode::module_load | Opcode::library_load);
        let Some(table) = &self.0 else { return Vec::new() };
        table
            .lock()
            .entries
            .values()
            .map(|(_, entry)| entry)
            .filter(|entry| is_code(entry))
            .cloned()
            .collect()
    }

    /// The commands, in the order in which they are to be carried out again.
    pub fn entries(&self) -> Vec<Entry> {
        let Some(table) = &self.0 else { return Vec::new() };
        table.lock().entries.values().map(|(_, entry)| entry.clone()).collect()
    }

    /// The last records of events.
    pub fn recorded(&self) -> Vec<Recorded> {
        let Some(table) = &self.0 else { return Vec::new() };
        let of = |(&event, &(stream, flags, context)): (&u64, &(u64, u32, u64))| Recorded {
            event,
            stream,
            flags,
            context,
        };
        table.lock().recorded.iter().map(of).collect()
    }

    /// All device memory, each byte once.
    pub fn memory(&self) -> Vec<MemoryRange> {
        let Some(table) = &self.0 else { return Vec::new() };
        table.lock().memory.values().copied().collect()
    }
}
