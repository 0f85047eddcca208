//! Reading of a journal: what has to be done again, and what stands against it.

use super::entry::{Entry, MemoryRange};
use super::table::Key;
use super::{Journal, Recorded};
use causeway_api::calls::Opcode;

impl Journal {
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
