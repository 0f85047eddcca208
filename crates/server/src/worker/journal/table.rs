//! Table of a journal: entries, hindrances and memory by what they belong to, and what ends with what.

use crate::worker::incoming::Buffer;
use causeway_api::calls::Opcode;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A command that is carried out again.
#[derive(Clone)]
pub struct Entry {
    /// The client's handle of the context that it is carried out in; 0 where it needs none any more.
    pub context: u64,
    /// Which command.
    pub opcode: Opcode,
    /// Its arguments, encoded.
    pub arguments: Box<[u8]>,
    /// The bytes that belong to it.
    pub image: Option<Arc<Buffer>>,
    /// What it has answered and must answer again: addresses that the client knows.
    pub reply: Option<Box<[u8]>>,
    /// With which object it goes, as it does with its context.
    pub(super) parent: u64,
}

impl Entry {
    /// One that another worker has had.
    pub fn again(
        context: u64,
        opcode: Opcode,
        arguments: Box<[u8]>,
        image: Option<Arc<Buffer>>,
        reply: Option<Box<[u8]>>,
    ) -> Self {
        Self { context, opcode, arguments, image, reply, parent: 0 }
    }
}

/// A range of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its first address.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// The device to which it belongs.
    pub device: i32,
}

/// By what an entry, or a hindrance, is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Key {
    /// A handle of the client, or a number of the back end for textures.
    Object(u64),
    /// What has been set last: the command, and of what.
    Setting(u16, u64, u64),
    /// Memory at an address.
    Address(u64),
    /// A command of which each counts.
    Each(u64),
    /// For as long as the session lasts.
    Session(u16),
}

#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: BTreeMap<u64, (Key, Entry)>,
    pub(super) by_key: FxHashMap<Key, u64>,
    /// How many entries go with an object.
    pub(super) children: FxHashMap<u64, usize>,
    pub(super) newest: u64,
    /// What cannot be carried, and what that is for people.
    pub(super) hindrances: BTreeMap<Key, &'static str>,
    /// The last records of events: stream, flags, context.
    pub(super) recorded: FxHashMap<u64, (u64, u32, u64)>,
    /// Device memory, by the handles of blocks and by the addresses of mappings.
    pub(super) memory: BTreeMap<Key, MemoryRange>,
}

impl Table {
    pub(super) fn put(&mut self, key: Key, entry: Entry) {
        self.forget(key);
        self.by_key.insert(key, self.newest);
        *self.children.entry(entry.parent).or_default() += 1;
        self.entries.insert(self.newest, (key, entry));
        self.newest += 1;
    }

    /// Like [`Self::put`], in the place of an entry of the same key, where there is one.
    pub(super) fn set(&mut self, key: Key, entry: Entry) {
        match self.by_key.get(&key).and_then(|at| self.entries.get_mut(at)) {
            Some((_, known)) => *known = entry,
            None => self.put(key, entry),
        }
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.hindrances.remove(&key);
        self.memory.remove(&key);
        self.forget(key);
    }

    pub(super) fn forget(&mut self, key: Key) {
        let Some((_, entry)) = self.by_key.remove(&key).and_then(|at| self.entries.remove(&at)) else {
            return;
        };
        if let Some(count) = self.children.get_mut(&entry.parent) {
            *count -= 1;
            if *count == 0 {
                self.children.remove(&entry.parent);
            }
        }
    }

    /// An object has ended, with all that goes with it.
    pub(super) fn remove_with_children(&mut self, object: u64) {
        let mut removed = vec![object];
        while let Some(object) = removed.pop() {
            let of_object = |(_, entry): &&(Key, Entry)| entry.parent == object;
            // Most have none, and there may be many entries.
            let children: Vec<Key> = match self.children.get(&object) {
                Some(_) => self.entries.values().filter(of_object).map(|(key, _)| *key).collect(),
                None => Vec::new(),
            };
            for key in children {
                self.remove(key);
                if let Key::Object(child) = key {
                    self.recorded.remove(&child);
                    removed.push(child);
                }
            }
            self.remove(Key::Object(object));
            self.recorded.remove(&object);
        }
    }

    /// A context has ended: what was made in it has ended, but memory that belongs to its device.
    pub(super) fn end_context(&mut self, context: u64) {
        let of_context = self.entries.values_mut().filter(|(_, entry)| entry.context == context);
        let mut removed = Vec::new();
        for (key, entry) in of_context {
            if is_of_device(entry.opcode) { entry.context = 0 } else { removed.push(*key) }
        }
        for key in removed {
            match key {
                Key::Object(object) => self.remove_with_children(object),
                other => self.remove(other),
            }
        }
        self.remove_with_children(context);
        self.recorded.retain(|_, (.., of)| *of != context);
    }

    pub(super) fn range(&mut self, key: Key, address: u64, bytes: usize, device: i32) {
        self.memory.insert(key, MemoryRange { address, bytes: bytes as u64, device });
    }

    /// The addresses are mapped no more.
    pub(super) fn unmap(&mut self, address: u64, bytes: u64) {
        let is_in = |start: u64| start.wrapping_sub(address) < bytes;
        let of_range = |(key, _): &&(Key, Entry)| match *key {
            Key::Address(start) => is_in(start),
            Key::Setting(_, start, _) if key.opcode() == Some(Opcode::address_access as u16) => is_in(start),
            _ => false,
        };
        let removed: Vec<(Key, u64)> =
            self.entries.values().filter(of_range).map(|(key, entry)| (*key, entry.parent)).collect();
        for (key, allocation) in removed {
            self.remove(key);
            let is_released = Key::Setting(Opcode::allocation_release as u16, allocation, 0);
            if allocation != 0 && self.by_key.contains_key(&is_released) && !self.is_mapped(allocation) {
                self.remove(is_released);
                self.remove(Key::Object(allocation));
            }
        }
    }

    pub(super) fn is_mapped(&self, allocation: u64) -> bool {
        self.entries.values().any(|(key, entry)| matches!(key, Key::Address(_)) && entry.parent == allocation)
    }
}

impl Key {
    pub(super) fn opcode(self) -> Option<u16> {
        match self {
            Self::Setting(opcode, ..) => Some(opcode),
            _ => None,
        }
    }
}

/// Whether what a command makes belongs to a device, and not to the context that it was made in.
fn is_of_device(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::memory_block_create
            | Opcode::allocation_create
            | Opcode::allocation_map
            | Opcode::allocation_release
            | Opcode::address_access
            | Opcode::address_window_open
            | Opcode::memory_pool_create
            | Opcode::memory_pool_default
            | Opcode::memory_pool_attribute_set
            | Opcode::memory_pool_current_set
            | Opcode::library_load
            | Opcode::library_kernel
            | Opcode::primary_context_retain
            | Opcode::context_create
    )
}

impl Table {
    pub(super) fn put_each(&mut self, entry: Entry) {
        self.put(Key::Each(self.newest), entry);
    }

    /// A graph is described no more, which those that were made executable from it do not need.
    pub(super) fn graph_ends(&mut self, graph: u64, entry: Entry) {
        let is_used = |(key, made): &(Key, Entry)| matches!(key, Key::Object(_)) && made.parent == graph;
        if self.entries.values().any(is_used) {
            self.put(Key::Setting(Opcode::graph_destroy as u16, graph, 0), entry);
        } else {
            self.remove_with_children(graph);
        }
    }

    pub(super) fn exec_ends(&mut self, exec: u64) {
        let graph = self.by_key.get(&Key::Object(exec)).and_then(|at| self.entries.get(at));
        let graph = graph.map(|(_, entry)| entry.parent);
        self.remove_with_children(exec);
        let Some(graph) = graph else { return };
        let ended = Key::Setting(Opcode::graph_destroy as u16, graph, 0);
        let is_used = |(key, made): &(Key, Entry)| matches!(key, Key::Object(_)) && made.parent == graph;
        if self.by_key.contains_key(&ended) && !self.entries.values().any(is_used) {
            self.remove(ended);
            self.remove_with_children(graph);
        }
    }

    pub(super) fn exec_updated(&mut self, exec: u64) {
        self.hindrances.insert(Key::Object(exec), "an executable graph that was updated");
    }
}
