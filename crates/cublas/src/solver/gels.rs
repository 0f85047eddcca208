//! Least squares whose factors GPUs compute in lower precision and then refine: `SSgels` and its like. Here factors have
//! the full precision at once.

use core::ffi::c_int;

use causeway_gemm::ScalarType;

use super::refined::copy;
use super::status::solver_functions;
use crate::handle::Handle;
use crate::operation::Argument;
use crate::solve::{self, SOLVE, Triangular, stored};
use crate::status::{Done, Status};

/// Bytes of the workspace, which holds the factors of QR, the numbers of their reflections and the right sides: the
/// caller's matrices stay as they are.
fn workspace([rows, unknowns, columns]: [c_int; 3], kind: ScalarType) -> Result<usize, Status> {
    let size = |count: c_int| usize::try_from(count).map_err(|_| Status::InvalidValue);
    let (rows, unknowns, columns) = (size(rows)?, size(unknowns)?, size(columns)?);
    let elements = (rows.checked_add(1)).and_then(|rows| rows.checked_mul(unknowns));
    // Some callers take no workspace for an error.
    elements
        .and_then(|elements| elements.checked_add(rows.checked_mul(columns)?))
        .and_then(|elements| elements.checked_mul(kind.size() as usize))
        .map(|bytes| bytes.max(1))
        .ok_or(Status::InvalidValue)
}

/// Solves in full precision.
#[allow(clippy::too_many_arguments)]
unsafe fn solve(
    handle: *const Handle,
    kind: ScalarType,
    [rows, unknowns, columns]: [c_int; 3],
    a: (*const u8, c_int),
    b: (*const u8, c_int),
    x: (*const u8, c_int),
    (work, len): (*const u8, usize),
    steps: *mut c_int,
    info: *const u8,
) -> Done {
    let bytes = workspace([rows, unknowns, columns], kind)?;
    let is_narrow = a.1 < rows.max(1) || b.1 < rows.max(1) || x.1 < unknowns.max(1);
    // With more unknowns than rows there is no single solution.
    if rows < unknowns || is_narrow || steps.is_null() || len < bytes {
        return Err(Status::InvalidValue);
    }
    // SAFETY: the caller's handle is null or valid, and `steps` is not null; the workspace has the size that
    // was checked.
    unsafe {
        if unknowns > 0 && columns > 0 {
            let behind =
                |address: *const u8, elements: usize| address.wrapping_add(elements * kind.size() as usize);
            let reflections = behind(work, rows.unsigned_abs() as usize * unknowns.unsigned_abs() as usize);
            let factors = (work, rows);
            let right = (behind(reflections, unknowns.unsigned_abs() as usize), rows);
            let of = |(address, leading): (*const u8, c_int)| Argument::new(address, kind, leading.into());
            copy(handle, kind, [rows, unknowns], [a, factors])?;
            copy(handle, kind, [rows, columns], [b, right])?;
            let [m, n, k] = [rows, unknowns, columns].map(i64::from);
            solve::qr(handle, [m, n], of(factors), solve::vector(reflections, kind, 0), info, 1)?;
            // R X is the upper part of the conjugate transpose of Q, times B.
            let results = [reflections, core::ptr::null()];
            solve::multiply_q(handle, [0, 2], [m, k, n], [of(factors), of(right)], results)?;
            Triangular {
                modes: [0, 1, 0, 0],
                sizes: [n, k],
                alpha: None,
                a: of(factors),
                b: stored(of(right), n, k)?,
                batch: 1,
                steps: SOLVE,
            }
            .run(handle)?;
            copy(handle, kind, [unknowns, columns], [right, x])?;
        }
        steps.write(0);
    }
    Ok(())
}

/// Exports the functions of one element type, one for each lower precision.
macro_rules! gels {
    ($kind:expr; $($size:ident $solve:ident)*) => {
        solver_functions! {
            $(
                /// The workspace of a solution.
                fn $size(
                    _handle: *const Handle, m: c_int, n: c_int, columns: c_int, _a: *const u8, _lda: c_int,
                    _b: *const u8, _ldb: c_int, _x: *const u8, _ldx: c_int, _work: *const u8, to: *mut usize
                ) {
                    if to.is_null() {
                        return Err(Status::InvalidValue);
                    }
                    to.write(workspace([m, n, columns], $kind)?);
                    Ok(())
                }

                /// Solves.
                fn $solve(
                    handle: *const Handle, m: c_int, n: c_int, columns: c_int, a: *const u8, lda: c_int,
                    b: *const u8, ldb: c_int, x: *const u8, ldx: c_int, work: *const u8, len: usize,
                    steps: *mut c_int, info: *const u8
                ) {
                    let sizes = [m, n, columns];
                    solve(handle, $kind, sizes, (a, lda), (b, ldb), (x, ldx), (work, len), steps, info)
                }
            )*
        }
    };
}

gels! {
    ScalarType::F32;
    cusolverDnSSgels_bufferSize cusolverDnSSgels cusolverDnSHgels_bufferSize cusolverDnSHgels
    cusolverDnSBgels_bufferSize cusolverDnSBgels cusolverDnSXgels_bufferSize cusolverDnSXgels
}

gels! {
    ScalarType::F64;
    cusolverDnDDgels_bufferSize cusolverDnDDgels cusolverDnDSgels_bufferSize cusolverDnDSgels
    cusolverDnDHgels_bufferSize cusolverDnDHgels cusolverDnDBgels_bufferSize cusolverDnDBgels
    cusolverDnDXgels_bufferSize cusolverDnDXgels
}

gels! {
    ScalarType::C32;
    cusolverDnCCgels_bufferSize cusolverDnCCgels cusolverDnCKgels_bufferSize cusolverDnCKgels
    cusolverDnCEgels_bufferSize cusolverDnCEgels cusolverDnCYgels_bufferSize cusolverDnCYgels
}

gels! {
    ScalarType::C64;
    cusolverDnZZgels_bufferSize cusolverDnZZgels cusolverDnZCgels_bufferSize cusolverDnZCgels
    cusolverDnZKgels_bufferSize cusolverDnZKgels cusolverDnZEgels_bufferSize cusolverDnZEgels
    cusolverDnZYgels_bufferSize cusolverDnZYgels
}
