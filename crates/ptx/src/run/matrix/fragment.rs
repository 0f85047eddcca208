//! Fragments: the part of a matrix that a lane holds in its registers.

use super::types::{Accumulator, Element, FragmentLayout, Matrix, Multiplication, Shape};

/// Registers of the largest fragment.
pub(crate) const MAX_REGISTERS: usize = 8;

/// Lanes of a warp.
const LANES: u32 = 32;

/// The registers of one lane's fragment, of 32 bits but for double precision.
pub(crate) type Registers = [u64; MAX_REGISTERS];

/// How a matrix is spread over the lanes of a warp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    layout: FragmentLayout,
    matrix: Matrix,
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    /// Bits of an element.
    pub(crate) bits: u32,
    /// Registers of a lane.
    pub(crate) registers: u32,
}

impl Fragment {
    /// The fragments of `a` or `b`.
    pub(crate) fn of_factor(layout: FragmentLayout, matrix: Matrix, shape: Shape, element: Element) -> Self {
        let (rows, columns) = if matrix == Matrix::A { (shape.m, shape.k) } else { (shape.k, shape.n) };
        let mut fragment = Self::new(layout, matrix, rows, columns, element.bits());
        if layout == FragmentLayout::Wmma && element == Element::F16 {
            // Eight registers whatever the shape: some elements lie in several lanes.
            fragment.registers = 8;
        }
        fragment
    }

    /// The fragments of `c` or `d`.
    pub(crate) fn of_accumulator(layout: FragmentLayout, shape: Shape, accumulator: Accumulator) -> Self {
        Self::new(layout, Matrix::Accumulator, shape.m, shape.n, accumulator.bits())
    }

    fn new(layout: FragmentLayout, matrix: Matrix, rows: u32, columns: u32, bits: u32) -> Self {
        let register_bits = bits.max(32);
        Self {
            layout,
            matrix,
            rows,
            columns,
            bits,
            registers: rows * columns * bits / (LANES * register_bits),
        }
    }

    /// The fragments of the four matrices `a`, `b`, `c` and `d`.
    pub(crate) fn of(multiplication: &Multiplication) -> [Self; 4] {
        let Multiplication { layout, shape, a, b, c, d, .. } = *multiplication;
        [
            Self::of_factor(layout, Matrix::A, shape, a),
            Self::of_factor(layout, Matrix::B, shape, b),
            Self::of_accumulator(layout, shape, c),
            Self::of_accumulator(layout, shape, d),
        ]
    }

    /// Elements that a register holds.
    pub(crate) fn packed(&self) -> u32 {
        (32 / self.bits).max(1)
    }

    /// Row and column of the element with number `index` in a lane's registers, counted from the lowest bits of
    /// the first one.
    pub(crate) fn position(&self, lane: u32, index: u32) -> (u32, u32) {
        let packed = self.packed();
        if self.layout == FragmentLayout::Wmma {
            let element = (lane * self.registers * packed + index) % (self.rows * self.columns);
            return (element / self.columns, element % self.columns);
        }
        // Four lanes share a row of `a` and of the accumulators, and a column of `b`.
        let (group, member) = (lane / 4, lane % 4);
        let (register, part) = (index / packed, index % packed);
        match self.matrix {
            Matrix::A => {
                let halves = self.rows / 8;
                let row = group + 8 * (register % halves);
                (row, member * packed + part + register / halves * 4 * packed)
            }
            Matrix::B => (member * packed + part + register * 4 * packed, group),
            Matrix::Accumulator => (group + index / 2 * 8, member * 2 + index % 2),
        }
    }

    /// Visits every element of a warp's fragments: the lane, the number in its registers, the index in the
    /// matrix row by row.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize, u32, usize)) {
        for lane in 0..LANES {
            for index in 0..self.registers * self.packed() {
                let (row, column) = self.position(lane, index);
                visit(lane as usize, index, (row * self.columns + column) as usize);
            }
        }
    }

    /// The bits of an element.
    pub(crate) fn element(&self, registers: &Registers, index: u32) -> u64 {
        let packed = self.packed();
        let bits = registers[(index / packed) as usize] >> (index % packed * self.bits);
        if self.bits == 64 { bits } else { bits & ((1 << self.bits) - 1) }
    }

    /// Adds the bits of an element to registers in which they are zero.
    pub(crate) fn set_element(&self, registers: &mut Registers, index: u32, bits: u64) {
        let packed = self.packed();
        registers[(index / packed) as usize] |= bits << (index % packed * self.bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Case = (FragmentLayout, Element, Accumulator, (u32, u32, u32));

    const SHAPES: [Case; 13] = [
        (FragmentLayout::Mma, Element::F16, Accumulator::F16, (16, 8, 16)),
        (FragmentLayout::Mma, Element::Bf16, Accumulator::F32, (16, 8, 8)),
        (FragmentLayout::Mma, Element::Tf32, Accumulator::F32, (16, 8, 4)),
        (FragmentLayout::Mma, Element::F64, Accumulator::F64, (8, 8, 4)),
        (FragmentLayout::Mma, Element::F64, Accumulator::F64, (16, 8, 16)),
        (FragmentLayout::Mma, Element::S8, Accumulator::S32, (8, 8, 16)),
        (FragmentLayout::Mma, Element::E5m2, Accumulator::F32, (16, 8, 32)),
        (FragmentLayout::Mma, Element::U4, Accumulator::S32, (16, 8, 64)),
        (FragmentLayout::Mma, Element::B1, Accumulator::S32, (16, 8, 256)),
        (FragmentLayout::Wmma, Element::F16, Accumulator::F16, (32, 8, 16)),
        (FragmentLayout::Wmma, Element::Bf16, Accumulator::F32, (8, 32, 16)),
        (FragmentLayout::Wmma, Element::Tf32, Accumulator::F32, (16, 16, 8)),
        (FragmentLayout::Wmma, Element::F64, Accumulator::F64, (8, 8, 4)),
    ];

    #[test]
    fn fragments_hold_every_element_of_their_matrix() {
        for (layout, element, accumulator, (m, n, k)) in SHAPES {
            let shape = Shape { m, n, k };
            for fragment in [
                Fragment::of_factor(layout, Matrix::A, shape, element),
                Fragment::of_factor(layout, Matrix::B, shape, element),
                Fragment::of_accumulator(layout, shape, accumulator),
            ] {
                assert!((1..=8).contains(&fragment.registers), "{fragment:?}");
                let mut seen = vec![0; (fragment.rows * fragment.columns) as usize];
                fragment.for_each(|_, _, element| seen[element] += 1);
                assert!(seen.iter().all(|&times| times == seen[0] && times > 0), "{fragment:?}");
            }
        }
    }

    /// Some positions as the figures of the PTX ISA have them.
    #[test]
    fn elements_of_mma_lie_where_the_isa_says() {
        let shape = |m, n, k| Shape { m, n, k };
        let a = Fragment::of_factor(FragmentLayout::Mma, Matrix::A, shape(16, 8, 16), Element::F16);
        let positions = [0, 1, 2, 3, 4, 5, 6, 7].map(|index| a.position(6, index));
        assert_eq!(positions, [(1, 4), (1, 5), (9, 4), (9, 5), (1, 12), (1, 13), (9, 12), (9, 13)]);
        let b = Fragment::of_factor(FragmentLayout::Mma, Matrix::B, shape(16, 8, 16), Element::F16);
        assert_eq!([0, 1, 2, 3].map(|index| b.position(6, index)), [(4, 1), (5, 1), (12, 1), (13, 1)]);
        let c = Fragment::of_accumulator(FragmentLayout::Mma, shape(16, 8, 16), Accumulator::F32);
        assert_eq!([0, 1, 2, 3].map(|index| c.position(6, index)), [(1, 4), (1, 5), (9, 4), (9, 5)]);
        let bytes = Fragment::of_factor(FragmentLayout::Mma, Matrix::A, shape(16, 8, 32), Element::S8);
        assert_eq!([3, 4, 8, 15].map(|index| bytes.position(5, index)), [(1, 7), (9, 4), (1, 20), (9, 23)]);
    }
}
