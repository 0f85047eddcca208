//! Memory reuse among nodes of a graph: those of which one has been freed before the other is
//! reached.

use super::memory::Block;
use super::reservation::Reservation;
use causeway_api::handle::{GraphNode, Handle};
use causeway_api::sys::{CUdevice, CUdeviceptr};
use core::ops::Range;
use std::collections::HashSet;
use std::sync::Arc;

/// Addresses of nodes are multiples of this, as those of other allocations are.
const ALIGNMENT: u64 = 512;

/// The memory of a graph's allocation nodes.
#[derive(Default)]
pub struct Blocks {
    divided: Vec<Divided>,
    /// The addresses that were reserved last, and how many bytes of them blocks have.
    reserved: Option<(Arc<Reservation>, u64)>,
}

/// A block and what nodes have of it.
type Divided = (Arc<Block>, Vec<Part>);

/// Memory of one node within a block.
struct Part {
    range: Range<CUdeviceptr>,
    /// The node of the same graph that frees it, if there is one.
    freed_by: Option<Handle<GraphNode>>,
}

impl Blocks {
    /// The nodes that free memory of blocks in which `size` bytes might find room.
    pub fn releases(&self, device: CUdevice, size: usize) -> HashSet<Handle<GraphNode>> {
        let blocks = self.divided.iter().filter(|(block, _)| block.device == device && block.size >= size);
        blocks.flat_map(|(_, parts)| parts).filter_map(|part| part.freed_by).collect()
    }

    /// Takes `size` bytes out of a block for a node that comes after the nodes `earlier`; nothing when they
    /// have to be allocated. Of several blocks the smallest is taken.
    pub fn take(
        &mut self,
        device: CUdevice,
        size: usize,
        earlier: &HashSet<Handle<GraphNode>>,
    ) -> Option<(Arc<Block>, CUdeviceptr)> {
        let is_over = |part: &Part| part.freed_by.is_some_and(|node| earlier.contains(&node));
        let blocks =
            self.divided.iter_mut().filter(|(block, _)| block.device == device && block.size >= size);
        let mut found: Option<(&mut Divided, Range<CUdeviceptr>)> = None;
        for entry in blocks {
            let (block, parts) = &*entry;
            if found.as_ref().is_some_and(|(best, _)| best.0.size <= block.size) {
                continue;
            }
            let taken: Vec<_> = parts.iter().filter(|part| !is_over(part)).map(|part| &part.range).collect();
            let starts = core::iter::once(block.address)
                .chain(taken.iter().map(|range| range.end.next_multiple_of(ALIGNMENT)));
            let end = block.address + block.size as u64;
            let fits = |range: &Range<CUdeviceptr>| {
                range.end <= end && taken.iter().all(|taken| !overlap(taken, range))
            };
            let range = starts.map(|start| start..start.saturating_add(size as u64)).filter(fits);
            if let Some(range) = range.min_by_key(|range| range.start) {
                found = Some((entry, range));
            }
        }
        let ((block, parts), range) = found?;
        // Whatever comes after the new part comes after those that it covers as well.
        parts.retain(|part| !(range.start <= part.range.start && part.range.end <= range.end));
        let address = range.start;
        parts.push(Part { range, freed_by: None });
        Some((Arc::clone(block), address))
    }

    /// Addresses for a new block among those that the graph has reserved.
    pub fn reuse(&mut self, device: CUdevice, size: usize) -> Option<(Arc<Reservation>, CUdeviceptr)> {
        let (reservation, used) = self.reserved.as_mut()?;
        let start = used.next_multiple_of(ALIGNMENT);
        let end = start.checked_add(size as u64)?;
        let addresses = reservation.addresses();
        if addresses.device != device || end > addresses.size {
            return None;
        }
        *used = end;
        Some((Arc::clone(reservation), addresses.base + start))
    }

    /// Takes addresses for the graph's blocks, and gives those of the first, which has `size` bytes.
    pub fn open(&mut self, reservation: &Arc<Reservation>, size: usize) -> CUdeviceptr {
        self.reserved = Some((Arc::clone(reservation), size as u64));
        reservation.addresses().base
    }

    /// Enters a block that a node of the graph has for itself until it frees it; nothing happens when it is
    /// known.
    pub fn enter(&mut self, block: &Arc<Block>, size: usize) {
        if self.divided.iter().all(|(known, _)| !Arc::ptr_eq(known, block)) {
            let range = block.address..block.address + size as u64;
            self.divided.push((Arc::clone(block), vec![Part { range, freed_by: None }]));
        }
    }

    /// Notes which node of the graph frees the memory at an address.
    pub fn release(&mut self, address: CUdeviceptr, node: Handle<GraphNode>) {
        let mut parts = self.divided.iter_mut().flat_map(|(_, parts)| parts);
        if let Some(part) = parts.find(|part| part.range.start == address && part.freed_by.is_none()) {
            part.freed_by = Some(node);
        }
    }
}

fn overlap(one: &Range<CUdeviceptr>, other: &Range<CUdeviceptr>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: CUdeviceptr = 0x7000_0000;

    fn node(number: u64) -> Handle<GraphNode> {
        Handle::from_value(number)
    }

    fn after(nodes: &[u64]) -> HashSet<Handle<GraphNode>> {
        nodes.iter().copied().map(node).collect()
    }

    fn blocks(sizes: &[usize]) -> Blocks {
        let mut blocks = Blocks::default();
        for (number, size) in sizes.iter().enumerate() {
            let block = Block::for_test(BASE + (number as u64 * 0x100_0000), *size);
            blocks.enter(&block, *size);
        }
        blocks
    }

    fn take(blocks: &mut Blocks, size: usize, earlier: &[u64]) -> Option<u64> {
        blocks.take(0, size, &after(earlier)).map(|(_, address)| address - BASE)
    }

    #[test]
    fn freed_block_is_reused_by_one_descendant() {
        let mut blocks = blocks(&[4096]);
        assert_eq!(take(&mut blocks, 4096, &[1, 2]), None, "nobody frees it");
        blocks.release(BASE, node(1));
        assert_eq!(take(&mut blocks, 4096, &[2]), None, "the node that frees it may come later");
        assert_eq!(take(&mut blocks, 4097, &[1]), None);
        assert_eq!(take(&mut blocks, 4096, &[2, 1]), Some(0));
        assert_eq!(take(&mut blocks, 4096, &[2, 1]), None, "another node has it");
        blocks.release(BASE, node(3));
        assert_eq!(take(&mut blocks, 4096, &[1]), None);
        assert_eq!(take(&mut blocks, 4096, &[3]), Some(0));
    }

    #[test]
    fn several_small_nodes_find_room_in_what_a_large_one_had() {
        let mut blocks = blocks(&[4096]);
        blocks.release(BASE, node(1));
        assert_eq!(take(&mut blocks, 1000, &[1]), Some(0));
        assert_eq!(take(&mut blocks, 1000, &[1]), Some(1024));
        assert_eq!(take(&mut blocks, 2048, &[1]), Some(2048));
        assert_eq!(take(&mut blocks, 1, &[1]), None);
        blocks.release(BASE + 1024, node(2));
        assert_eq!(take(&mut blocks, 1024, &[1, 2]), Some(1024));
        // What overlaps two parts needs both to be free.
        let mut blocks = self::blocks(&[4096]);
        blocks.release(BASE, node(1));
        assert_eq!((take(&mut blocks, 2048, &[1]), take(&mut blocks, 2048, &[1])), (Some(0), Some(2048)));
        blocks.release(BASE, node(2));
        assert_eq!(take(&mut blocks, 4096, &[1, 2]), None);
        blocks.release(BASE + 2048, node(3));
        assert_eq!(take(&mut blocks, 4096, &[1, 2, 3]), Some(0));
    }

    #[test]
    fn smallest_sufficient_block_of_the_device_is_reused() {
        let mut blocks = blocks(&[1 << 20, 1 << 12, 1 << 16]);
        for (number, start) in [0, 0x100_0000, 0x200_0000].into_iter().enumerate() {
            blocks.release(BASE + start, node(number as u64 + 1));
        }
        assert_eq!(blocks.releases(0, 1 << 16), after(&[1, 3]));
        assert!(blocks.releases(1, 1).is_empty() && blocks.take(1, 1, &after(&[1, 2, 3])).is_none());
        assert_eq!(take(&mut blocks, 5000, &[1, 2, 3]), Some(0x200_0000));
        assert_eq!(take(&mut blocks, 5000, &[1, 2]), Some(0));
    }

    /// What happens to a graph: a node that allocates so much, or one that frees an allocation, each after
    /// some of the nodes before.
    #[derive(Debug, Clone)]
    enum Step {
        Allocate { size: usize, after: Vec<usize> },
        Free { which: usize, after: Vec<usize> },
    }

    fn step() -> impl Strategy<Value = Step> {
        let after = || prop::collection::vec(0..1000_usize, 0..3);
        prop_oneof![
            3 => (1..5000_usize, after()).prop_map(|(size, after)| Step::Allocate { size, after }),
            2 => (0..1000_usize, after()).prop_map(|(which, after)| Step::Free { which, after }),
        ]
    }

    /// A node with all that come before it, the bytes that it allocates, and the node that frees them.
    struct Node {
        ancestors: HashSet<u64>,
        bytes: Range<CUdeviceptr>,
        freed_by: Option<u64>,
    }

    proptest! {
        #[test]
        fn nodes_that_can_have_memory_at_the_same_time_share_no_byte(
            steps in prop::collection::vec(step(), 1..60),
        ) {
            let (mut blocks, mut nodes, mut next) = (Blocks::default(), Vec::<Node>::new(), BASE);
            for step in &steps {
                let number = nodes.len() as u64;
                let (Step::Allocate { after, .. } | Step::Free { after, .. }) = step;
                let mut before: Vec<u64> =
                    after.iter().filter(|_| number > 0).map(|other| *other as u64 % number).collect();
                let unfreed: Vec<usize> = (0..nodes.len())
                    .filter(|node| !nodes[*node].bytes.is_empty() && nodes[*node].freed_by.is_none())
                    .collect();
                let freed = match step {
                    Step::Free { which, .. } if !unfreed.is_empty() => Some(unfreed[which % unfreed.len()]),
                    Step::Free { .. } => continue,
                    Step::Allocate { .. } => None,
                };
                before.extend(freed.map(|node| node as u64));
                let mut ancestors: HashSet<u64> = before.iter().copied().collect();
                for other in &before {
                    ancestors.extend(&nodes[*other as usize].ancestors);
                }
                let earlier: HashSet<_> = ancestors.iter().map(|other| node(*other)).collect();
                let bytes = match (step, freed) {
                    (_, Some(freed)) => {
                        blocks.release(nodes[freed].bytes.start, node(number));
                        nodes[freed].freed_by = Some(number);
                        0..0
                    }
                    (Step::Allocate { size, .. }, _) => {
                        let start = blocks.take(0, *size, &earlier).map_or_else(
                            || {
                                let block = Block::for_test(next, *size);
                                blocks.enter(&block, *size);
                                next += 8192;
                                block.address
                            },
                            |(_, address)| address,
                        );
                        start..start + *size as u64
                    }
                    (Step::Free { .. }, None) => 0..0,
                };
                nodes.push(Node { ancestors, bytes, freed_by: None });
            }
            for (number, one) in nodes.iter().enumerate() {
                for (other_number, other) in nodes.iter().enumerate().skip(number + 1) {
                    if one.bytes.is_empty() || other.bytes.is_empty() || !overlap(&one.bytes, &other.bytes) {
                        continue;
                    }
                    let is_over = one.freed_by.is_some_and(|freed| other.ancestors.contains(&freed));
                    prop_assert!(is_over, "{number} and {other_number} in {steps:?}");
                }
            }
        }
    }
}
