//! Pieces of a copy in one, two or three dimensions.
//!
//! Pieces follow one another in the order of the copy's bytes as they would lie without gaps, and each is a
//! box on both sides: part of a row, whole rows of a slice, or whole slices. So a piece is packed and sent by
//! itself, and where one side of the copy has no gaps, the piece has none there either.

use super::plan::Direction;

/// The size of a copy: bytes of a row, rows of a slice, slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

impl Shape {
    /// `length` bytes in a row.
    pub fn linear(length: usize) -> Self {
        Self { width: length, height: 1, depth: 1 }
    }

    /// Its bytes, if they can be counted.
    pub fn bytes(&self) -> Option<usize> {
        self.width.checked_mul(self.height)?.checked_mul(self.depth)
    }
}

/// A box of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Bytes of its row, rows and slices before it.
    pub at: [usize; 3],
    /// Its size.
    pub shape: Shape,
    /// Bytes of the copy before it.
    pub offset: usize,
}

impl Piece {
    /// Its bytes.
    pub fn bytes(&self) -> usize {
        self.shape.width * self.shape.height * self.shape.depth
    }
}

/// Cuts a copy into pieces of at most `max` bytes, of about the same size where the copy is one row. Rows
/// are cut only where one is longer than that, and then at multiples of `grain` bytes; so a piece may be
/// longer where `grain` is.
pub fn cut(shape: Shape, max: usize, grain: usize) -> impl Iterator<Item = Piece> {
    let steps = steps(shape, max.max(1), grain.max(1));
    let total = shape.bytes().unwrap_or(0);
    let mut offset = 0;
    core::iter::from_fn(move || {
        if offset >= total {
            return None;
        }
        let at =
            [offset % shape.width, offset / shape.width % shape.height, offset / shape.width / shape.height];
        let shape = Shape {
            width: steps.width.min(shape.width - at[0]),
            height: steps.height.min(shape.height - at[1]),
            depth: steps.depth.min(shape.depth - at[2]),
        };
        let piece = Piece { at, shape, offset };
        offset += piece.bytes();
        Some(piece)
    })
}

/// Pieces are made shorter, where nothing is done beside one of the stages, down to this size, in bytes. The
/// GPU copies that much in 25 us, and a piece costs about 10 in notices (a virtual machine with an H200,
/// 2026-11-22).
const MIN_TAPERED_BYTES: usize = 1 << 20;

/// Cuts a copy without gaps into pieces of at most `max` bytes. The device's stage of the last piece to a
/// device, and of the first one from it, has nothing on the wire beside it; so pieces become ever shorter
/// towards that end. (Short first pieces to a device, for it to begin sooner, cost more than they gain: 2 to
/// 7 % of 8 to 16 MiB on that machine, 2026-11-24.)
pub fn cut_tapered(length: usize, max: usize, direction: Direction) -> impl Iterator<Item = Piece> {
    let max = max.max(1);
    let whole = (length / max).saturating_sub(1);
    let tapered = shrinking(length - whole * max, max);
    let (before, after) = match direction {
        Direction::ToDevice => (Vec::new(), tapered),
        Direction::FromDevice => (tapered.into_iter().rev().collect(), Vec::new()),
    };
    let mut offset = 0;
    before.into_iter().chain(core::iter::repeat_n(max, whole)).chain(after).map(move |bytes| {
        let piece = Piece { at: [offset, 0, 0], shape: Shape::linear(bytes), offset };
        offset += bytes;
        piece
    })
}

/// The last pieces of a copy, of which so much is left: each about half as long as the one before.
fn shrinking(mut left: usize, max: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    while left > max || left > 2 * MIN_TAPERED_BYTES {
        let half = left.div_ceil(2).next_multiple_of(4096).min(max);
        sizes.push(half);
        left -= half;
    }
    sizes.extend(Some(left).filter(|left| *left > 0));
    sizes
}

/// The size of a piece that meets no end of the copy.
fn steps(shape: Shape, max: usize, grain: usize) -> Shape {
    let Shape { width, height, depth } = shape;
    if width > max {
        let even = width.div_ceil(width.div_ceil(max)).next_multiple_of(4096).min(max);
        let whole = (even / grain * grain).max(grain);
        return Shape { width: whole, height: 1, depth: 1 };
    }
    let rows = max / width.max(1);
    if rows < height {
        return Shape { width, height: rows, depth: 1 };
    }
    let slices = (rows / height.max(1)).clamp(1, depth.max(1));
    Shape { width, height, depth: slices }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces(width: usize, height: usize, depth: usize, max: usize) -> Vec<([usize; 3], usize)> {
        let cut = cut(Shape { width, height, depth }, max, 1);
        cut.map(|piece| (piece.at, piece.bytes())).collect()
    }

    #[test]
    fn rows_then_slices_are_kept_whole_where_they_fit() {
        assert_eq!(pieces(3, 4, 1, 8), [([0, 0, 0], 6), ([0, 2, 0], 6)]);
        assert_eq!(pieces(1, 3, 3, 8), [([0, 0, 0], 6), ([0, 0, 2], 3)]);
        assert_eq!(pieces(9, 1, 2, 20), [([0, 0, 0], 18)]);
        assert_eq!(pieces(9, 1, 2, 5), [([0, 0, 0], 5), ([5, 0, 0], 4), ([0, 0, 1], 5), ([5, 0, 1], 4)]);
        assert!(pieces(0, 4, 4, 8).is_empty() && pieces(4, 0, 4, 8).is_empty());
    }

    #[test]
    fn a_row_is_cut_into_pieces_of_about_the_same_size() {
        let sizes: Vec<_> =
            pieces((8 << 20) + 1, 1, 1, 4 << 20).into_iter().map(|(_, bytes)| bytes).collect();
        assert_eq!(sizes.len(), 3);
        assert!(sizes.iter().all(|bytes| bytes.abs_diff(sizes[0]) <= 2 * 4096), "{sizes:?}");
    }

    #[test]
    fn copies_without_gaps_become_small_where_the_device_works_alone() {
        let sizes = |megabytes: usize, max: usize, direction| -> Vec<_> {
            cut_tapered(megabytes << 20, max << 20, direction).map(|piece| piece.bytes() >> 20).collect()
        };
        assert_eq!(sizes(33, 8, Direction::ToDevice), [8, 8, 8, 4, 2, 1, 1]);
        assert_eq!(sizes(32, 8, Direction::FromDevice), [2, 2, 4, 8, 8, 8]);
        assert_eq!(sizes(16, 2, Direction::ToDevice), [2; 8]);
        assert_eq!(sizes(9, 8, Direction::ToDevice), [4, 2, 1, 1]);
        assert_eq!(sizes(4, 1, Direction::ToDevice), [1, 1, 1, 1]);
        assert_eq!(sizes(2, 8, Direction::ToDevice), [2]);
        assert!(sizes(0, 8, Direction::FromDevice).is_empty());
    }

    #[test]
    fn a_copy_whose_bytes_cannot_be_counted_has_no_pieces() {
        assert_eq!(cut(Shape { width: usize::MAX, height: 2, depth: 2 }, 1, 1).count(), 0);
    }

    proptest! {
        #[test]
        fn tapered_pieces_follow_one_another(
            length in 0_usize..64 << 20, max in 1_usize << 16..9 << 20, to_device: bool,
        ) {
            let direction = if to_device { Direction::ToDevice } else { Direction::FromDevice };
            let mut next = 0;
            for piece in cut_tapered(length, max, direction) {
                prop_assert_eq!((piece.at, piece.offset), ([next, 0, 0], next));
                prop_assert!((1..=max).contains(&piece.bytes()));
                next += piece.bytes();
            }
            prop_assert_eq!(next, length);
        }

        #[test]
        fn pieces_cover_the_copy_exactly_once(
            width in 1_usize..70, height in 1_usize..9, depth in 1_usize..7,
            max in 1_usize..600, grain in 1_usize..5,
        ) {
            let width = width * grain;
            let shape = Shape { width, height, depth };
            let mut seen = vec![0_u8; shape.bytes().unwrap()];
            let mut next = 0;
            for piece in cut(shape, max, grain) {
                prop_assert_eq!(piece.offset, next);
                next += piece.bytes();
                prop_assert!(piece.bytes() <= max.max(grain), "{:?}", piece);
                prop_assert!(piece.at[0].is_multiple_of(grain) && piece.shape.width.is_multiple_of(grain));
                let mut inside = 0;
                for z in piece.at[2]..piece.at[2] + piece.shape.depth {
                    for y in piece.at[1]..piece.at[1] + piece.shape.height {
                        for x in piece.at[0]..piece.at[0] + piece.shape.width {
                            let position = (z * height + y) * width + x;
                            // In a piece the bytes follow one another as in the copy without its gaps.
                            prop_assert_eq!(position, piece.offset + inside);
                            inside += 1;
                            seen[position] += 1;
                        }
                    }
                }
            }
            prop_assert!(seen.iter().all(|count| *count == 1));
        }
    }
}
