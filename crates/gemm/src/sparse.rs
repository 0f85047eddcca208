//! An operation with sparse matrices, as the kernel's parameter.
//!
//! What every step makes of its operands is a list of entries, which are sorted as the result's format has them and
//! written to it, or a dense matrix.

use crate::request::{Matrix, Scalar};

/// Bytes of a [`SparseRequest`].
pub const SPARSE_REQUEST_BYTES: usize = size_of::<SparseRequest>();

/// The most entries, rows, columns, and elements of dense matrices.
pub const MAX_SPARSE: u64 = 1 << 24;

/// What is done. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum SparseStep {
    /// `Y = alpha * A * X + beta * Y`, dense X and Y.
    MultiplyDense,
    /// `Y = A`, dense Y.
    ToDense,
    /// `C = X`, dense X: all elements but zeros.
    FromDense,
    /// `C = A`: another format, another order, or without small entries.
    Convert,
    /// `C = alpha * A * B`
    Product,
    /// `C = alpha * A + beta * B`
    Sum,
    /// `Y = alpha * inverse(A) * X`, dense X and Y, with a triangle of A.
    Solve,
    /// The same with all of A. The count is 0, or the number from 1 on of the first column whose pivot is not above the
    /// threshold.
    Eliminate,
    /// The values of C are those of incomplete factors L and U of A, which have its entries. The count is 0, or the number
    /// from 1 on of the first row whose pivot is missing or zero. With [`SPARSE_THRESHOLD`], a pivot that is not above the
    /// threshold becomes alpha; with [`SPARSE_COUNTS`], missing pivots are looked for and nothing is computed.
    IncompleteLu,
    /// The same with the incomplete factor L of Cholesky, of the lower triangle; a pivot is to be positive.
    IncompleteCholesky,
}

impl SparseStep {
    const ALL: [Self; 10] = [
        Self::MultiplyDense,
        Self::ToDense,
        Self::FromDense,
        Self::Convert,
        Self::Product,
        Self::Sum,
        Self::Solve,
        Self::Eliminate,
        Self::IncompleteLu,
        Self::IncompleteCholesky,
    ];

    /// The step of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// How entries are stored. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum SparseFormat {
    /// By rows: where each row begins, and the column of each entry.
    Rows,
    /// By columns: where each column begins, and the row of each entry.
    Columns,
    /// Row and column of each entry, sorted by rows.
    Pairs,
    /// Row and column of each entry, sorted by columns.
    PairsByColumns,
}

impl SparseFormat {
    const ALL: [Self; 4] = [Self::Rows, Self::Columns, Self::Pairs, Self::PairsByColumns];

    /// The format of this number.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// That of the transpose in the same memory.
    #[must_use]
    pub fn transposed(self) -> Self {
        match self {
            Self::Rows => Self::Columns,
            Self::Columns => Self::Rows,
            Self::Pairs => Self::PairsByColumns,
            Self::PairsByColumns => Self::Pairs,
        }
    }
}

/// A sparse matrix. Of a result, what has the address 0 is not written. Of an operand without values, all are 1;
/// without an array of pairs, the number of the entry is meant; without that of other formats, 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct SparseMatrix {
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// Entries. Of a result, as many as there is room for.
    pub entries: u64,
    /// Where rows (or columns) begin, one more than there are; or the row of each entry.
    pub row_indices: u64,
    /// Where columns begin; or the column of each entry.
    pub column_indices: u64,
    /// Values.
    pub values: u64,
    /// [`ScalarType`](crate::ScalarType) of `row_indices`, `I32` or `I64`.
    pub row_type: u32,
    /// The same of `column_indices`.
    pub column_type: u32,
    /// The same of values.
    pub value_type: u32,
    /// A [`SparseFormat`].
    pub format: u16,
    /// 1 if indices begin with 1.
    pub base: u8,
    /// 1 if the conjugates of the values are meant.
    pub is_conjugate: u8,
}

/// A dense matrix, with its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Dense {
    /// Rows.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// The elements.
    pub matrix: Matrix,
}

/// The diagonal of the triangle is one.
pub const SPARSE_UNIT_DIAGONAL: u32 = 1;
/// The triangle is the upper one.
pub const SPARSE_UPPER: u32 = 2;
/// Instead of where rows begin, how many entries each has is written.
pub const SPARSE_COUNTS: u32 = 4;
/// Entries are left out whose absolute value is not above the threshold.
pub const SPARSE_THRESHOLD: u32 = 8;

/// A step, in double precision. One block takes it.
///
/// It comes from a program, so that nothing in it is trusted. What a step does not use is of no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct SparseRequest {
    /// The first sparse operand.
    pub a: SparseMatrix,
    /// The second one.
    pub b: SparseMatrix,
    /// The sparse result. It may be an operand's memory.
    pub c: SparseMatrix,
    /// The dense operand.
    pub x: Dense,
    /// The dense result.
    pub y: Dense,
    /// Factor of the first operand or product.
    pub alpha: Scalar,
    /// Factor of the second one.
    pub beta: Scalar,
    /// Where the number of the result's entries goes; the address 0 says nowhere.
    pub count: Matrix,
    /// See [`SPARSE_THRESHOLD`].
    pub threshold: f64,
    /// A [`SparseStep`].
    pub step: u32,
    /// Sum of [`SPARSE_UNIT_DIAGONAL`] and those that follow it.
    pub flags: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_has_no_padding() {
        assert_eq!(size_of::<SparseMatrix>(), 6 * 8 + 4 * 4);
        let parts = 3 * 64 + 2 * size_of::<Dense>() + 2 * size_of::<Scalar>() + size_of::<Matrix>();
        assert_eq!(SPARSE_REQUEST_BYTES, parts + 2 * 8);
        for (number, step) in SparseStep::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, number);
        }
        for (number, format) in SparseFormat::ALL.into_iter().enumerate() {
            assert_eq!(format as usize, number);
        }
    }

    #[test]
    fn transposes_of_transposes_are_what_they_were() {
        for format in SparseFormat::ALL {
            assert!(format.transposed() != format && format.transposed().transposed() == format);
        }
    }
}
