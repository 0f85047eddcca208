//! Entry of a journal: a command that is carried out again, and memory.

use crate::worker::incoming::Buffer;
use causeway_api::calls::Opcode;
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
