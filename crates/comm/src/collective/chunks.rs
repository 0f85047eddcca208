//! Chunks of a reduction, one for each rank. Pure.

use super::element::{Element, Operation};
use super::range::Range;

/// Chunks begin at multiples of so many elements.
const CHUNK_ELEMENTS: u64 = 64;

/// What is reduced.
#[derive(Debug, Clone, Copy)]
pub struct Reduction {
    /// The elements.
    pub element: Element,
    /// What is done with them.
    pub operation: Operation,
}

impl Reduction {
    /// Whether the operation is defined for the elements.
    pub fn is_defined(&self) -> bool {
        self.element.supports(self.operation)
    }
}

/// The chunks of a call: a rank each.
#[derive(Debug)]
pub struct Chunks {
    /// Where each begins, and at last where all end, in elements.
    bounds: Vec<u64>,
    /// Bytes of an element.
    bytes: u64,
}

impl Chunks {
    /// Chunks that are as long as each other, as far as there are so many elements.
    pub fn cut(what: Reduction, count: u64, ranks: usize) -> Self {
        let each = count.div_ceil(ranks as u64).next_multiple_of(CHUNK_ELEMENTS);
        let bounds = (0..=ranks as u64).map(|rank| count.min(rank.saturating_mul(each))).collect();
        Self { bounds, bytes: what.element.bytes() }
    }

    /// Chunks that are as long as the caller says.
    pub fn follow(what: Reduction, counts: &[u64]) -> Self {
        let ends = counts.iter().scan(0_u64, |end, count| {
            *end = end.saturating_add(*count);
            Some(*end)
        });
        Self { bounds: core::iter::once(0).chain(ends).collect(), bytes: what.element.bytes() }
    }

    /// The elements of a rank's chunk.
    pub fn elements(&self, rank: usize) -> u64 {
        self.bounds[rank + 1] - self.bounds[rank]
    }

    /// A rank's chunk of elements that begin there.
    pub fn of(&self, rank: usize, start: u64) -> Range {
        let address = start.wrapping_add(self.bounds[rank].wrapping_mul(self.bytes));
        Range { address, bytes: self.elements(rank).saturating_mul(self.bytes) }
    }

    /// Bytes of all chunks.
    pub fn all(&self) -> u64 {
        self.bounds.last().map_or(0, |count| count.saturating_mul(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::super::element::Number;
    use super::*;

    const SUMS: Reduction = Reduction { element: Element::One(Number::Single), operation: Operation::Sum };

    #[test]
    fn chunks_cover_all_elements_once() {
        for ranks in 1..9 {
            for count in [0, 1, 63, 64, 65, 1000, 4096, 100_003] {
                let Chunks { bounds, .. } = Chunks::cut(SUMS, count, ranks);
                assert_eq!(bounds.len(), ranks + 1);
                assert_eq!((bounds[0], bounds[ranks]), (0, count));
                assert!(bounds.is_sorted());
                let inner = bounds.iter().filter(|bound| **bound < count);
                assert!(inner.into_iter().all(|bound| bound % CHUNK_ELEMENTS == 0));
            }
        }
        let followed = Chunks::follow(SUMS, &[3, 0, 5]);
        assert_eq!((followed.bounds.as_slice(), followed.all()), ([0, 3, 3, 8].as_slice(), 32));
        assert_eq!(followed.of(2, 1000), Range { address: 1012, bytes: 20 });
    }
}
