//! Factors and what is solved with them: `potrf`, `potrs`, `getrf`, `getrs`, `geqrf`, `orgqr`, `ormqr`.

use causeway_gemm::ScalarType;

use super::status::solver_functions;
use crate::handle::Handle;
use crate::operation::Argument;
use crate::solve;
use crate::status::write_value;

/// Elements of the workspace that callers allocate: some take none for an error.
const WORKSPACE: i32 = 1;

/// Exports the functions of one element type.
macro_rules! dense {
    (
        $kind:expr, $potrf_size:ident $potrf:ident $potrf_batched:ident $potrs:ident $potrs_batched:ident
        $getrf_size:ident $getrf:ident $getrs:ident $geqrf_size:ident $geqrf:ident
        $orgqr_size:ident $orgqr:ident $ormqr_size:ident $ormqr:ident
    ) => {
        solver_functions! {
            /// The workspace of the factor of Cholesky.
            fn $potrf_size(_handle: *const Handle, _fill: u32, _n: i32, _a: *const u8, _lda: i32, to: *mut i32) {
                write_value(to, WORKSPACE)
            }

            /// The factor of Cholesky.
            fn $potrf(
                handle: *const Handle, fill: u32, n: i32, a: *const u8, lda: i32,
                _work: *const u8, _len: i32, info: *const u8
            ) {
                solve::cholesky(handle, fill, n.into(), Argument::new(a, $kind, lda.into()), info, 1)
            }

            /// The factor of each matrix of a batch.
            fn $potrf_batched(
                handle: *const Handle, fill: u32, n: i32, a: *const u8, lda: i32, info: *const u8, batch: i32
            ) {
                let a = Argument::new(a, $kind, lda.into()).array();
                solve::cholesky(handle, fill, n.into(), a, info, batch.into())
            }

            /// Solves with the factor of Cholesky.
            fn $potrs(
                handle: *const Handle, fill: u32, n: i32, columns: i32, a: *const u8, lda: i32,
                b: *const u8, ldb: i32, info: *const u8
            ) {
                let matrices = [(a, lda), (b, ldb)].map(|(a, leading)| Argument::new(a, $kind, leading.into()));
                solve::solve_cholesky(handle, fill, [n.into(), columns.into()], matrices, 1)?;
                solve::set_info(handle, info)
            }

            /// Solves with the factor of each matrix of a batch.
            fn $potrs_batched(
                handle: *const Handle, fill: u32, n: i32, columns: i32, a: *const u8, lda: i32,
                b: *const u8, ldb: i32, info: *const u8, batch: i32
            ) {
                let matrices =
                    [(a, lda), (b, ldb)].map(|(a, leading)| Argument::new(a, $kind, leading.into()).array());
                let sizes = [n.into(), columns.into()];
                solve::solve_cholesky(handle, fill, sizes, matrices, batch.into())?;
                solve::set_info(handle, info)
            }

            /// The workspace of the factors of LU.
            fn $getrf_size(_handle: *const Handle, _m: i32, _n: i32, _a: *const u8, _lda: i32, to: *mut i32) {
                write_value(to, WORKSPACE)
            }

            /// The factors of LU.
            fn $getrf(
                handle: *const Handle, m: i32, n: i32, a: *const u8, lda: i32, _work: *const u8,
                pivots: *const u8, info: *const u8
            ) {
                let a = Argument::new(a, $kind, lda.into());
                solve::lu(handle, [m.into(), n.into()], a, [pivots, info], 1)
            }

            /// Solves with the factors of LU.
            fn $getrs(
                handle: *const Handle, operation: u32, n: i32, columns: i32, a: *const u8, lda: i32,
                pivots: *const u8, b: *const u8, ldb: i32, info: *const u8
            ) {
                let matrices = [(a, lda), (b, ldb)].map(|(a, leading)| Argument::new(a, $kind, leading.into()));
                let sizes = [n.into(), columns.into()];
                solve::solve_lu(handle, (operation, false), sizes, matrices, [pivots, info], 1)
            }

            /// The workspace of the factors of QR.
            fn $geqrf_size(_handle: *const Handle, _m: i32, _n: i32, _a: *const u8, _lda: i32, to: *mut i32) {
                write_value(to, WORKSPACE)
            }

            /// The factors of QR.
            fn $geqrf(
                handle: *const Handle, m: i32, n: i32, a: *const u8, lda: i32, factors: *const u8,
                _work: *const u8, _len: i32, info: *const u8
            ) {
                let a = Argument::new(a, $kind, lda.into());
                solve::qr(handle, [m.into(), n.into()], a, solve::vector(factors, $kind, 0), info, 1)
            }

            /// The workspace of Q.
            fn $orgqr_size(
                _handle: *const Handle, _m: i32, _n: i32, _k: i32, _a: *const u8, _lda: i32,
                _factors: *const u8, to: *mut i32
            ) {
                write_value(to, WORKSPACE)
            }

            /// Q in place of its reflections.
            fn $orgqr(
                handle: *const Handle, m: i32, n: i32, k: i32, a: *const u8, lda: i32, factors: *const u8,
                _work: *const u8, _len: i32, info: *const u8
            ) {
                let a = Argument::new(a, $kind, lda.into());
                solve::form_q(handle, [m.into(), n.into(), k.into()], a, [factors, info])
            }

            /// The workspace of products with Q.
            fn $ormqr_size(
                _handle: *const Handle, _side: u32, _operation: u32, _m: i32, _n: i32, _k: i32,
                _a: *const u8, _lda: i32, _factors: *const u8, _c: *const u8, _ldc: i32, to: *mut i32
            ) {
                write_value(to, WORKSPACE)
            }

            /// A product with Q.
            fn $ormqr(
                handle: *const Handle, side: u32, operation: u32, m: i32, n: i32, k: i32, a: *const u8,
                lda: i32, factors: *const u8, c: *const u8, ldc: i32, _work: *const u8, _len: i32,
                info: *const u8
            ) {
                let matrices = [(a, lda), (c, ldc)].map(|(a, leading)| Argument::new(a, $kind, leading.into()));
                let sizes = [m.into(), n.into(), k.into()];
                solve::multiply_q(handle, [side, operation], sizes, matrices, [factors, info])
            }
        }
    };
}

dense! {
    ScalarType::F32, cusolverDnSpotrf_bufferSize cusolverDnSpotrf cusolverDnSpotrfBatched cusolverDnSpotrs
    cusolverDnSpotrsBatched cusolverDnSgetrf_bufferSize cusolverDnSgetrf cusolverDnSgetrs
    cusolverDnSgeqrf_bufferSize cusolverDnSgeqrf cusolverDnSorgqr_bufferSize cusolverDnSorgqr
    cusolverDnSormqr_bufferSize cusolverDnSormqr
}

dense! {
    ScalarType::F64, cusolverDnDpotrf_bufferSize cusolverDnDpotrf cusolverDnDpotrfBatched cusolverDnDpotrs
    cusolverDnDpotrsBatched cusolverDnDgetrf_bufferSize cusolverDnDgetrf cusolverDnDgetrs
    cusolverDnDgeqrf_bufferSize cusolverDnDgeqrf cusolverDnDorgqr_bufferSize cusolverDnDorgqr
    cusolverDnDormqr_bufferSize cusolverDnDormqr
}

dense! {
    ScalarType::C32, cusolverDnCpotrf_bufferSize cusolverDnCpotrf cusolverDnCpotrfBatched cusolverDnCpotrs
    cusolverDnCpotrsBatched cusolverDnCgetrf_bufferSize cusolverDnCgetrf cusolverDnCgetrs
    cusolverDnCgeqrf_bufferSize cusolverDnCgeqrf cusolverDnCungqr_bufferSize cusolverDnCungqr
    cusolverDnCunmqr_bufferSize cusolverDnCunmqr
}

dense! {
    ScalarType::C64, cusolverDnZpotrf_bufferSize cusolverDnZpotrf cusolverDnZpotrfBatched cusolverDnZpotrs
    cusolverDnZpotrsBatched cusolverDnZgetrf_bufferSize cusolverDnZgetrf cusolverDnZgetrs
    cusolverDnZgeqrf_bufferSize cusolverDnZgeqrf cusolverDnZungqr_bufferSize cusolverDnZungqr
    cusolverDnZunmqr_bufferSize cusolverDnZunmqr
}
