//! What descriptors point at: sparse and dense matrices and vectors with their types.

use causeway_gemm::{Dense, Matrix, ScalarType, SparseFormat, SparseMatrix};

use crate::status::Status;
use crate::types::Operation;

/// A sparse matrix, and which triangle of it is meant by solutions.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpMat {
    pub matrix: SparseMatrix,
    /// `cusparseFillMode_t`
    pub fill: u32,
    /// `cusparseDiagType_t`
    pub diagonal: u32,
}

/// A dense vector, a column; or a dense matrix.
#[derive(Debug, Clone, Copy, Default)]
pub struct Dn {
    pub rows: i64,
    pub columns: i64,
    pub leading: i64,
    pub values: u64,
    /// `cudaDataType`
    pub value_type: u32,
    /// Whether rows lie one behind another, not columns: `cusparseOrder_t`.
    pub is_by_rows: bool,
}

/// A sparse vector.
#[derive(Debug, Clone, Copy, Default)]
pub struct SpVec {
    pub len: i64,
    pub entries: i64,
    pub indices: u64,
    pub values: u64,
    /// `cusparseIndexType_t`
    pub index_type: u32,
    pub base: u32,
    /// `cudaDataType`
    pub value_type: u32,
}

/// `cusparseMatDescr_t`: what older functions know of a matrix.
#[derive(Debug, Clone, Copy, Default)]
pub struct MatDescr {
    /// `cusparseMatrixType_t`
    pub kind: u32,
    /// `cusparseFillMode_t`
    pub fill: u32,
    /// `cusparseDiagType_t`
    pub diagonal: u32,
    /// `cusparseIndexBase_t`
    pub base: u32,
}

/// `cusparseIndexType_t`
pub fn index_type(number: u32) -> Result<u32, Status> {
    match number {
        2 => Ok(ScalarType::I32 as u32),
        3 => Ok(ScalarType::I64 as u32),
        _ => Err(Status::NotSupported),
    }
}

/// The number of an index type.
pub fn index_number(scalar_type: u32) -> u32 {
    if scalar_type == ScalarType::I64 as u32 { 3 } else { 2 }
}

/// A `cudaDataType` that is computed with.
pub fn value_type(number: u32) -> Result<ScalarType, Status> {
    crate::types::scalar_type(number).ok_or(Status::NotSupported)
}

/// The `cudaDataType` of a type.
pub fn value_number(scalar_type: u32) -> u32 {
    (0..16)
        .find(|number| crate::types::scalar_type(*number).is_some_and(|kind| kind as u32 == scalar_type))
        .unwrap_or(0)
}

/// `cusparseIndexBase_t`
pub fn index_base(number: u32) -> Result<u8, Status> {
    if number > 1 { Err(Status::InvalidValue) } else { Ok(number as u8) }
}

/// A number of rows, columns or entries.
pub fn size(count: i64) -> Result<u64, Status> {
    u64::try_from(count).map_err(|_| Status::InvalidValue)
}

/// The matrix with an operation applied, in the same memory.
pub fn applied(matrix: SparseMatrix, operation: Operation) -> SparseMatrix {
    if operation == Operation::None {
        return matrix;
    }
    let format = SparseFormat::from_number(matrix.format).unwrap_or(SparseFormat::Rows);
    SparseMatrix {
        rows: matrix.columns,
        columns: matrix.rows,
        row_indices: matrix.column_indices,
        column_indices: matrix.row_indices,
        row_type: matrix.column_type,
        column_type: matrix.row_type,
        format: format.transposed() as u16,
        is_conjugate: u8::from(operation == Operation::ConjugateTranspose),
        ..matrix
    }
}

impl Dn {
    /// The matrix with an operation applied.
    pub fn dense(self, operation: Operation) -> Result<Dense, Status> {
        let (rows, columns) = (size(self.rows)?, size(self.columns)?);
        let scalar_type = value_type(self.value_type)?;
        let (row_stride, column_stride) = if self.is_by_rows { (self.leading, 1) } else { (1, self.leading) };
        let stored = Matrix {
            address: self.values,
            row_stride,
            column_stride,
            scalar_type: scalar_type as u32,
            is_conjugate: u8::from(operation == Operation::ConjugateTranspose && scalar_type.is_complex()),
            ..Matrix::default()
        };
        Ok(if operation == Operation::None {
            Dense { rows, columns, matrix: stored }
        } else {
            Dense { rows: columns, columns: rows, matrix: crate::operation::transposed(stored) }
        })
    }
}
