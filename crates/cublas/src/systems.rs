//! Systems of equations and products with triangles: `trsm`, `trmm`, `trsv`, `trmv`, and `getrf`, `getri`, `getrs`
//! and `geqrf` for batches.

use causeway_gemm::{Matrix, ScalarType};

use crate::element_wise::copy;
use crate::exports::{functions, typed_functions};
use crate::handle::Handle;
use crate::operation::{Argument, column};
use crate::solve::{self, MULTIPLY, SOLVE, Triangular, stored};
use crate::status::{Done, Status};

use ScalarType::{C32, C64, F32, F64};

typed_functions! {
    "Solves a triangular system."
    (
        handle: *const Handle, side: u32, fill: u32, operation: u32, diagonal: u32, m: Int, n: Int,
        alpha: *const u8, a: *const u8, lda: Int, b: *const u8, ldb: Int,
    )
    |elements| {
        Triangular {
            modes: [side, fill, operation, diagonal],
            sizes: [m.into(), n.into()],
            alpha: Some(alpha),
            a: Argument::new(a, elements, lda.into()),
            b: stored(Argument::new(b, elements, ldb.into()), m.into(), n.into())?,
            batch: 1,
            steps: SOLVE,
        }
        .run(handle)
    }
    cublasStrsm_v2 cublasStrsm_v2_64 F32;
    cublasDtrsm_v2 cublasDtrsm_v2_64 F64;
    cublasCtrsm_v2 cublasCtrsm_v2_64 C32;
    cublasZtrsm_v2 cublasZtrsm_v2_64 C64;
}

typed_functions! {
    "Solves the triangular systems of a batch."
    (
        handle: *const Handle, side: u32, fill: u32, operation: u32, diagonal: u32, m: Int, n: Int,
        alpha: *const u8, a: *const u8, lda: Int, b: *const u8, ldb: Int, batch: Int,
    )
    |elements| {
        Triangular {
            modes: [side, fill, operation, diagonal],
            sizes: [m.into(), n.into()],
            alpha: Some(alpha),
            a: Argument::new(a, elements, lda.into()).array(),
            b: stored(Argument::new(b, elements, ldb.into()).array(), m.into(), n.into())?,
            batch: batch.into(),
            steps: SOLVE,
        }
        .run(handle)
    }
    cublasStrsmBatched cublasStrsmBatched_64 F32;
    cublasDtrsmBatched cublasDtrsmBatched_64 F64;
    cublasCtrsmBatched cublasCtrsmBatched_64 C32;
    cublasZtrsmBatched cublasZtrsmBatched_64 C64;
}

typed_functions! {
    "The product of a triangle and a matrix."
    (
        handle: *const Handle, side: u32, fill: u32, operation: u32, diagonal: u32, m: Int, n: Int,
        alpha: *const u8, a: *const u8, lda: Int, b: *const u8, ldb: Int, c: *mut u8, ldc: Int,
    )
    |elements| {
        let matrix = |address, leading: Int| {
            stored(Argument::new(address, elements, leading.into()), m.into(), n.into())
        };
        let (b, c) = (matrix(b, ldb)?, matrix(c.cast_const(), ldc)?);
        if b != c {
            copy(handle, [m.into(), n.into()], b, c)?;
        }
        Triangular {
            modes: [side, fill, operation, diagonal],
            sizes: [m.into(), n.into()],
            alpha: Some(alpha),
            a: Argument::new(a, elements, lda.into()),
            b: c,
            batch: 1,
            steps: MULTIPLY,
        }
        .run(handle)
    }
    cublasStrmm_v2 cublasStrmm_v2_64 F32;
    cublasDtrmm_v2 cublasDtrmm_v2_64 F64;
    cublasCtrmm_v2 cublasCtrmm_v2_64 C32;
    cublasZtrmm_v2 cublasZtrmm_v2_64 C64;
}

/// A triangle with a vector, in place of it.
unsafe fn with_vector(
    handle: *const Handle,
    [fill, operation, diagonal]: [u32; 3],
    order: i64,
    a: Argument,
    (address, increment): (*const u8, i64),
    steps: [causeway_gemm::Step; 2],
) -> Done {
    let b = if order > 0 { column(address, a.scalar_type, order, increment)? } else { Matrix::default() };
    let modes = [0, fill, operation, diagonal];
    let triangle = Triangular { modes, sizes: [order, 1], alpha: None, a, b, batch: 1, steps };
    // SAFETY: the caller's handle is null or valid, and there is no factor.
    unsafe { triangle.run(handle) }
}

typed_functions! {
    "Solves a triangular system of one right side."
    (
        handle: *const Handle, fill: u32, operation: u32, diagonal: u32, n: Int, a: *const u8, lda: Int,
        x: *mut u8, incx: Int,
    )
    |elements| {
        let (a, x) = (Argument::new(a, elements, lda.into()), (x.cast_const(), incx.into()));
        with_vector(handle, [fill, operation, diagonal], n.into(), a, x, SOLVE)
    }
    cublasStrsv_v2 cublasStrsv_v2_64 F32;
    cublasDtrsv_v2 cublasDtrsv_v2_64 F64;
    cublasCtrsv_v2 cublasCtrsv_v2_64 C32;
    cublasZtrsv_v2 cublasZtrsv_v2_64 C64;
}

typed_functions! {
    "The product of a triangle and a vector."
    (
        handle: *const Handle, fill: u32, operation: u32, diagonal: u32, n: Int, a: *const u8, lda: Int,
        x: *mut u8, incx: Int,
    )
    |elements| {
        let (a, x) = (Argument::new(a, elements, lda.into()), (x.cast_const(), incx.into()));
        with_vector(handle, [fill, operation, diagonal], n.into(), a, x, MULTIPLY)
    }
    cublasStrmv_v2 cublasStrmv_v2_64 F32;
    cublasDtrmv_v2 cublasDtrmv_v2_64 F64;
    cublasCtrmv_v2 cublasCtrmv_v2_64 C32;
    cublasZtrmv_v2 cublasZtrmv_v2_64 C64;
}

/// Exports the factors of LU and QR of one element type.
macro_rules! batches {
    ($kind:expr, $getrf:ident $getri:ident $getrs:ident $geqrf:ident) => {
        functions! {
            /// The factors of LU.
            fn $getrf(
                handle: *const Handle, n: i32, a: *const u8, lda: i32, pivots: *const u8, info: *const u8,
                batch: i32
            ) {
                let a = Argument::new(a, $kind, lda.into()).array();
                solve::lu(handle, [n.into(); 2], a, [pivots, info], batch.into())
            }

            /// The inverses, of the factors of LU.
            fn $getri(
                handle: *const Handle, n: i32, a: *const u8, lda: i32, pivots: *const u8, c: *const u8,
                ldc: i32, info: *const u8, batch: i32
            ) {
                let matrices =
                    [(a, lda), (c, ldc)].map(|(a, leading)| Argument::new(a, $kind, leading.into()).array());
                solve::solve_lu(handle, (0, true), [n.into(); 2], matrices, [pivots, info], batch.into())
            }

            /// Solves with the factors of LU; `info` is in host memory.
            fn $getrs(
                handle: *const Handle, operation: u32, n: i32, columns: i32, a: *const u8, lda: i32,
                pivots: *const u8, b: *const u8, ldb: i32, info: *mut i32, batch: i32
            ) {
                let matrices =
                    [(a, lda), (b, ldb)].map(|(a, leading)| Argument::new(a, $kind, leading.into()).array());
                let (sizes, none) = ([n.into(), columns.into()], core::ptr::null());
                solve::solve_lu(handle, (operation, false), sizes, matrices, [pivots, none], batch.into())?;
                write_success(info)
            }

            /// The factors of QR; `info` is in host memory.
            fn $geqrf(
                handle: *const Handle, m: i32, n: i32, a: *const u8, lda: i32, factors: *const u8,
                info: *mut i32, batch: i32
            ) {
                let (a, none) = (Argument::new(a, $kind, lda.into()).array(), core::ptr::null());
                let factors = solve::vectors(factors, $kind);
                solve::qr(handle, [m.into(), n.into()], a, factors, none, batch.into())?;
                write_success(info)
            }
        }
    };
}

batches! { F32, cublasSgetrfBatched cublasSgetriBatched cublasSgetrsBatched cublasSgeqrfBatched }
batches! { F64, cublasDgetrfBatched cublasDgetriBatched cublasDgetrsBatched cublasDgeqrfBatched }
batches! { C32, cublasCgetrfBatched cublasCgetriBatched cublasCgetrsBatched cublasCgeqrfBatched }
batches! { C64, cublasZgetrfBatched cublasZgetriBatched cublasZgetrsBatched cublasZgeqrfBatched }

/// That all arguments were valid.
unsafe fn write_success(info: *mut i32) -> Done {
    if !info.is_null() {
        // SAFETY: `info` is not null, so the program has room for a number there.
        unsafe { info.write(0) };
    }
    Ok(())
}
