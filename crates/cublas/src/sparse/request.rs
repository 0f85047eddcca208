//! Launch of steps with sparse matrices, and results that callers wait for.

use core::ffi::c_int;

use causeway_gemm::{MAX_SPARSE, Matrix, ScalarType, SparseFormat, SparseMatrix, SparseRequest, SparseStep};

use super::objects::{index_base, size};
use crate::driver;
use crate::handle::Handle;
use crate::launch::launch_sparse;
use crate::status::{Done, Status};

/// Launches a step in the handle's stream.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn run(handle: *const Handle, step: SparseStep, request: SparseRequest) -> Done {
    // SAFETY: the caller's handle is null or valid.
    let settings = unsafe { Handle::settings(handle)? };
    let is_large = |matrix: &SparseMatrix| matrix.rows.max(matrix.columns).max(matrix.entries) > MAX_SPARSE;
    let dense = |dense: &causeway_gemm::Dense| dense.rows.saturating_mul(dense.columns) > MAX_SPARSE;
    let sparse = [request.a, request.b, request.c];
    if sparse.iter().any(is_large) || dense(&request.x) || dense(&request.y) {
        return Err(Status::NotSupported);
    }
    launch_sparse(&SparseRequest { step: step as u32, ..request }, settings.stream)
}

/// Launches a step that counts the entries of its result, and waits for their number.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn count(handle: *const Handle, step: SparseStep, request: SparseRequest) -> Result<u64, Status> {
    let mut number = 0_i64;
    // SAFETY: the caller's handle is null or valid; `number` has room for what is copied.
    unsafe {
        let address = Handle::result(handle)?;
        let count = Matrix { address, scalar_type: ScalarType::I64 as u32, ..Matrix::default() };
        run(handle, step, SparseRequest { count, ..request })?;
        let stream = Handle::settings(handle)?.stream;
        driver::functions()?.copy_to_host((&raw mut number).cast(), address, size_of::<i64>(), stream)?;
    }
    size(number)
}

/// A matrix of older functions: by rows, or columns, with indices of 32 bits.
pub fn compressed(
    format: SparseFormat,
    [rows, columns, entries]: [c_int; 3],
    [lines, indices, values]: [*const u8; 3],
    elements: ScalarType,
    base: u32,
) -> Result<SparseMatrix, Status> {
    let (row_indices, column_indices) = match format {
        SparseFormat::Columns => (indices, lines),
        _ => (lines, indices),
    };
    let index = ScalarType::I32 as u32;
    Ok(SparseMatrix {
        rows: size(rows.into())?,
        columns: size(columns.into())?,
        entries: size(entries.into())?,
        row_indices: row_indices as u64,
        column_indices: column_indices as u64,
        values: values as u64,
        row_type: index,
        column_type: index,
        value_type: elements as u32,
        format: format as u16,
        base: index_base(base)?,
        is_conjugate: 0,
    })
}

/// Bytes of the workspace that callers allocate: some take none for an error.
pub const WORKSPACE: usize = 256;
