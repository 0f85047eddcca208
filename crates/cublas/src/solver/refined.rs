//! Systems whose factors GPUs compute in lower precision and then refine: `SSgesv` and its like. Here factors have the
//! full precision at once.

use core::ffi::c_int;

use causeway_gemm::ScalarType;

use super::status::solver_functions;
use causeway_api::sys::{CUDA_MEMCPY2D, CUmemorytype};

use crate::driver;
use crate::handle::Handle;
use crate::operation::Argument;
use crate::solve;
use crate::status::{Done, Status};

/// Bytes of the workspace, which holds the factors: the caller's matrix stays as it is.
fn workspace(order: c_int, kind: ScalarType) -> Result<usize, Status> {
    let order = usize::try_from(order).map_err(|_| Status::InvalidValue)?;
    // Some callers take no workspace for an error.
    order
        .checked_mul(order)
        .and_then(|elements| elements.checked_mul(kind.size() as usize))
        .map(|bytes| bytes.max(1))
        .ok_or(Status::InvalidValue)
}

/// Copies so many columns of `rows` elements to others.
pub(super) unsafe fn copy(
    handle: *const Handle,
    kind: ScalarType,
    [rows, columns]: [c_int; 2],
    [(from, from_leading), (to, to_leading)]: [(*const u8, c_int); 2],
) -> Done {
    let bytes = |elements: c_int| elements.unsigned_abs() as usize * kind.size() as usize;
    let copy = CUDA_MEMCPY2D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from as u64,
        srcPitch: bytes(from_leading),
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to as u64,
        dstPitch: bytes(to_leading),
        WidthInBytes: bytes(rows),
        Height: columns.unsigned_abs() as usize,
        ..CUDA_MEMCPY2D::default()
    };
    // SAFETY: the caller's handle is null or valid; no host memory is named.
    unsafe { driver::functions()?.copy(&copy, Handle::settings(handle)?.stream, false) }
}

/// Solves in full precision.
#[allow(clippy::too_many_arguments)]
unsafe fn solve(
    handle: *const Handle,
    kind: ScalarType,
    [order, columns]: [c_int; 2],
    a: (*const u8, c_int),
    pivots: *const u8,
    b: (*const u8, c_int),
    x: (*const u8, c_int),
    (work, len): (*const u8, usize),
    steps: *mut c_int,
    info: *const u8,
) -> Done {
    let leading = [a.1, b.1, x.1].into_iter().min().unwrap_or(0);
    if order < 0 || columns < 0 || leading < order.max(1) || steps.is_null() || len < workspace(order, kind)?
    {
        return Err(Status::InvalidValue);
    }
    // SAFETY: the caller's handle is null or valid, and `steps` is not null; the workspace has the size that
    // was checked.
    unsafe {
        if order > 0 && columns > 0 {
            let of = |(address, leading): (*const u8, c_int)| Argument::new(address, kind, leading.into());
            let factors = (work, order);
            copy(handle, kind, [order, order], [a, factors])?;
            copy(handle, kind, [order, columns], [b, x])?;
            let sizes = [order, columns].map(i64::from);
            solve::lu(handle, [sizes[0]; 2], of(factors), [pivots, info], 1)?;
            // The result is that of the factors.
            let results = [pivots, core::ptr::null()];
            solve::solve_lu(handle, (0, false), sizes, [of(factors), of(x)], results, 1)?;
        }
        steps.write(0);
    }
    Ok(())
}

/// Exports the functions of one element type, one for each lower precision.
macro_rules! refined {
    ($kind:expr; $($size:ident $solve:ident)*) => {
        solver_functions! {
            $(
                /// The workspace of a solution.
                fn $size(
                    _handle: *const Handle, n: c_int, _columns: c_int, _a: *const u8, _lda: c_int,
                    _pivots: *const u8, _b: *const u8, _ldb: c_int, _x: *const u8, _ldx: c_int, _work: *const u8,
                    to: *mut usize
                ) {
                    if to.is_null() {
                        return Err(Status::InvalidValue);
                    }
                    to.write(workspace(n, $kind)?);
                    Ok(())
                }

                /// Solves.
                fn $solve(
                    handle: *const Handle, n: c_int, columns: c_int, a: *const u8, lda: c_int, pivots: *const u8,
                    b: *const u8, ldb: c_int, x: *const u8, ldx: c_int, work: *const u8, len: usize,
                    steps: *mut c_int, info: *const u8
                ) {
                    let (sizes, work) = ([n, columns], (work, len));
                    solve(handle, $kind, sizes, (a, lda), pivots, (b, ldb), (x, ldx), work, steps, info)
                }
            )*
        }
    };
}

refined! {
    ScalarType::F32;
    cusolverDnSSgesv_bufferSize cusolverDnSSgesv cusolverDnSHgesv_bufferSize cusolverDnSHgesv
    cusolverDnSBgesv_bufferSize cusolverDnSBgesv cusolverDnSXgesv_bufferSize cusolverDnSXgesv
}

refined! {
    ScalarType::F64;
    cusolverDnDDgesv_bufferSize cusolverDnDDgesv cusolverDnDSgesv_bufferSize cusolverDnDSgesv
    cusolverDnDHgesv_bufferSize cusolverDnDHgesv cusolverDnDBgesv_bufferSize cusolverDnDBgesv
    cusolverDnDXgesv_bufferSize cusolverDnDXgesv
}

refined! {
    ScalarType::C32;
    cusolverDnCCgesv_bufferSize cusolverDnCCgesv cusolverDnCKgesv_bufferSize cusolverDnCKgesv
    cusolverDnCEgesv_bufferSize cusolverDnCEgesv cusolverDnCYgesv_bufferSize cusolverDnCYgesv
}

refined! {
    ScalarType::C64;
    cusolverDnZZgesv_bufferSize cusolverDnZZgesv cusolverDnZCgesv_bufferSize cusolverDnZCgesv
    cusolverDnZKgesv_bufferSize cusolverDnZKgesv cusolverDnZEgesv_bufferSize cusolverDnZEgesv
    cusolverDnZYgesv_bufferSize cusolverDnZYgesv
}
