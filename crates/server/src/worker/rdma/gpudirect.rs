//! GPUDirect RDMA: device memory that is registered with the links' network cards.
//!
//! The blocks that the client's allocations lie in are registered with a link's card, each when a copy first
//! wants it, by the best path that the GPU and the card have in common; the registration goes before the
//! block does. What cannot be registered is copied through staging, as is what does not lie in such a block.

use crate::locks::{Mutex, rank};
use crate::worker::session::describe;
use causeway_api::calls::{memory_block_create, memory_block_release};
use causeway_api::types::DeviceLocation;
use causeway_gpu::Gpu;
use causeway_gpu::gpudirect::{GpuDirectMemory, GpuDirectPaths};
use causeway_link::{DeviceMemory, DeviceUse, Link};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd as _;
use std::sync::Arc;

/// Blocks that are registered at a time; of more the one that was used longest ago goes. Cards have room for
/// many thousands, but pages of a GPU that other devices see are few on some machines.
const MAX_REGISTERED_REGIONS: usize = 256;

/// Copies to the client of fewer bytes go through staging: stopping their stream would take longer than one
/// more copy of them does.
const MIN_GPUDIRECT_BYTES: u64 = 256 << 10;

/// A registration of a block with the card of one link, or its refusal.
struct MappedWindow<M> {
    link: u32,
    memory: Option<M>,
    /// When it was last used, in uses.
    used: u64,
}

struct Block<M> {
    size: u64,
    device: i32,
    windows: Vec<MappedWindow<M>>,
}

/// The blocks of a session, by address, and the links whose cards reach them.
struct Blocks<M> {
    by_address: BTreeMap<u64, Block<M>>,
    uses: u64,
    links: u32,
}

impl<M> Default for Blocks<M> {
    fn default() -> Self {
        Self { by_address: BTreeMap::new(), uses: 0, links: 0 }
    }
}

impl<M: Clone> Blocks<M> {
    fn add(&mut self, address: u64, size: u64, device: i32) {
        self.by_address.insert(address, Block { size, device, windows: Vec::new() });
    }

    /// The block that has all of these bytes, and where it begins.
    fn holding(&mut self, address: u64, length: u64) -> Option<(u64, &mut Block<M>)> {
        let (base, block) = self.by_address.range_mut(..=address).next_back()?;
        let offset = address - base;
        (offset < block.size && length <= block.size - offset).then_some((*base, block))
    }

    /// The registration with a link's card of a block that has these bytes; `register` makes it, from the
    /// block's address, size and device.
    fn map_window(
        &mut self,
        link: u32,
        address: u64,
        length: u64,
        register: impl FnOnce(u64, u64, i32) -> Option<M>,
    ) -> Option<M> {
        self.uses += 1;
        let used = self.uses;
        let (base, block) = self.holding(address, length)?;
        if let Some(known) = block.windows.iter_mut().find(|windows| windows.link == link) {
            known.used = used;
            return known.memory.clone();
        }
        let memory = register(base, block.size, block.device);
        block.windows.push(MappedWindow { link, memory: memory.clone(), used });
        self.evict_to(MAX_REGISTERED_REGIONS);
        memory
    }

    /// Lets go of the registrations that were not used for longest, beyond so many.
    fn evict_to(&mut self, capacity: usize) {
        let all = self.by_address.values().flat_map(|block| &block.windows);
        let mut uses: Vec<_> =
            all.filter(|windows| windows.memory.is_some()).map(|windows| windows.used).collect();
        if let Some(beyond) = uses.len().checked_sub(capacity + 1) {
            uses.sort_unstable();
            let oldest_cached = uses[beyond] + 1;
            self.retain(|windows| windows.memory.is_none() || windows.used >= oldest_cached);
        }
    }

    fn retain(&mut self, keep: impl Fn(&MappedWindow<M>) -> bool) {
        self.by_address.values_mut().for_each(|block| block.windows.retain(&keep));
    }
}

/// The blocks of a session, for all its links.
#[derive(Default)]
pub struct DeviceBlocks(Mutex<rank::GpuDirectBlocks, Blocks<DeviceMemory>>);

impl DeviceBlocks {
    /// A block has been made.
    pub fn add(&self, block: &memory_block_create) {
        self.0.lock().add(block.address, block.size as u64, block.device);
    }

    /// A block is about to go.
    pub fn remove(&self, block: &memory_block_release) {
        let removed = self.0.lock().by_address.remove(&block.address);
        drop(removed);
    }
}

/// GPUDirect as a link has it.
pub struct GpuDirect {
    link: Link,
    number: u32,
    usage: DeviceUse,
    paths: Mutex<rank::Leaf, HashMap<i32, GpuDirectPaths>>,
    blocks: Arc<DeviceBlocks>,
}

impl Drop for GpuDirect {
    fn drop(&mut self) {
        self.blocks.0.lock().retain(|windows| windows.link != self.number);
    }
}

impl GpuDirect {
    /// For a link with network cards; otherwise, or where no card may reach the first device, the reason why
    /// not, as a sentence without its full stop.
    pub fn new(
        link: &Link,
        gpu: &dyn Gpu,
        blocks: &Arc<DeviceBlocks>,
        usage: DeviceUse,
    ) -> Result<Self, String> {
        if !link.is_one_sided() {
            return Err(format!("sessions over {} need no GPUDirect", link.kind()));
        }
        let paths = gpu.gpudirect_paths(0);
        if paths.usable.is_empty() {
            return Err(paths.to_string());
        }
        let number = {
            let mut known = blocks.0.lock();
            known.links += 1;
            known.links
        };
        let (link, paths) = (link.clone(), Mutex::new(HashMap::from([(0, paths)])));
        Ok(Self { link, number, usage, paths, blocks: Arc::clone(blocks) })
    }

    /// How the card reaches the memory of the first device, in words.
    pub fn explain(&self) -> String {
        self.paths.lock().get(&0).map(ToString::to_string).unwrap_or_default()
    }

    /// Whether a copy to the client is long enough for the card to make it.
    pub fn is_worth_while<A>(place: &DeviceLocation<A>) -> bool {
        place.bytes().is_some_and(|bytes| bytes >= MIN_GPUDIRECT_BYTES)
    }

    /// The memory of a place, as the card knows it: its address and its bytes, too.
    pub fn map_window<A>(
        &self,
        gpu: &dyn Gpu,
        place: &DeviceLocation<A>,
    ) -> Option<(DeviceMemory, u64, usize)> {
        let DeviceLocation::Memory(region) = place else { return None };
        let length = region.bytes().filter(|length| region.is_contiguous() && *length > 0)?;
        let register = |address, size, device| self.register(gpu, address, size, device);
        let memory = self.blocks.0.lock().map_window(self.number, region.address, length, register)?;
        Some((memory, region.address, usize::try_from(length).ok()?))
    }

    fn register(&self, gpu: &dyn Gpu, address: u64, size: u64, device: i32) -> Option<DeviceMemory> {
        let paths =
            self.paths.lock().entry(device).or_insert_with(|| gpu.gpudirect_paths(device)).usable.clone();
        let length = usize::try_from(size).ok()?;
        let mut refusals = Vec::new();
        for path in paths {
            let registered = match gpu.gpudirect_memory(path, address, length) {
                Err(error) => Err(format!("the driver answers {}", describe(error))),
                // SAFETY: the block stays until `remove` has dropped the registration; a copy that is under
                // way then holds it longer, and with it the pages, which have no other owner.
                Ok(GpuDirectMemory::DmaBuf { descriptor, offset }) => unsafe {
                    let buffer = Some((descriptor.as_fd(), offset));
                    self.link
                        .register_device(buffer, address, length, self.usage)
                        .map_err(|error| error.to_string())
                },
                // SAFETY: the block stays until `remove` has dropped the registration; a copy that is under
                // way then holds it longer, and with it the pages, which have no other owner.
                Ok(GpuDirectMemory::Addresses) => unsafe {
                    self.link
                        .register_device(None, address, length, self.usage)
                        .map_err(|error| error.to_string())
                },
            };
            match registered {
                Ok(memory) => {
                    tracing::debug!(address, size, "the network card accesses a block by {path}");
                    return Some(memory);
                }
                Err(why) => refusals.push(format!("{path}: {why}")),
            }
        }
        tracing::warn!(
            "the network card cannot access {size} bytes of device memory, which are copied through staging; \
             {}",
            refusals.join("; ")
        );
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> Blocks<u64> {
        let mut blocks = Blocks::default();
        blocks.add(1000, 100, 0);
        blocks.add(1100, 100, 1);
        blocks
    }

    #[test]
    fn a_block_is_registered_once_for_each_link_and_bytes_outside_never() {
        let mut blocks = blocks();
        let mut made = 0;
        for (link, count) in [(1, 1), (1, 1), (2, 2), (1, 2)] {
            let found = blocks.map_window(link, 1010, 90, |address, size, device| {
                made += 1;
                assert_eq!((address, size, device), (1000, 100, 0));
                Some(u64::from(link))
            });
            assert_eq!((found, made), (Some(link.into()), count));
        }
        for (address, length) in [(999, 1), (1050, 51), (1200, 1), (1199, u64::MAX)] {
            assert_eq!(blocks.map_window(1, address, length, |_, _, _| Some(0)), None, "{address} {length}");
        }
        assert_eq!(blocks.map_window(1, 1100, 1, |_, _, _| None), None);
        assert_eq!(
            blocks.map_window(1, 1100, 1, |_, _, _| Some(8)),
            None,
            "what was refused is not asked for again"
        );
        blocks.retain(|windows| windows.link != 2);
        assert_eq!(blocks.map_window(1, 1010, 1, |_, _, _| Some(0)), Some(1));
        assert_eq!(blocks.map_window(2, 1010, 1, |_, _, _| Some(0)), Some(0), "the link was forgotten");
        blocks.by_address.remove(&1000);
        assert_eq!(blocks.map_window(1, 1010, 1, |_, _, _| Some(0)), None);
    }

    #[test]
    fn the_registration_that_was_not_used_for_longest_goes_first() {
        let mut blocks = blocks();
        blocks.map_window(1, 1000, 1, |_, _, _| Some(1));
        blocks.map_window(2, 1100, 1, |_, _, _| Some(2));
        blocks.map_window(1, 1000, 1, |_, _, _| None);
        blocks.evict_to(2);
        assert_eq!(blocks.map_window(2, 1100, 1, |_, _, _| Some(9)), Some(2));
        blocks.map_window(1, 1000, 1, |_, _, _| None);
        blocks.evict_to(1);
        assert_eq!(blocks.map_window(1, 1000, 1, |_, _, _| Some(9)), Some(1));
        assert_eq!(blocks.map_window(2, 1100, 1, |_, _, _| Some(9)), Some(9), "it was registered again");
    }
}
