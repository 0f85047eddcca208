//! Arguments of matrix products as the interface has them, checked and made a request.

use causeway_gemm::{Accumulator, Matrix, Request, Scalar, ScalarType, Source};

use crate::handle::{Handle, Settings};
use crate::launch::launch;
use crate::status::{Done, Status};
use crate::types::Operation;

/// A factor of one, as a value.
pub const ONE: Scalar = Scalar::value(1.0);
/// A factor of zero, as a value.
pub const ZERO: Scalar = Scalar::value(0.0);

/// A matrix stored by columns, as an argument.
#[derive(Debug, Clone, Copy)]
pub struct Argument {
    /// Address, or that of an array of addresses.
    pub address: u64,
    /// Type of the elements.
    pub scalar_type: ScalarType,
    /// Distance between columns.
    pub leading: i64,
    /// Distance between the matrices of a batch.
    pub batch_stride: i64,
    /// Whether the address is that of an array.
    pub is_array: bool,
}

impl Argument {
    /// A single matrix.
    pub fn new(address: *const u8, scalar_type: ScalarType, leading: i64) -> Self {
        Self { address: address as u64, scalar_type, leading, batch_stride: 0, is_array: false }
    }

    /// The matrices of a batch, so many elements apart.
    pub fn strided(self, batch_stride: i64) -> Self {
        Self { batch_stride, ..self }
    }

    /// The matrices whose addresses are in an array.
    pub fn array(self) -> Self {
        Self { is_array: true, ..self }
    }

    /// The matrix with an operation applied, if the stored one can have so many rows.
    pub fn matrix(self, operation: Operation, rows: i64, columns: i64) -> Result<Matrix, Status> {
        let stored_rows = if operation == Operation::None { rows } else { columns };
        if self.leading < stored_rows.max(1) {
            return Err(Status::InvalidValue);
        }
        let (row_stride, column_stride) = match operation {
            Operation::None => (1, self.leading),
            Operation::Transpose | Operation::ConjugateTranspose => (self.leading, 1),
        };
        Ok(Matrix {
            address: self.address,
            row_stride,
            column_stride,
            batch_stride: self.batch_stride,
            scalar_type: self.scalar_type as u32,
            source: (if self.is_array { Source::Array } else { Source::Memory }) as u16,
            is_conjugate: u8::from(
                operation == Operation::ConjugateTranspose && self.scalar_type.is_complex(),
            ),
            structure: 0,
        })
    }
}

/// A vector, as an argument: a column.
pub fn column(
    address: *const u8,
    scalar_type: ScalarType,
    len: i64,
    increment: i64,
) -> Result<Matrix, Status> {
    if address.is_null() || increment == 0 && len > 1 {
        return Err(Status::InvalidValue);
    }
    // With a negative increment the vector begins at the end of its memory.
    let first =
        if increment < 0 { (1 - len).checked_mul(increment).ok_or(Status::InvalidValue)? } else { 0 };
    let offset = first.wrapping_mul(scalar_type.size() as i64);
    Ok(Matrix {
        address: (address as u64).wrapping_add_signed(offset),
        row_stride: increment,
        scalar_type: scalar_type as u32,
        ..Matrix::default()
    })
}

/// The transpose of a matrix that is not conjugated.
pub fn transposed(matrix: Matrix) -> Matrix {
    Matrix { row_stride: matrix.column_stride, column_stride: matrix.row_stride, ..matrix }
}

/// `C = alpha * op(A) * op(B) + beta * C`, as the interface has it.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// Operations on A and B: `cublasOperation_t`.
    pub operations: [u32; 2],
    /// Rows and columns of the result, and columns of the left factor.
    pub sizes: [i64; 3],
    /// Products of the batch.
    pub batch: i64,
    /// In what is summed, and the type of alpha and beta.
    pub compute: (Accumulator, ScalarType),
    /// Alpha and beta, in the memory of the pointer mode.
    pub factors: [*const u8; 2],
    /// A, B and C.
    pub matrices: [Argument; 3],
}

impl Product {
    /// Launches it in the handle's stream.
    ///
    /// # Safety
    /// The handle is null or valid, and the factors point at values of their type.
    pub unsafe fn run(self, handle: *const Handle) -> Done {
        // SAFETY: the caller's handle is null or valid.
        let settings = unsafe { Handle::settings(handle)? };
        // SAFETY: whoever called `run` has factors that point at values of their type, in the memory of the
        // pointer mode.
        match unsafe { self.request(&settings)? } {
            Some(request) => launch(&request, settings.stream),
            None => Ok(()),
        }
    }

    /// The request, unless there is nothing to do.
    unsafe fn request(self, settings: &Settings) -> Result<Option<Request>, Status> {
        let [rows, columns, depth] = self.sizes;
        let operation = |number| Operation::from_number(number).ok_or(Status::InvalidValue);
        let [left, right] = [operation(self.operations[0])?, operation(self.operations[1])?];
        if rows < 0 || columns < 0 || depth < 0 || self.batch < 0 {
            return Err(Status::InvalidValue);
        }
        let [a, b, c] = self.matrices;
        let (a, b) = (a.matrix(left, rows, depth)?, b.matrix(right, depth, columns)?);
        let c = c.matrix(Operation::None, rows, columns)?;
        if rows == 0 || columns == 0 || self.batch == 0 {
            return Ok(None);
        }
        if c.address == 0 || depth > 0 && (a.address == 0 || b.address == 0) {
            return Err(Status::InvalidValue);
        }
        let (accumulator, scalar_type) = self.compute;
        // SAFETY: whoever called `run` has factors that point at values of their type, in the memory of the
        // pointer mode.
        let [alpha, beta] = unsafe {
            [settings.scalar(self.factors[0], scalar_type)?, settings.scalar(self.factors[1], scalar_type)?]
        };
        Ok(Some(Request {
            rows: rows.unsigned_abs(),
            columns: columns.unsigned_abs(),
            depth: depth.unsigned_abs(),
            batch: self.batch.unsigned_abs(),
            ..plain(a, b, c, accumulator, alpha, beta)
        }))
    }
}

/// The request for one element of one product, to be completed.
pub fn plain(
    a: Matrix,
    b: Matrix,
    c: Matrix,
    accumulator: Accumulator,
    alpha: Scalar,
    beta: Scalar,
) -> Request {
    Request {
        rows: 1,
        columns: 1,
        depth: 1,
        batch: 1,
        a,
        b,
        c,
        d: c,
        alpha,
        beta,
        bias: 0,
        bias_batch_stride: 0,
        bias_type: 0,
        activation: 0,
        accumulator: accumulator as u32,
        reserved: 0,
    }
}
