//! What blocks of products and of operations on elements begin with: the tile that is theirs, and factors.

use causeway_gemm::{Matrix, Scalar, TILE};

use super::memory::{Operand, Range};
use super::sums::Sum;
use crate::memory::AddressSpace;
use crate::run::context::Raised;

/// The tile's part of the result.
pub(super) struct Tile {
    pub(super) batch: u64,
    pub(super) rows: Range,
    pub(super) columns: Range,
}

impl Tile {
    pub(super) fn of_block([rows, columns]: [u64; 2], batch: u64, block: u64) -> Option<Self> {
        let down = rows.div_ceil(TILE);
        let of_one = down.checked_mul(columns.div_ceil(TILE))?;
        let number = block.checked_div(of_one)?;
        let tile = block % of_one;
        let range =
            |index: u64, count: u64| Range { first: index * TILE, len: TILE.min(count - index * TILE) };
        Some(Self { batch: number, rows: range(tile % down, rows), columns: range(tile / down, columns) })
            .filter(|tile| tile.batch < batch)
    }
}

/// A factor, from where it is.
pub(in crate::run) fn scalar<T: Sum>(scalar: &Scalar, space: &AddressSpace) -> Result<T, Raised> {
    if scalar.address == 0 {
        return Ok(T::of_parts(scalar.real, scalar.imaginary));
    }
    let matrix = Matrix {
        address: scalar.address,
        scalar_type: scalar.scalar_type,
        is_conjugate: u8::from(scalar.is_conjugate != 0),
        ..Matrix::default()
    };
    let (mut value, one) = (T::default(), Range { first: 0, len: 1 });
    // SAFETY: there is room for one element, and this runs on a coroutine.
    unsafe { Operand::of(&matrix, 0, space)?.read(one, one, &raw mut value, 1)? };
    if scalar.is_negative != 0 {
        value = value.times(T::of_single(-1.0));
    }
    Ok(value)
}
