//! What memory holds: the actions of a program done one after the other.

use crate::order::{Action, Contents, Effect, HappensBefore};
use crate::program::{Program, Region, Work, generated_word};
use std::sync::Arc;

/// What a program must give.
pub struct Expected {
    /// For each action that is a read of the host: what it finds. None for others.
    pub reads: Vec<Option<Arc<[u8]>>>,
    /// The contents of every buffer at the end; empty for one that is gone.
    pub buffers: Vec<Vec<u8>>,
}

/// The buffers of a program at some time.
pub struct Memory {
    /// The contents of each buffer; empty for one that does not exist.
    pub buffers: Vec<Vec<u8>>,
    staged: Vec<Vec<u8>>,
}

/// The key of what a host function writes in a later launch of its graph.
pub fn key_of_round(key: u32, round: u32) -> u32 {
    key.wrapping_add(round.wrapping_mul(0x0100_0193))
}

/// Stores the words of a key; what is left over at the end is a part of the next word.
pub fn store_words(bytes: &mut [u8], key: u32) {
    for (index, word) in bytes.chunks_mut(4).enumerate() {
        let value = generated_word(key, index).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

impl Memory {
    /// The first contents.
    pub fn new(program: &Program) -> Self {
        let first = |(index, buffer): (usize, &crate::program::Buffer)| {
            let mut bytes = vec![0; if buffer.initial { buffer.size } else { 0 }];
            store_words(&mut bytes, program.initial_key(index));
            bytes
        };
        let buffers = program.buffers.iter().enumerate().map(first).collect();
        Self { buffers, staged: Vec::new() }
    }

    /// The bytes of a region, row after row.
    pub fn load(&self, region: &Region) -> Vec<u8> {
        let buffer = &self.buffers[region.buffer];
        let mut bytes = Vec::with_capacity(region.bytes());
        region.rows().for_each(|row| bytes.extend_from_slice(&buffer[row..row + region.width]));
        bytes
    }

    /// Writes the bytes of a region, row after row.
    pub fn store(&mut self, region: &Region, bytes: &[u8]) {
        let buffer = &mut self.buffers[region.buffer];
        for (row, bytes) in region.rows().zip(bytes.chunks_exact(region.width)) {
            buffer[row..row + region.width].copy_from_slice(bytes);
        }
    }

    /// Does an action, whose number among all is given, and says what the host has read if that is what it
    /// does.
    pub fn act(&mut self, program: &Program, number: usize, action: &Action) -> Option<Vec<u8>> {
        match &action.effect {
            Effect::Work(work) => return self.work(work, action.round),
            Effect::Stage(from) => {
                let bytes = self.load(from);
                self.staged.resize(self.staged.len().max(number + 1), Vec::new());
                self.staged[number] = bytes;
            }
            Effect::Unstage(to) => {
                let bytes = std::mem::take(&mut self.staged[number - 1]);
                self.store(to, &bytes);
            }
            Effect::Allocate(whole, contents) => {
                let mut bytes = vec![0; program.buffers[whole.buffer].size];
                match contents {
                    Contents::Value(value) => fill(&mut bytes, *value, 4),
                    Contents::Key(key) => store_words(&mut bytes, *key),
                }
                self.buffers[whole.buffer] = bytes;
            }
            Effect::Release(whole) => self.buffers[whole.buffer] = Vec::new(),
            Effect::Stop | Effect::Go => {}
        }
        None
    }

    fn work(&mut self, work: &Work, round: u32) -> Option<Vec<u8>> {
        match work {
            Work::Copy { to, from, .. } => {
                let bytes = self.load(from);
                self.store(to, &bytes);
            }
            Work::Fill { to, value, element } => {
                let mut bytes = vec![0; to.bytes()];
                fill(&mut bytes, *value, *element);
                self.store(to, &bytes);
            }
            Work::Generate { to, key, .. } => {
                let mut bytes = vec![0; to.bytes()];
                store_words(&mut bytes, *key);
                self.store(to, &bytes);
            }
            Work::HostWrite { to, key } => {
                let mut bytes = vec![0; to.bytes()];
                store_words(&mut bytes, key_of_round(*key, round));
                self.store(to, &bytes);
            }
            Work::Add { to, constant, .. } => self.add(to, to, *constant),
            Work::Move { to, from, constant, .. } => self.add(to, from, *constant),
            Work::HostRead { from } => return Some(self.load(from)),
        }
        None
    }

    fn add(&mut self, to: &Region, from: &Region, constant: u32) {
        let mut bytes = self.load(from);
        for word in bytes.chunks_exact_mut(4) {
            let value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            word.copy_from_slice(&value.wrapping_add(constant).to_le_bytes());
        }
        self.store(to, &bytes);
    }
}

fn fill(bytes: &mut [u8], value: u32, element: usize) {
    let value = value.to_le_bytes();
    bytes.iter_mut().enumerate().for_each(|(index, byte)| *byte = value[index % element]);
}

/// Does all actions in the order of issue.
pub fn interpret(program: &Program, order: &HappensBefore) -> Expected {
    let mut memory = Memory::new(program);
    let act = |(number, action)| memory.act(program, number, action).map(Arc::from);
    let reads = order.actions().iter().enumerate().map(act).collect();
    Expected { reads, buffers: memory.buffers }
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The place held it from the start.
    Start,
    /// The place held it after this operation, the last one of which that is true.
    Op(usize),
    /// The place never held it, but the place in this buffer did from which the value should have been
    /// copied.
    Source(usize, Option<usize>),
    /// None of these.
    Nowhere,
}

/// Says where a value at a place comes from, looking no further than a given operation.
pub fn origin(
    program: &Program,
    order: &HappensBefore,
    (buffer, offset): (usize, usize),
    value: &[u8],
    until: usize,
) -> Origin {
    let mut copied_from = None;
    let found = last_holder(program, order, (buffer, offset), value, until, |action| {
        copied_from = source_of(action, offset);
    });
    match (found, copied_from) {
        (Some(None), _) => Origin::Start,
        (Some(Some(op)), _) => Origin::Op(op),
        (None, Some(place)) => last_holder(program, order, place, value, until, |_| {})
            .map_or(Origin::Nowhere, |op| Origin::Source(place.0, op)),
        (None, None) => Origin::Nowhere,
    }
}

/// The last operation after which a place held a value, `Some(None)` if it was there from the start; tells of
/// each write of the place.
fn last_holder(
    program: &Program,
    order: &HappensBefore,
    (buffer, offset): (usize, usize),
    value: &[u8],
    until: usize,
    mut writes: impl FnMut(&Action),
) -> Option<Option<usize>> {
    let mut memory = Memory::new(program);
    let holds = |memory: &Memory| memory.buffers[buffer].get(offset..offset + value.len()) == Some(value);
    let mut found = holds(&memory).then_some(None);
    let place = Region::linear(buffer, offset, value.len());
    for (number, action) in order.actions().iter().enumerate().filter(|(_, action)| action.op <= until) {
        memory.act(program, number, action);
        if action.effect.target().is_some_and(|to| to.overlaps(&place)) {
            writes(action);
            if holds(&memory) {
                found = Some(Some(action.op));
            }
        }
    }
    found
}

/// From where a copy takes what it writes at an offset.
fn source_of(action: &Action, offset: usize) -> Option<(usize, usize)> {
    let Effect::Work(Work::Copy { to, from, .. }) = &action.effect else { return None };
    let mut rows = to.rows().zip(from.rows());
    let (to_row, from_row) = rows.find(|(row, _)| (*row..row + to.width).contains(&offset))?;
    Some((from.buffer, from_row + offset - to_row))
}
