//! Eigenvalues and singular values: `syevd`, `syevj`, `gesvd`, `gesvdj`, `gesvda`, and the forms with types as arguments.

use core::ffi::{c_char, c_void};

use causeway_gemm::{Matrix, ScalarType};

use super::status::solver_functions;
use crate::handle::Handle;
use crate::operation::Argument;
use crate::solve::{self, Vectors};
use crate::status::{Status, write_value};
use crate::types::scalar_type;

/// The element type of this number of `cudaDataType`, of those that are decomposed.
fn element(number: u32) -> Result<ScalarType, Status> {
    let is_wide = |kind: &ScalarType| {
        matches!(kind, ScalarType::F32 | ScalarType::F64 | ScalarType::C32 | ScalarType::C64)
    };
    scalar_type(number).filter(is_wide).ok_or(Status::NotSupported)
}

/// Vectors as letters ask for them: of each side all, as many as there are values, or these in place of the
/// matrix; or none of both sides.
fn lettered(
    letters: [c_char; 2],
    a: Argument,
    left: Argument,
    right: Argument,
) -> Result<Option<Vectors>, Status> {
    let letters = letters.map(|letter| letter as u8);
    match letters {
        [b'N', b'N'] => return Ok(None),
        [b'N', b'A' | b'S' | b'O'] | [b'A' | b'S' | b'O', b'N'] => return Err(Status::NotSupported),
        [b'A' | b'S', b'A' | b'S' | b'O'] | [b'O', b'A' | b'S'] => {}
        _ => return Err(Status::InvalidValue),
    }
    let [left, right] =
        [(letters[0], left), (letters[1], right)].map(|(letter, own)| if letter == b'O' { a } else { own });
    let is_full = letters.map(|letter| letter == b'A');
    Ok(Some(Vectors { left, right, is_right_adjoint: false, is_full }))
}

/// Vectors as `cusolverEigMode_t` and `econ` ask for them.
fn moded(job: u32, is_few: bool, left: Argument, right: Argument) -> Result<Option<Vectors>, Status> {
    match job {
        0 => Ok(None),
        1 => Ok(Some(Vectors { left, right, is_right_adjoint: true, is_full: [!is_few; 2] })),
        _ => Err(Status::InvalidValue),
    }
}

/// Exports the functions of one element type.
macro_rules! decompositions {
    (
        $kind:expr, $syevd_size:ident $syevd:ident $syevj_size:ident $syevj:ident $syevj_batched_size:ident
        $syevj_batched:ident $gesvd_size:ident $gesvd:ident $gesvdj_size:ident $gesvdj:ident
        $gesvdj_batched_size:ident $gesvdj_batched:ident $gesvda_size:ident $gesvda:ident
    ) => {
        solver_functions! {
            /// The workspace of eigenvalues.
            fn $syevd_size(
                _handle: *const Handle, _job: u32, _fill: u32, _n: i32, _a: *const u8, _lda: i32,
                _values: *const u8, to: *mut i32
            ) {
                write_value(to, 1)
            }

            /// Eigenvalues and vectors.
            fn $syevd(
                handle: *const Handle, job: u32, fill: u32, n: i32, a: *const u8, lda: i32, values: *const u8,
                _work: *const u8, _len: i32, info: *const u8
            ) {
                let a = Argument::new(a, $kind, lda.into());
                solve::eigen(handle, [job, fill], n.into(), a, [values, info], 1)
            }

            /// The workspace of eigenvalues by rotations.
            fn $syevj_size(
                _handle: *const Handle, _job: u32, _fill: u32, _n: i32, _a: *const u8, _lda: i32,
                _values: *const u8, to: *mut i32, _parameters: *const c_void
            ) {
                write_value(to, 1)
            }

            /// Eigenvalues and vectors by rotations.
            fn $syevj(
                handle: *const Handle, job: u32, fill: u32, n: i32, a: *const u8, lda: i32, values: *const u8,
                _work: *const u8, _len: i32, info: *const u8, _parameters: *const c_void
            ) {
                let a = Argument::new(a, $kind, lda.into());
                solve::eigen(handle, [job, fill], n.into(), a, [values, info], 1)
            }

            /// The workspace of eigenvalues of a batch.
            fn $syevj_batched_size(
                _handle: *const Handle, _job: u32, _fill: u32, _n: i32, _a: *const u8, _lda: i32,
                _values: *const u8, to: *mut i32, _parameters: *const c_void, _batch: i32
            ) {
                write_value(to, 1)
            }

            /// Eigenvalues and vectors of a batch.
            fn $syevj_batched(
                handle: *const Handle, job: u32, fill: u32, n: i32, a: *const u8, lda: i32, values: *const u8,
                _work: *const u8, _len: i32, info: *const u8, _parameters: *const c_void, batch: i32
            ) {
                let a = Argument::new(a, $kind, lda.into()).strided(i64::from(lda) * i64::from(n));
                solve::eigen(handle, [job, fill], n.into(), a, [values, info], batch.into())
            }

            /// The workspace of singular values.
            fn $gesvd_size(_handle: *const Handle, _m: i32, _n: i32, to: *mut i32) { write_value(to, 1) }

            /// Singular values and vectors.
            fn $gesvd(
                handle: *const Handle, left: c_char, right: c_char, m: i32, n: i32, a: *const u8, lda: i32,
                values: *const u8, u: *const u8, ldu: i32, v: *const u8, ldv: i32, _work: *const u8,
                _len: i32, _real_work: *const u8, info: *const u8
            ) {
                let [a, u, v] =
                    [(a, lda), (u, ldu), (v, ldv)].map(|(a, leading)| Argument::new(a, $kind, leading.into()));
                let vectors = lettered([left, right], a, u, v)?;
                solve::singular(handle, [m.into(), n.into()], a, vectors, [values, info], 1)
            }

            /// The workspace of singular values by rotations.
            fn $gesvdj_size(
                _handle: *const Handle, _job: u32, _econ: i32, _m: i32, _n: i32, _a: *const u8, _lda: i32,
                _values: *const u8, _u: *const u8, _ldu: i32, _v: *const u8, _ldv: i32, to: *mut i32,
                _parameters: *const c_void
            ) {
                write_value(to, 1)
            }

            /// Singular values and vectors by rotations.
            fn $gesvdj(
                handle: *const Handle, job: u32, econ: i32, m: i32, n: i32, a: *const u8, lda: i32,
                values: *const u8, u: *const u8, ldu: i32, v: *const u8, ldv: i32, _work: *const u8,
                _len: i32, info: *const u8, _parameters: *const c_void
            ) {
                let [a, u, v] =
                    [(a, lda), (u, ldu), (v, ldv)].map(|(a, leading)| Argument::new(a, $kind, leading.into()));
                let vectors = moded(job, econ != 0, u, v)?;
                solve::singular(handle, [m.into(), n.into()], a, vectors, [values, info], 1)
            }

            /// The workspace of singular values of a batch.
            fn $gesvdj_batched_size(
                _handle: *const Handle, _job: u32, _m: i32, _n: i32, _a: *const u8, _lda: i32,
                _values: *const u8, _u: *const u8, _ldu: i32, _v: *const u8, _ldv: i32, to: *mut i32,
                _parameters: *const c_void, _batch: i32
            ) {
                write_value(to, 1)
            }

            /// Singular values and vectors of a batch.
            fn $gesvdj_batched(
                handle: *const Handle, job: u32, m: i32, n: i32, a: *const u8, lda: i32, values: *const u8,
                u: *const u8, ldu: i32, v: *const u8, ldv: i32, _work: *const u8, _len: i32, info: *const u8,
                _parameters: *const c_void, batch: i32
            ) {
                let [a, u, v] = [(a, lda, n), (u, ldu, m), (v, ldv, n)].map(|(a, leading, columns)| {
                    let stride = i64::from(leading) * i64::from(columns);
                    Argument::new(a, $kind, leading.into()).strided(stride)
                });
                let vectors = moded(job, false, u, v)?;
                solve::singular(handle, [m.into(), n.into()], a, vectors, [values, info], batch.into())
            }

            /// The workspace of singular values of a batch of tall matrices.
            fn $gesvda_size(
                _handle: *const Handle, _job: u32, _rank: i32, _m: i32, _n: i32, _a: *const u8, _lda: i32,
                _a_stride: i64, _values: *const u8, _value_stride: i64, _u: *const u8, _ldu: i32, _u_stride: i64,
                _v: *const u8, _ldv: i32, _v_stride: i64, to: *mut i32, _batch: i32
            ) {
                write_value(to, 1)
            }

            /// Singular values and vectors of a batch of tall matrices, all of them: a smaller rank is refused.
            /// Norms of the residuals are those of exact factors.
            fn $gesvda(
                handle: *const Handle, job: u32, rank: i32, m: i32, n: i32, a: *const u8, lda: i32,
                a_stride: i64, values: *const u8, value_stride: i64, u: *const u8, ldu: i32, u_stride: i64,
                v: *const u8, ldv: i32, v_stride: i64, _work: *const u8, _len: i32, info: *const u8,
                norms: *mut f64, batch: i32
            ) {
                if m < n || rank < 0 || rank > n || value_stride < rank.into() {
                    return Err(Status::InvalidValue);
                }
                if rank < n {
                    return Err(Status::NotSupported);
                }
                let sides = [(a, lda, a_stride), (u, ldu, u_stride), (v, ldv, v_stride)];
                let [a, u, v] = sides
                    .map(|(a, leading, stride)| Argument::new(a, $kind, leading.into()).strided(stride));
                let values = Matrix {
                    batch_stride: value_stride,
                    ..solve::vector(values, solve::real($kind), n.unsigned_abs().into())
                };
                let (vectors, sizes) = (moded(job, true, u, v)?, [m.into(), n.into()]);
                solve::singular_strided(handle, sizes, a, vectors, values, info, batch.into())?;
                if !norms.is_null() {
                    (0..usize::try_from(batch).unwrap_or(0)).for_each(|index| norms.add(index).write(0.0));
                }
                Ok(())
            }
        }
    };
}

decompositions! {
    ScalarType::F32, cusolverDnSsyevd_bufferSize cusolverDnSsyevd cusolverDnSsyevj_bufferSize
    cusolverDnSsyevj cusolverDnSsyevjBatched_bufferSize cusolverDnSsyevjBatched
    cusolverDnSgesvd_bufferSize cusolverDnSgesvd cusolverDnSgesvdj_bufferSize cusolverDnSgesvdj
    cusolverDnSgesvdjBatched_bufferSize cusolverDnSgesvdjBatched
    cusolverDnSgesvdaStridedBatched_bufferSize cusolverDnSgesvdaStridedBatched
}

decompositions! {
    ScalarType::F64, cusolverDnDsyevd_bufferSize cusolverDnDsyevd cusolverDnDsyevj_bufferSize
    cusolverDnDsyevj cusolverDnDsyevjBatched_bufferSize cusolverDnDsyevjBatched
    cusolverDnDgesvd_bufferSize cusolverDnDgesvd cusolverDnDgesvdj_bufferSize cusolverDnDgesvdj
    cusolverDnDgesvdjBatched_bufferSize cusolverDnDgesvdjBatched
    cusolverDnDgesvdaStridedBatched_bufferSize cusolverDnDgesvdaStridedBatched
}

decompositions! {
    ScalarType::C32, cusolverDnCheevd_bufferSize cusolverDnCheevd cusolverDnCheevj_bufferSize
    cusolverDnCheevj cusolverDnCheevjBatched_bufferSize cusolverDnCheevjBatched
    cusolverDnCgesvd_bufferSize cusolverDnCgesvd cusolverDnCgesvdj_bufferSize cusolverDnCgesvdj
    cusolverDnCgesvdjBatched_bufferSize cusolverDnCgesvdjBatched
    cusolverDnCgesvdaStridedBatched_bufferSize cusolverDnCgesvdaStridedBatched
}

decompositions! {
    ScalarType::C64, cusolverDnZheevd_bufferSize cusolverDnZheevd cusolverDnZheevj_bufferSize
    cusolverDnZheevj cusolverDnZheevjBatched_bufferSize cusolverDnZheevjBatched
    cusolverDnZgesvd_bufferSize cusolverDnZgesvd cusolverDnZgesvdj_bufferSize cusolverDnZgesvdj
    cusolverDnZgesvdjBatched_bufferSize cusolverDnZgesvdjBatched
    cusolverDnZgesvdaStridedBatched_bufferSize cusolverDnZgesvdaStridedBatched
}

solver_functions! {
    /// The workspace of eigenvalues.
    fn cusolverDnXsyevd_bufferSize(
        _handle: *const Handle, _parameters: *const c_void, _job: u32, _fill: u32, _n: i64, _type: u32,
        _a: *const u8, _lda: i64, _value_type: u32, _values: *const u8, _compute: u32, device: *mut usize,
        host: *mut usize
    ) {
        write_value(device, 1)?;
        write_value(host, 1)
    }

    /// Eigenvalues and vectors.
    fn cusolverDnXsyevd(
        handle: *const Handle, _parameters: *const c_void, job: u32, fill: u32, n: i64, kind: u32,
        a: *const u8, lda: i64, _value_type: u32, values: *const u8, _compute: u32, _device: *const u8,
        _device_len: usize, _host: *const u8, _host_len: usize, info: *const u8
    ) {
        let a = Argument::new(a, element(kind)?, lda);
        solve::eigen(handle, [job, fill], n, a, [values, info], 1)
    }

    /// The workspace of eigenvalues of a general matrix.
    fn cusolverDnXgeev_bufferSize(
        _handle: *const Handle, _parameters: *const c_void, _left_job: u32, _right_job: u32, _n: i64, _type: u32,
        _a: *const u8, _lda: i64, _value_type: u32, _values: *const u8, _left_type: u32, _left: *const u8,
        _left_leading: i64, _right_type: u32, _right: *const u8, _right_leading: i64, _compute: u32,
        device: *mut usize, host: *mut usize
    ) {
        write_value(device, 1)?;
        write_value(host, 1)
    }

    /// Eigenvalues and vectors of a general matrix; those that it multiplies from the right are not computed.
    fn cusolverDnXgeev(
        handle: *const Handle, _parameters: *const c_void, left_job: u32, right_job: u32, n: i64, kind: u32,
        a: *const u8, lda: i64, value_type: u32, values: *const u8, _left_type: u32, _left: *const u8,
        _left_leading: i64, right_type: u32, right: *const u8, right_leading: i64, _compute: u32,
        _device: *const u8, _device_len: usize, _host: *const u8, _host_len: usize, info: *const u8
    ) {
        let vectors = match (left_job, right_job) {
            (0, 0) => None,
            (0, 1) => Some(Argument::new(right, element(right_type)?, right_leading)),
            (1, 0 | 1) => return Err(Status::NotSupported),
            _ => return Err(Status::InvalidValue),
        };
        let (a, value_type) = (Argument::new(a, element(kind)?, lda), element(value_type)?);
        solve::eigen_general(handle, n, a, vectors, (values, value_type), info)
    }

    /// The workspace of eigenvalues of a batch.
    fn cusolverDnXsyevBatched_bufferSize(
        _handle: *const Handle, _parameters: *const c_void, _job: u32, _fill: u32, _n: i64, _type: u32,
        _a: *const u8, _lda: i64, _value_type: u32, _values: *const u8, _compute: u32, device: *mut usize,
        host: *mut usize, _batch: i64
    ) {
        write_value(device, 1)?;
        write_value(host, 1)
    }

    /// Eigenvalues and vectors of a batch.
    fn cusolverDnXsyevBatched(
        handle: *const Handle, _parameters: *const c_void, job: u32, fill: u32, n: i64, kind: u32,
        a: *const u8, lda: i64, _value_type: u32, values: *const u8, _compute: u32, _device: *const u8,
        _device_len: usize, _host: *const u8, _host_len: usize, info: *const u8, batch: i64
    ) {
        let stride = lda.checked_mul(n).ok_or(Status::InvalidValue)?;
        let a = Argument::new(a, element(kind)?, lda).strided(stride);
        solve::eigen(handle, [job, fill], n, a, [values, info], batch)
    }

    /// The workspace of singular values.
    fn cusolverDnXgesvd_bufferSize(
        _handle: *const Handle, _parameters: *const c_void, _left: c_char, _right: c_char, _m: i64, _n: i64,
        _type: u32, _a: *const u8, _lda: i64, _value_type: u32, _values: *const u8, _u_type: u32,
        _u: *const u8, _ldu: i64, _v_type: u32, _v: *const u8, _ldv: i64, _compute: u32, device: *mut usize,
        host: *mut usize
    ) {
        write_value(device, 1)?;
        write_value(host, 1)
    }

    /// Singular values and vectors.
    fn cusolverDnXgesvd(
        handle: *const Handle, _parameters: *const c_void, left: c_char, right: c_char, m: i64, n: i64,
        kind: u32, a: *const u8, lda: i64, _value_type: u32, values: *const u8, u_type: u32, u: *const u8,
        ldu: i64, v_type: u32, v: *const u8, ldv: i64, _compute: u32, _device: *const u8, _device_len: usize,
        _host: *const u8, _host_len: usize, info: *const u8
    ) {
        let (u, v) = (Argument::new(u, element(u_type)?, ldu), Argument::new(v, element(v_type)?, ldv));
        let a = Argument::new(a, element(kind)?, lda);
        let vectors = lettered([left, right], a, u, v)?;
        solve::singular(handle, [m, n], a, vectors, [values, info], 1)
    }

    /// The workspace of singular values by a polar decomposition.
    fn cusolverDnXgesvdp_bufferSize(
        _handle: *const Handle, _parameters: *const c_void, _job: u32, _econ: i32, _m: i64, _n: i64,
        _type: u32, _a: *const u8, _lda: i64, _value_type: u32, _values: *const u8, _u_type: u32,
        _u: *const u8, _ldu: i64, _v_type: u32, _v: *const u8, _ldv: i64, _compute: u32, device: *mut usize,
        host: *mut usize
    ) {
        write_value(device, 1)?;
        write_value(host, 1)
    }

    /// Singular values and vectors, with an estimate of their error: none.
    fn cusolverDnXgesvdp(
        handle: *const Handle, _parameters: *const c_void, job: u32, econ: i32, m: i64, n: i64, kind: u32,
        a: *const u8, lda: i64, _value_type: u32, values: *const u8, u_type: u32, u: *const u8, ldu: i64,
        v_type: u32, v: *const u8, ldv: i64, _compute: u32, _device: *const u8, _device_len: usize,
        _host: *const u8, _host_len: usize, info: *const u8, error: *mut f64
    ) {
        let (u, v) = (Argument::new(u, element(u_type)?, ldu), Argument::new(v, element(v_type)?, ldv));
        let vectors = moded(job, econ != 0, u, v)?;
        solve::singular(handle, [m, n], Argument::new(a, element(kind)?, lda), vectors, [values, info], 1)?;
        if !error.is_null() {
            error.write(0.0);
        }
        Ok(())
    }
}
