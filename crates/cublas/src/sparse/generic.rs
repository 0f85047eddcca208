//! Products, conversions and solutions with descriptors: `SpMV`, `SpMM`, `SpGEMM`, `SpSV`, `SpSM`, `SparseToDense`,
//! `DenseToSparse`, `Gather`.

use causeway_gemm::{
    Dense, SPARSE_UNIT_DIAGONAL, SPARSE_UPPER, ScalarType, SparseMatrix, SparseRequest, SparseStep,
};

use super::descriptors::{change, object, selection};
use super::objects::{Dn, SpMat, SpVec, applied, value_type};
use super::request::{WORKSPACE, count, run};
use super::status::sparse_functions;
use crate::handle::Handle;
use crate::operation::ONE;
use crate::status::{Done, Status, write_value};
use crate::types::Operation;

/// What descriptors of products and solutions point at: nothing depends on them.
static PLAN: u64 = 0;

fn operation(number: u32) -> Result<Operation, Status> {
    Operation::from_number(number).ok_or(Status::InvalidValue)
}

/// `C = alpha * op(A) * op(B) + beta * C`, dense B and C.
unsafe fn multiply(
    handle: *const Handle,
    [left, right]: [u32; 2],
    [alpha, beta]: [*const u8; 2],
    a: *const SpMat,
    [b, c]: [*const Dn; 2],
    compute_type: u32,
) -> Done {
    // SAFETY: the caller's handle and descriptors are null or valid, and the factors are values of the
    // compute type in the memory of the pointer mode.
    unsafe {
        let (settings, compute) = (Handle::settings(handle)?, value_type(compute_type)?);
        let a = applied(object(a)?.matrix, operation(left)?);
        let (x, y) = (object(b)?.dense(operation(right)?)?, object(c)?.dense(Operation::None)?);
        if a.columns != x.rows || a.rows != y.rows || x.columns != y.columns {
            return Err(Status::InvalidValue);
        }
        let (alpha, beta) = (settings.scalar(alpha, compute)?, settings.scalar(beta, compute)?);
        let request = SparseRequest { a, x, y, alpha, beta, ..SparseRequest::default() };
        run(handle, SparseStep::MultiplyDense, request)
    }
}

/// `op(A) * C = alpha * op(B)`, dense B and C.
unsafe fn solve(
    handle: *const Handle,
    [left, right]: [u32; 2],
    alpha: *const u8,
    a: *const SpMat,
    [b, c]: [*const Dn; 2],
    compute_type: u32,
) -> Done {
    // SAFETY: the caller's handle and descriptors are null or valid, and the factors are values of the
    // compute type in the memory of the pointer mode.
    unsafe {
        let (settings, compute) = (Handle::settings(handle)?, value_type(compute_type)?);
        let (sparse, left) = (object(a)?, operation(left)?);
        let a = applied(sparse.matrix, left);
        let (x, y) = (object(b)?.dense(operation(right)?)?, object(c)?.dense(Operation::None)?);
        let sizes = [a.columns, x.rows, y.rows];
        if sizes.iter().any(|size| *size != a.rows) || x.columns != y.columns {
            return Err(Status::InvalidValue);
        }
        let is_upper = (sparse.fill == 1) != (left != Operation::None);
        let flags = [(is_upper, SPARSE_UPPER), (sparse.diagonal == 1, SPARSE_UNIT_DIAGONAL)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum();
        let alpha = settings.scalar(alpha, compute)?;
        let request = SparseRequest { a, x, y, alpha, flags, ..SparseRequest::default() };
        run(handle, SparseStep::Solve, request)
    }
}

/// What is needed of a sparse product.
unsafe fn product(
    handle: *const Handle,
    operations: [u32; 2],
    [alpha, beta]: [*const u8; 2],
    [a, b, c]: [*const SpMat; 3],
    compute_type: u32,
) -> Result<SparseRequest, Status> {
    // SAFETY: the caller's handle and descriptors are null or valid, and the factors are values of the
    // compute type in the memory of the pointer mode.
    unsafe {
        let (settings, compute) = (Handle::settings(handle)?, value_type(compute_type)?);
        let [left, right] = [operation(operations[0])?, operation(operations[1])?];
        let (a, b, c) =
            (applied(object(a)?.matrix, left), applied(object(b)?.matrix, right), object(c)?.matrix);
        if a.columns != b.rows || (c.rows, c.columns) != (a.rows, b.columns) {
            return Err(Status::InvalidValue);
        }
        let (alpha, beta) = (settings.scalar(alpha, compute)?, settings.scalar(beta, compute)?);
        if beta.address != 0 || beta.real != 0.0 || beta.imaginary != 0.0 {
            return Err(Status::NotSupported);
        }
        Ok(SparseRequest { a, b, c, alpha, beta, ..SparseRequest::default() })
    }
}

/// What is needed to make a dense matrix sparse.
unsafe fn from_dense(dense: *const Dn, sparse: *const SpMat) -> Result<SparseRequest, Status> {
    // SAFETY: the caller's descriptors are null or valid.
    let (x, c) = unsafe { (object(dense)?.dense(Operation::None)?, object(sparse)?.matrix) };
    if (x.rows, x.columns) != (c.rows, c.columns) {
        return Err(Status::InvalidValue);
    }
    Ok(SparseRequest { x, c, ..SparseRequest::default() })
}

/// A matrix of which the arrays are not written.
fn without_arrays(matrix: SparseMatrix) -> SparseMatrix {
    SparseMatrix { row_indices: 0, column_indices: 0, values: 0, ..matrix }
}

sparse_functions! {
    /// The workspace of `SpMV`.
    fn cusparseSpMV_bufferSize(
        _handle: *const Handle, _operation: u32, _alpha: *const u8, _a: *const SpMat, _x: *const Dn,
        _beta: *const u8, _y: *const Dn, _compute: u32, _algorithm: u32, size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// Nothing needs preparation.
    fn cusparseSpMV_preprocess(
        handle: *const Handle, _operation: u32, _alpha: *const u8, _a: *const SpMat, _x: *const Dn,
        _beta: *const u8, _y: *const Dn, _compute: u32, _algorithm: u32, _buffer: *const u8
    ) {
        Handle::settings(handle).map(drop)
    }

    /// The product of a sparse matrix and a vector.
    fn cusparseSpMV(
        handle: *const Handle, operation: u32, alpha: *const u8, a: *const SpMat, x: *const Dn,
        beta: *const u8, y: *const Dn, compute: u32, _algorithm: u32, _buffer: *const u8
    ) {
        multiply(handle, [operation, 0], [alpha, beta], a, [x, y], compute)
    }

    /// The workspace of `SpMM`.
    fn cusparseSpMM_bufferSize(
        _handle: *const Handle, _left: u32, _right: u32, _alpha: *const u8, _a: *const SpMat, _b: *const Dn,
        _beta: *const u8, _c: *const Dn, _compute: u32, _algorithm: u32, size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// Nothing needs preparation.
    fn cusparseSpMM_preprocess(
        handle: *const Handle, _left: u32, _right: u32, _alpha: *const u8, _a: *const SpMat, _b: *const Dn,
        _beta: *const u8, _c: *const Dn, _compute: u32, _algorithm: u32, _buffer: *const u8
    ) {
        Handle::settings(handle).map(drop)
    }

    /// The product of a sparse matrix and a dense one.
    fn cusparseSpMM(
        handle: *const Handle, left: u32, right: u32, alpha: *const u8, a: *const SpMat, b: *const Dn,
        beta: *const u8, c: *const Dn, compute: u32, _algorithm: u32, _buffer: *const u8
    ) {
        multiply(handle, [left, right], [alpha, beta], a, [b, c], compute)
    }

    /// Makes a descriptor of a sparse product.
    fn cusparseSpGEMM_createDescr(to: *mut *const u64) { write_value(to, &raw const PLAN) }
    /// Ends it.
    fn cusparseSpGEMM_destroyDescr(_plan: *const u64) { Ok(()) }

    /// The first workspace of a sparse product.
    fn cusparseSpGEMM_workEstimation(
        handle: *const Handle, _left: u32, _right: u32, _alpha: *const u8, _a: *const SpMat, _b: *const SpMat,
        _beta: *const u8, _c: *const SpMat, _compute: u32, _algorithm: u32, _plan: *const u64,
        size: *mut usize, _buffer: *const u8
    ) {
        Handle::settings(handle)?;
        write_value(size, WORKSPACE)
    }

    /// The second workspace, without a buffer; with one, how many entries the product has.
    fn cusparseSpGEMM_compute(
        handle: *const Handle, left: u32, right: u32, alpha: *const u8, a: *const SpMat, b: *const SpMat,
        beta: *const u8, c: *mut SpMat, compute: u32, _algorithm: u32, _plan: *const u64, size: *mut usize,
        buffer: *const u8
    ) {
        if buffer.is_null() {
            return write_value(size, WORKSPACE);
        }
        let request = product(handle, [left, right], [alpha, beta], [a, b, c.cast_const()], compute)?;
        let request = SparseRequest { c: without_arrays(request.c), ..request };
        let entries = count(handle, SparseStep::Product, request)?;
        change(c, |sparse| { sparse.matrix.entries = entries; Ok(()) })
    }

    /// The product of two sparse matrices.
    fn cusparseSpGEMM_copy(
        handle: *const Handle, left: u32, right: u32, alpha: *const u8, a: *const SpMat, b: *const SpMat,
        beta: *const u8, c: *const SpMat, compute: u32, _algorithm: u32, _plan: *const u64
    ) {
        let request = product(handle, [left, right], [alpha, beta], [a, b, c], compute)?;
        run(handle, SparseStep::Product, request)
    }

    /// Makes a descriptor of a triangular system.
    fn cusparseSpSV_createDescr(to: *mut *const u64) { write_value(to, &raw const PLAN) }
    /// Ends it.
    fn cusparseSpSV_destroyDescr(_plan: *const u64) { Ok(()) }
    /// Makes a descriptor of triangular systems.
    fn cusparseSpSM_createDescr(to: *mut *const u64) { write_value(to, &raw const PLAN) }
    /// Ends it.
    fn cusparseSpSM_destroyDescr(_plan: *const u64) { Ok(()) }

    /// The workspace of a triangular system.
    fn cusparseSpSV_bufferSize(
        _handle: *const Handle, _operation: u32, _alpha: *const u8, _a: *const SpMat, _x: *const Dn,
        _y: *const Dn, _compute: u32, _algorithm: u32, _plan: *const u64, size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// Nothing needs preparation.
    fn cusparseSpSV_analysis(
        handle: *const Handle, _operation: u32, _alpha: *const u8, _a: *const SpMat, _x: *const Dn,
        _y: *const Dn, _compute: u32, _algorithm: u32, _plan: *const u64, _buffer: *const u8
    ) {
        Handle::settings(handle).map(drop)
    }

    /// Solves a triangular system.
    fn cusparseSpSV_solve(
        handle: *const Handle, operation: u32, alpha: *const u8, a: *const SpMat, x: *const Dn, y: *const Dn,
        compute: u32, _algorithm: u32, _plan: *const u64
    ) {
        solve(handle, [operation, 0], alpha, a, [x, y], compute)
    }

    /// The workspace of triangular systems.
    fn cusparseSpSM_bufferSize(
        _handle: *const Handle, _left: u32, _right: u32, _alpha: *const u8, _a: *const SpMat, _b: *const Dn,
        _c: *const Dn, _compute: u32, _algorithm: u32, _plan: *const u64, size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// Nothing needs preparation.
    fn cusparseSpSM_analysis(
        handle: *const Handle, _left: u32, _right: u32, _alpha: *const u8, _a: *const SpMat, _b: *const Dn,
        _c: *const Dn, _compute: u32, _algorithm: u32, _plan: *const u64, _buffer: *const u8
    ) {
        Handle::settings(handle).map(drop)
    }

    /// Solves triangular systems.
    fn cusparseSpSM_solve(
        handle: *const Handle, left: u32, right: u32, alpha: *const u8, a: *const SpMat, b: *const Dn,
        c: *const Dn, compute: u32, _algorithm: u32, _plan: *const u64
    ) {
        solve(handle, [left, right], alpha, a, [b, c], compute)
    }

    /// The workspace of `SparseToDense`.
    fn cusparseSparseToDense_bufferSize(
        _handle: *const Handle, _a: *const SpMat, _b: *const Dn, _algorithm: u32, size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// A sparse matrix as a dense one.
    fn cusparseSparseToDense(
        handle: *const Handle, a: *const SpMat, b: *const Dn, _algorithm: u32, _buffer: *const u8
    ) {
        let (a, y) = (object(a)?.matrix, object(b)?.dense(Operation::None)?);
        if (a.rows, a.columns) != (y.rows, y.columns) {
            return Err(Status::InvalidValue);
        }
        run(handle, SparseStep::ToDense, SparseRequest { a, y, ..SparseRequest::default() })
    }

    /// The workspace of `DenseToSparse`.
    fn cusparseDenseToSparse_bufferSize(
        _handle: *const Handle, _a: *const Dn, _b: *const SpMat, _algorithm: u32, size: *mut usize
    ) {
        write_value(size, WORKSPACE)
    }

    /// Counts what is not zero.
    fn cusparseDenseToSparse_analysis(
        handle: *const Handle, a: *const Dn, b: *mut SpMat, _algorithm: u32, _buffer: *const u8
    ) {
        let request = from_dense(a, b.cast_const())?;
        let request = SparseRequest { c: without_arrays(request.c), ..request };
        let entries = count(handle, SparseStep::FromDense, request)?;
        change(b, |sparse| { sparse.matrix.entries = entries; Ok(()) })
    }

    /// A dense matrix as a sparse one.
    fn cusparseDenseToSparse_convert(
        handle: *const Handle, a: *const Dn, b: *const SpMat, _algorithm: u32, _buffer: *const u8
    ) {
        run(handle, SparseStep::FromDense, from_dense(a, b)?)
    }

    /// The indexed elements of a dense vector, to the values of a sparse one.
    fn cusparseGather(handle: *const Handle, y: *const Dn, x: *const SpVec) {
        let (a, vector) = selection(x)?;
        let values = Dn {
            rows: vector.entries,
            columns: 1,
            leading: vector.entries,
            values: vector.values,
            value_type: vector.value_type,
            is_by_rows: false,
        };
        let (from, to): (Dense, Dense) = (object(y)?.dense(Operation::None)?, values.dense(Operation::None)?);
        if from.rows != a.columns {
            return Err(Status::InvalidValue);
        }
        let request = SparseRequest { a, x: from, y: to, alpha: ONE, ..SparseRequest::default() };
        run(handle, SparseStep::MultiplyDense, request)
    }

    /// Writes 0, 1, 2 and so on.
    fn cusparseCreateIdentityPermutation(handle: *const Handle, count: i32, to: *mut i32) {
        let entries = super::objects::size(count.into())?;
        let plain = SparseMatrix {
            rows: entries,
            columns: entries,
            entries,
            row_type: ScalarType::I32 as u32,
            column_type: ScalarType::I32 as u32,
            value_type: ScalarType::I32 as u32,
            format: causeway_gemm::SparseFormat::Pairs as u16,
            ..SparseMatrix::default()
        };
        let c = SparseMatrix { row_indices: to as u64, ..plain };
        run(handle, SparseStep::Convert, SparseRequest { a: plain, c, ..SparseRequest::default() })
    }
}
