//! Systems of equations: `trsm`, and `getrf`, `getri` and `getrs` for batches.

use causeway_gemm::ScalarType;

use crate::exports::functions;
use crate::handle::Handle;
use crate::operation::Argument;
use crate::solve::{self, Triangular};
use crate::status::{Done, Status};

/// Exports triangular systems of one element type, with sizes of one type.
macro_rules! triangular {
    ($kind:expr, $int:ty: $plain:ident $batched:ident) => {
        functions! {
            /// Solves a triangular system.
            fn $plain(
                handle: *const Handle, side: u32, fill: u32, operation: u32, diagonal: u32, m: $int, n: $int,
                alpha: *const u8, a: *const u8, lda: $int, b: *const u8, ldb: $int
            ) {
                Triangular {
                    modes: [side, fill, operation, diagonal],
                    sizes: [m.into(), n.into()],
                    alpha,
                    a: Argument::new(a, $kind, lda.into()),
                    b: Argument::new(b, $kind, ldb.into()),
                    batch: 1,
                }
                .run(handle)
            }

            /// Solves the triangular systems of a batch.
            fn $batched(
                handle: *const Handle, side: u32, fill: u32, operation: u32, diagonal: u32, m: $int, n: $int,
                alpha: *const u8, a: *const u8, lda: $int, b: *const u8, ldb: $int, batch: $int
            ) {
                Triangular {
                    modes: [side, fill, operation, diagonal],
                    sizes: [m.into(), n.into()],
                    alpha,
                    a: Argument::new(a, $kind, lda.into()).array(),
                    b: Argument::new(b, $kind, ldb.into()).array(),
                    batch: batch.into(),
                }
                .run(handle)
            }
        }
    };
}

triangular! { ScalarType::F32, i32: cublasStrsm_v2 cublasStrsmBatched }
triangular! { ScalarType::F32, i64: cublasStrsm_v2_64 cublasStrsmBatched_64 }
triangular! { ScalarType::F64, i32: cublasDtrsm_v2 cublasDtrsmBatched }
triangular! { ScalarType::F64, i64: cublasDtrsm_v2_64 cublasDtrsmBatched_64 }
triangular! { ScalarType::C32, i32: cublasCtrsm_v2 cublasCtrsmBatched }
triangular! { ScalarType::C32, i64: cublasCtrsm_v2_64 cublasCtrsmBatched_64 }
triangular! { ScalarType::C64, i32: cublasZtrsm_v2 cublasZtrsmBatched }
triangular! { ScalarType::C64, i64: cublasZtrsm_v2_64 cublasZtrsmBatched_64 }

/// Exports the factors of LU of one element type.
macro_rules! batches {
    ($kind:expr, $getrf:ident $getri:ident $getrs:ident) => {
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
                if !info.is_null() {
                    info.write(0);
                }
                Ok(())
            }
        }
    };
}

batches! { ScalarType::F32, cublasSgetrfBatched cublasSgetriBatched cublasSgetrsBatched }
batches! { ScalarType::F64, cublasDgetrfBatched cublasDgetriBatched cublasDgetrsBatched }
batches! { ScalarType::C32, cublasCgetrfBatched cublasCgetriBatched cublasCgetrsBatched }
batches! { ScalarType::C64, cublasZgetrfBatched cublasZgetriBatched cublasZgetrsBatched }
