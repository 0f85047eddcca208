//! A solution or factorization of matrices, as the kernel's parameter.

use crate::request::{Matrix, Scalar};

/// Bytes of a [`SolveRequest`].
pub const SOLVE_REQUEST_BYTES: usize = size_of::<SolveRequest>();

/// The most elements of a matrix that is solved with.
pub const MAX_ELEMENTS: u64 = 1 << 24;

/// What is done. The numbers are passed to the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// `B = alpha * inverse(A) * B`, with the lower triangle of A.
    SolveLower,
    /// The same with the upper triangle.
    SolveUpper,
    /// `A = L * L^H` of the lower triangle, which becomes L.
    Cholesky,
    /// `A = P * L * U`, in place.
    Lu,
    /// `B = inverse(op(A)) * B`, with the factors that `Lu` made.
    SolveLu,
    /// `A = Q * R`: R, below it the vectors of the reflections, whose factors are the values.
    Qr,
    /// `B = op(Q) * B`, with what `Qr` made.
    MultiplyQ,
    /// The first columns of Q, with what `Qr` made, to B.
    FormQ,
    /// Eigenvalues of the lower triangle in ascending order; the vectors to B.
    Eigen,
    /// Singular values in descending order; the vectors to B (of the rows' space) and C (of the columns').
    Singular,
    /// `B = alpha * A * B`, with the lower triangle of A.
    MultiplyLower,
    /// The same with the upper triangle.
    MultiplyUpper,
    /// Eigenvalues of A, and to B the vectors that A multiplies by them: of a real A and B, real and imaginary part of
    /// one for each pair of conjugates. If C has a row, the imaginary parts go there.
    EigenGeneral,
}

impl Step {
    const ALL: [Self; 13] = [
        Self::SolveLower,
        Self::SolveUpper,
        Self::Cholesky,
        Self::Lu,
        Self::SolveLu,
        Self::Qr,
        Self::MultiplyQ,
        Self::FormQ,
        Self::Eigen,
        Self::Singular,
        Self::MultiplyLower,
        Self::MultiplyUpper,
        Self::EigenGeneral,
    ];

    /// The step of this number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// The diagonal of a triangle is one.
pub const UNIT_DIAGONAL: u32 = 1;
/// `op` transposes.
pub const TRANSPOSE: u32 = 2;
/// `op` conjugates.
pub const CONJUGATE: u32 = 4;
/// B is the identity matrix before.
pub const FROM_IDENTITY: u32 = 8;
/// No vectors are computed.
pub const VALUES_ALONE: u32 = 16;

/// A step on each matrix of a batch, in double precision.
///
/// It comes from a program, so that nothing in it is trusted. Matrices that the step does not use are of no
/// meaning; of pivots and `info`, the address 0 says that there are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[repr(C)]
pub struct SolveRequest {
    /// Rows of A.
    pub rows: u64,
    /// Columns of A.
    pub columns: u64,
    /// Rows of B.
    pub b_rows: u64,
    /// Columns of B.
    pub b_columns: u64,
    /// Rows of C.
    pub c_rows: u64,
    /// Matrices of the batch: as many blocks the kernel needs.
    pub batch: u64,
    /// The matrix.
    pub a: Matrix,
    /// The second one.
    pub b: Matrix,
    /// The third one, with as many columns as A.
    pub c: Matrix,
    /// Factors of reflections, eigenvalues or singular values: a column.
    pub values: Matrix,
    /// Which row each one was exchanged with, from 1 on: a column.
    pub pivots: Matrix,
    /// Where the result goes: 0, or the number of the column that ended the step.
    pub info: Matrix,
    /// Factor of the right side of triangular systems.
    pub alpha: Scalar,
    /// A [`Step`].
    pub step: u32,
    /// Sum of [`UNIT_DIAGONAL`] and those that follow it.
    pub flags: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_consists_of_whole_words_without_padding() {
        assert_eq!(SOLVE_REQUEST_BYTES, 6 * 8 + 6 * size_of::<Matrix>() + size_of::<Scalar>() + 2 * 4);
        assert_eq!(SOLVE_REQUEST_BYTES % 8, 0);
        for (number, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, number);
        }
    }
}
