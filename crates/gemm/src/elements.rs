//! An operation on the elements of one or two matrices, as the kernel's parameter.

use crate::request::{Matrix, Scalar, TILE};

/// Bytes of an [`ElementsRequest`].
pub const ELEMENTS_REQUEST_BYTES: usize = size_of::<ElementsRequest>();

/// What is done. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ElementsStep {
    /// `X' = f0 * X + f1 * Y` and, if it has an address, `Y' = f2 * X + f3 * Y`.
    Combine,
    /// `X' = X * Y`, element by element.
    Multiply,
    /// `X'` is the sum of the absolute values in X, a column: of real and imaginary parts.
    AbsoluteSum,
    /// `X'` is the number of the largest element of X, a column, by absolute value, counted from 1.
    IndexOfMax,
    /// The same of the smallest element.
    IndexOfMin,
}

impl ElementsStep {
    const ALL: [Self; 5] =
        [Self::Combine, Self::Multiply, Self::AbsoluteSum, Self::IndexOfMax, Self::IndexOfMin];

    /// The step of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Whether all elements make one result.
    pub fn is_reduction(self) -> bool {
        !matches!(self, Self::Combine | Self::Multiply)
    }
}

/// An operation on elements, in double precision.
///
/// It comes from a program, so that nothing in it is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct ElementsRequest {
    /// Rows of all matrices.
    pub rows: u64,
    /// Columns of all matrices.
    pub columns: u64,
    /// The first operand. A stride of 0 repeats a row or column.
    pub x: Matrix,
    /// The second operand.
    pub y: Matrix,
    /// The first result. It may be the same memory as an operand.
    pub x_result: Matrix,
    /// The second result; the address 0 says that there is none.
    pub y_result: Matrix,
    /// Factors. An operand is not read if those of all its products are 0.
    pub factors: [Scalar; 4],
    /// An [`ElementsStep`].
    pub step: u32,
    /// Always 0.
    pub reserved: u32,
}

impl ElementsRequest {
    /// How many blocks the kernel needs: one for each tile, or one for a reduction. None if they are more than
    /// can be counted.
    pub fn blocks(&self) -> Option<u64> {
        if ElementsStep::from_number(self.step)?.is_reduction() {
            return Some(1);
        }
        self.rows.div_ceil(TILE).checked_mul(self.columns.div_ceil(TILE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_no_padding() {
        let parts = 4 * size_of::<Matrix>() + 4 * size_of::<Scalar>();
        assert_eq!(ELEMENTS_REQUEST_BYTES, 2 * 8 + parts + 2 * 4);
        assert_eq!(ELEMENTS_REQUEST_BYTES % 8, 0);
        for (number, step) in ElementsStep::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, number);
        }
    }
}
