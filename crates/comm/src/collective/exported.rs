//! Memory of this rank that peers may open.

use super::range::Range;
use crate::cuda::{DeviceMemory, Driver};
use crate::matching::{DESCRIPTOR_BYTES, Descriptor};
use crate::world::World;

/// What this rank shows, until it hides it.
#[derive(Debug)]
pub struct ExportedMemory<'a> {
    world: &'a World,
    numbers: Vec<u64>,
}

impl Drop for ExportedMemory<'_> {
    fn drop(&mut self) {
        self.numbers.iter().for_each(|number| self.world.revoke(*number));
    }
}

impl<'a> ExportedMemory<'a> {
    /// Nothing yet.
    pub fn new(world: &'a World) -> Self {
        Self { world, numbers: Vec::new() }
    }

    /// What tells a peer of a range of memory; none where it is not reached, or cannot open it.
    pub fn export(
        &mut self,
        peer: u32,
        driver: &Driver,
        memory: &DeviceMemory,
        range: Range,
    ) -> Option<Descriptor> {
        if !self.world.is_reachable(peer) {
            return None;
        }
        let (number, descriptor) = self.world.export(peer, driver, memory, range.address, range.bytes)?;
        self.numbers.push(number);
        Some(descriptor)
    }

    /// The word for a peer; none where its memory cannot be opened.
    pub(super) fn word(
        &mut self,
        peer: u32,
        driver: &Driver,
        ranges: [Option<(DeviceMemory, u64)>; 2],
        bytes: u64,
    ) -> Option<[u8; 2 * DESCRIPTOR_BYTES]> {
        let mut word = [0; 2 * DESCRIPTOR_BYTES];
        let mut before: Option<(u64, usize)> = None;
        for (at, (memory, address)) in
            ranges.into_iter().enumerate().filter_map(|(at, range)| Some((at, range?)))
        {
            let range = at * DESCRIPTOR_BYTES..(at + 1) * DESCRIPTOR_BYTES;
            match before {
                // In place.
                Some((same, first)) if same == address => {
                    let first = first * DESCRIPTOR_BYTES;
                    word.copy_within(first..first + DESCRIPTOR_BYTES, range.start);
                }
                _ => {
                    let descriptor = self.export(peer, driver, &memory, Range { address, bytes })?;
                    word[range].copy_from_slice(&descriptor.encode(self.world.job()));
                    before = Some((address, at));
                }
            }
        }
        Some(word)
    }
}
