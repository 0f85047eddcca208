//! Systems with sparse matrices: `csrlsvqr` and `csrlsvchol`.

use core::ffi::c_int;

use causeway_gemm::{Dense, Matrix, ScalarType, SparseFormat, SparseRequest, SparseStep};

use super::status::solver_functions;
use crate::handle::Handle;
use crate::operation::ONE;
use crate::sparse::descriptors::object;
use crate::sparse::objects::{MatDescr, size};
use crate::sparse::request::{compressed, count};
use crate::status::{Done, Status};

/// Solves, and says at which column the matrix is singular: -1 if it is not.
#[allow(clippy::too_many_arguments)]
unsafe fn solve(
    handle: *const Handle,
    [order, entries]: [c_int; 2],
    elements: ScalarType,
    matrix: *const MatDescr,
    arrays: [*const u8; 3],
    [right, unknowns]: [*const u8; 2],
    tolerance: f64,
    singularity: *mut c_int,
) -> Done {
    if singularity.is_null() || tolerance.is_nan() {
        return Err(Status::InvalidValue);
    }
    // SAFETY: the caller's descriptor is null or valid.
    let base = unsafe { object(matrix)?.base };
    let rows = size(order.into())?;
    let column = |address: *const u8| Dense {
        rows,
        columns: 1,
        matrix: Matrix {
            address: address as u64,
            row_stride: 1,
            column_stride: order.into(),
            scalar_type: elements as u32,
            ..Matrix::default()
        },
    };
    let request = SparseRequest {
        a: compressed(SparseFormat::Rows, [order, order, entries], arrays, elements, base)?,
        x: column(right),
        y: column(unknowns),
        alpha: ONE,
        threshold: tolerance,
        ..SparseRequest::default()
    };
    // SAFETY: the caller's handle is null or valid, and `singularity` is not null. The number of the column
    // counts from 1 on, with 0 for none.
    unsafe {
        let found = count(handle, SparseStep::Eliminate, request)?;
        singularity.write(c_int::try_from(found).map_err(|_| Status::InvalidValue)? - 1);
    }
    Ok(())
}

/// Exports the functions of one element type, whose tolerance has its real type.
macro_rules! systems {
    ($elements:expr, $real:ty, $qr:ident $cholesky:ident) => {
        solver_functions! {
            /// Solves a square system.
            fn $qr(
                handle: *const Handle, order: c_int, entries: c_int, matrix: *const MatDescr, values: *const u8,
                offsets: *const u8, indices: *const u8, right: *const u8, tolerance: $real, _reorder: c_int,
                unknowns: *const u8, singularity: *mut c_int
            ) {
                let (arrays, sides) = ([offsets, indices, values], [right, unknowns]);
                solve(handle, [order, entries], $elements, matrix, arrays, sides, tolerance.into(), singularity)
            }

            /// Solves a system with a positive definite matrix, of which all entries are stored.
            fn $cholesky(
                handle: *const Handle, order: c_int, entries: c_int, matrix: *const MatDescr, values: *const u8,
                offsets: *const u8, indices: *const u8, right: *const u8, tolerance: $real, _reorder: c_int,
                unknowns: *const u8, singularity: *mut c_int
            ) {
                let (arrays, sides) = ([offsets, indices, values], [right, unknowns]);
                solve(handle, [order, entries], $elements, matrix, arrays, sides, tolerance.into(), singularity)
            }
        }
    };
}

systems! { ScalarType::F32, f32, cusolverSpScsrlsvqr cusolverSpScsrlsvchol }
systems! { ScalarType::F64, f64, cusolverSpDcsrlsvqr cusolverSpDcsrlsvchol }
systems! { ScalarType::C32, f32, cusolverSpCcsrlsvqr cusolverSpCcsrlsvchol }
systems! { ScalarType::C64, f64, cusolverSpZcsrlsvqr cusolverSpZcsrlsvchol }
