//! Operations on vectors, as matrix products: `gemv`, `ger`, `dot`, `nrm2`, `axpy`, `scal`, `copy`.

use causeway_gemm::{Accumulator, Activation, Matrix, Request, ScalarType, Source};

use crate::handle::{Handle, deliver};
use crate::launch::launch;
use crate::log;
use crate::operation::{Argument, ONE, ZERO, column, plain, transposed};
use crate::status::{Done, Status};
use crate::types::{Operation, scalar_type};

use Accumulator::{Double, Single};
use ScalarType::{C32, C64, F32, F64};

/// A vector: its address and increment.
type Vector = (*const u8, i64);

/// `y = alpha * op(A) * x + beta * y`
unsafe fn gemv(
    handle: *const Handle,
    (elements, accumulator): (ScalarType, Accumulator),
    operation: u32,
    [m, n]: [i64; 2],
    [alpha, beta]: [*const u8; 2],
    (a, leading): Vector,
    [x, y]: [Vector; 2],
) -> Done {
    // SAFETY: the caller's handle is null or valid.
    let settings = unsafe { Handle::settings(handle)? };
    let operation = Operation::from_number(operation).ok_or(Status::InvalidValue)?;
    let (rows, depth) = if operation == Operation::None { (m, n) } else { (n, m) };
    if m < 0 || n < 0 || x.1 == 0 || y.1 == 0 {
        return Err(Status::InvalidValue);
    }
    let a = Argument::new(a, elements, leading).matrix(operation, rows, depth)?;
    if rows == 0 || depth == 0 {
        return Ok(());
    }
    if a.address == 0 {
        return Err(Status::InvalidValue);
    }
    let (x, y) = (column(x.0, elements, depth, x.1)?, column(y.0, elements, rows, y.1)?);
    // SAFETY: the caller's factors are values of this type in the memory of the pointer mode.
    let (alpha, beta) = unsafe { (settings.scalar(alpha, elements)?, settings.scalar(beta, elements)?) };
    let request = plain(a, x, y, accumulator, alpha, beta);
    launch(&Request { rows: rows.unsigned_abs(), depth: depth.unsigned_abs(), ..request }, settings.stream)
}

/// `A = alpha * x * transpose(y) + A`; with the conjugate of y, if `is_conjugate`.
unsafe fn ger(
    handle: *const Handle,
    (elements, accumulator): (ScalarType, Accumulator),
    is_conjugate: bool,
    [m, n]: [i64; 2],
    alpha: *const u8,
    [x, y]: [Vector; 2],
    (a, leading): Vector,
) -> Done {
    // SAFETY: the caller's handle is null or valid.
    let settings = unsafe { Handle::settings(handle)? };
    if m < 0 || n < 0 || x.1 == 0 || y.1 == 0 {
        return Err(Status::InvalidValue);
    }
    let a = Argument::new(a, elements, leading).matrix(Operation::None, m, n)?;
    if m == 0 || n == 0 {
        return Ok(());
    }
    if a.address == 0 {
        return Err(Status::InvalidValue);
    }
    let (x, y) = (column(x.0, elements, m, x.1)?, transposed(column(y.0, elements, n, y.1)?));
    let y = Matrix { is_conjugate: is_conjugate.into(), ..y };
    // SAFETY: the caller's factors are values of this type in the memory of the pointer mode.
    let alpha = unsafe { settings.scalar(alpha, elements)? };
    let request = plain(x, y, a, accumulator, alpha, ONE);
    launch(&Request { rows: m.unsigned_abs(), columns: n.unsigned_abs(), ..request }, settings.stream)
}

/// The product of two vectors, with a function applied, to the memory of the pointer mode.
unsafe fn dot(
    handle: *const Handle,
    (result_type, accumulator): (ScalarType, Accumulator),
    len: i64,
    [x, y]: [(Vector, ScalarType); 2],
    is_conjugate: bool,
    activation: Activation,
    result: *mut u8,
) -> Done {
    let len = len.max(0);
    let vector = |((address, increment), scalar_type): (Vector, ScalarType)| match len {
        0 => Ok(Matrix { scalar_type: scalar_type as u32, ..Matrix::default() }),
        _ => column(address, scalar_type, len, increment),
    };
    let x = Matrix { is_conjugate: is_conjugate.into(), ..transposed(vector(x)?) };
    let y = vector(y)?;
    // SAFETY: the caller's handle is null or valid, and `result` has room for its type in the memory of the
    // pointer mode.
    unsafe {
        deliver(handle, result, result_type.size() as usize, |address, stream| {
            let to = Matrix { address, scalar_type: result_type as u32, ..Matrix::default() };
            let request = plain(x, y, to, accumulator, ONE, ZERO);
            let request = Request { depth: len.unsigned_abs(), activation: activation as u32, ..request };
            launch(&request, stream)
        })
    }
}

/// `y = alpha * x + y`, without `adds` `y = alpha * x`. Alpha is one where it has no type.
unsafe fn axpy(
    handle: *const Handle,
    (elements, accumulator): (ScalarType, Accumulator),
    len: i64,
    alpha: (*const u8, Option<ScalarType>),
    [x, y]: [Vector; 2],
    adds: bool,
) -> Done {
    // SAFETY: the caller's handle is null or valid.
    let settings = unsafe { Handle::settings(handle)? };
    if len <= 0 {
        return Ok(());
    }
    let alpha = match alpha {
        // SAFETY: the caller's factors are values of this type in the memory of the pointer mode.
        (pointer, Some(scalar_type)) => unsafe { settings.scalar(pointer, scalar_type)? },
        (_, None) => ONE,
    };
    let (x, y) = (column(x.0, elements, len, x.1)?, column(y.0, elements, len, y.1)?);
    let ones = Matrix { source: Source::Ones as u16, scalar_type: elements as u32, ..Matrix::default() };
    let request = plain(x, ones, y, accumulator, alpha, if adds { ONE } else { ZERO });
    launch(&Request { rows: len.unsigned_abs(), ..request }, settings.stream)
}

/// Exports the functions of one element type, with sizes of one type.
macro_rules! vectors {
    ($elements:expr, $accumulator:expr, $int:ty: $gemv:ident $axpy:ident $scal:ident $copy:ident) => {
        /// The product of a matrix and a vector.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $gemv(
            handle: *const Handle,
            operation: u32,
            m: $int,
            n: $int,
            alpha: *const u8,
            a: *const u8,
            lda: $int,
            x: *const u8,
            incx: $int,
            beta: *const u8,
            y: *mut u8,
            incy: $int,
        ) -> Status {
            let (sizes, vectors) = ([m.into(), n.into()], [(x, incx.into()), (y.cast_const(), incy.into())]);
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe {
                let kind = ($elements, $accumulator);
                gemv(handle, kind, operation, sizes, [alpha, beta], (a, lda.into()), vectors)
            }
            .into()
        }

        /// Adds a multiple of a vector.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $axpy(
            handle: *const Handle,
            n: $int,
            alpha: *const u8,
            x: *const u8,
            incx: $int,
            y: *mut u8,
            incy: $int,
        ) -> Status {
            let (kind, vectors) =
                (($elements, $accumulator), [(x, incx.into()), (y.cast_const(), incy.into())]);
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe { axpy(handle, kind, n.into(), (alpha, Some($elements)), vectors, true) }.into()
        }

        /// Multiplies a vector by a factor.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $scal(
            handle: *const Handle,
            n: $int,
            alpha: *const u8,
            x: *mut u8,
            incx: $int,
        ) -> Status {
            let (kind, vector) = (($elements, $accumulator), (x.cast_const(), incx.into()));
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe { axpy(handle, kind, n.into(), (alpha, Some($elements)), [vector; 2], false) }.into()
        }

        /// Copies a vector.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $copy(
            handle: *const Handle,
            n: $int,
            x: *const u8,
            incx: $int,
            y: *mut u8,
            incy: $int,
        ) -> Status {
            let (kind, vectors) =
                (($elements, $accumulator), [(x, incx.into()), (y.cast_const(), incy.into())]);
            // SAFETY: the program passes a handle that is null or valid; there is no factor.
            unsafe { axpy(handle, kind, n.into(), (core::ptr::null(), None), vectors, false) }.into()
        }
    };
}

vectors! { F32, Single, i32: cublasSgemv_v2 cublasSaxpy_v2 cublasSscal_v2 cublasScopy_v2 }
vectors! { F32, Single, i64: cublasSgemv_v2_64 cublasSaxpy_v2_64 cublasSscal_v2_64 cublasScopy_v2_64 }
vectors! { F64, Double, i32: cublasDgemv_v2 cublasDaxpy_v2 cublasDscal_v2 cublasDcopy_v2 }
vectors! { F64, Double, i64: cublasDgemv_v2_64 cublasDaxpy_v2_64 cublasDscal_v2_64 cublasDcopy_v2_64 }
vectors! { C32, Single, i32: cublasCgemv_v2 cublasCaxpy_v2 cublasCscal_v2 cublasCcopy_v2 }
vectors! { C32, Single, i64: cublasCgemv_v2_64 cublasCaxpy_v2_64 cublasCscal_v2_64 cublasCcopy_v2_64 }
vectors! { C64, Double, i32: cublasZgemv_v2 cublasZaxpy_v2 cublasZscal_v2 cublasZcopy_v2 }
vectors! { C64, Double, i64: cublasZgemv_v2_64 cublasZaxpy_v2_64 cublasZscal_v2_64 cublasZcopy_v2_64 }

/// Exports products of vectors. Sums of single precision are made in double precision.
macro_rules! products {
    ($($elements:expr, $is_conjugate:literal, $dot:ident $dot_64:ident $ger:ident $ger_64:ident;)*) => {
        $(
            products! { one $elements, $is_conjugate, i32: $dot $ger }
            products! { one $elements, $is_conjugate, i64: $dot_64 $ger_64 }
        )*
    };
    (one $elements:expr, $is_conjugate:literal, $int:ty: $dot:ident $ger:ident) => {
        /// The product of two vectors.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $dot(
            handle: *const Handle, n: $int, x: *const u8, incx: $int, y: *const u8, incy: $int,
            result: *mut u8,
        ) -> Status {
            let vectors = [((x, incx.into()), $elements), ((y, incy.into()), $elements)];
            let kind = ($elements, Double);
            // SAFETY: the program passes a handle that is null or valid, and room for a result of this type.
            unsafe { dot(handle, kind, n.into(), vectors, $is_conjugate, Activation::None, result) }.into()
        }

        /// Adds the product of a column and a row.
        ///
        /// # Safety
        /// As the documentation of cuBLAS requires.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $ger(
            handle: *const Handle, m: $int, n: $int, alpha: *const u8, x: *const u8, incx: $int, y: *const u8,
            incy: $int, a: *mut u8, lda: $int,
        ) -> Status {
            let (kind, sizes) = (($elements, Double), [m.into(), n.into()]);
            let (vectors, a) = ([(x, incx.into()), (y, incy.into())], (a.cast_const(), lda.into()));
            // SAFETY: the program passes a handle that is null or valid, and factors of this type.
            unsafe { ger(handle, kind, $is_conjugate, sizes, alpha, vectors, a) }.into()
        }
    };
}

products! {
    F32, false, cublasSdot_v2 cublasSdot_v2_64 cublasSger_v2 cublasSger_v2_64;
    F64, false, cublasDdot_v2 cublasDdot_v2_64 cublasDger_v2 cublasDger_v2_64;
    C32, false, cublasCdotu_v2 cublasCdotu_v2_64 cublasCgeru_v2 cublasCgeru_v2_64;
    C32, true, cublasCdotc_v2 cublasCdotc_v2_64 cublasCgerc_v2 cublasCgerc_v2_64;
    C64, false, cublasZdotu_v2 cublasZdotu_v2_64 cublasZgeru_v2 cublasZgeru_v2_64;
    C64, true, cublasZdotc_v2 cublasZdotc_v2_64 cublasZgerc_v2 cublasZgerc_v2_64;
}

/// Exports norms of vectors, whose elements have so many parts.
macro_rules! norms {
    ($($elements:expr, $parts:literal, $int:ty, $name:ident;)*) => {
        $(
            /// The norm of a vector.
            ///
            /// # Safety
            /// As the documentation of cuBLAS requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name(
                handle: *const Handle, n: $int, x: *const u8, incx: $int, result: *mut u8,
            ) -> Status {
                // A complex vector is one of twice as many real numbers.
                if $parts > 1 && incx != 1 {
                    return log::refused(stringify!($name), "an increment other than 1 is not implemented");
                }
                let vector = ((x, incx.into()), $elements);
                let (kind, len) = (($elements, Double), i64::from(n).saturating_mul($parts));
                // SAFETY: the program passes a handle that is null or valid, and room for a result of this
                // type.
                unsafe { dot(handle, kind, len, [vector; 2], false, Activation::SquareRoot, result) }.into()
            }
        )*
    };
}

norms! {
    F32, 1, i32, cublasSnrm2_v2;
    F32, 1, i64, cublasSnrm2_v2_64;
    F64, 1, i32, cublasDnrm2_v2;
    F64, 1, i64, cublasDnrm2_v2_64;
    F32, 2, i32, cublasScnrm2_v2;
    F32, 2, i64, cublasScnrm2_v2_64;
    F64, 2, i32, cublasDznrm2_v2;
    F64, 2, i64, cublasDznrm2_v2_64;
}

/// Exports multiplications of complex vectors by real factors.
macro_rules! real_factors {
    ($($elements:expr, $factor:expr, $accumulator:expr, $int:ty, $name:ident;)*) => {
        $(
            /// Multiplies a complex vector by a real factor.
            ///
            /// # Safety
            /// As the documentation of cuBLAS requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name(
                handle: *const Handle, n: $int, alpha: *const u8, x: *mut u8, incx: $int,
            ) -> Status {
                let (kind, vector) = (($elements, $accumulator), (x.cast_const(), incx.into()));
                // SAFETY: the program passes a handle that is null or valid, and factors of this type.
                unsafe { axpy(handle, kind, n.into(), (alpha, Some($factor)), [vector; 2], false) }.into()
            }
        )*
    };
}

real_factors! {
    C32, F32, Single, i32, cublasCsscal_v2;
    C32, F32, Single, i64, cublasCsscal_v2_64;
    C64, F64, Double, i32, cublasZdscal_v2;
    C64, F64, Double, i64, cublasZdscal_v2_64;
}

/// Exports products of vectors with types as arguments.
macro_rules! products_with_types {
    ($($is_conjugate:literal, $int:ty, $name:ident;)*) => {
        $(
            /// The product of two vectors.
            ///
            /// # Safety
            /// As the documentation of cuBLAS requires.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name(
                handle: *const Handle, n: $int, x: *const u8, x_type: u32, incx: $int, y: *const u8,
                y_type: u32,
                incy: $int, result: *mut u8, result_type: u32, _execution_type: u32,
            ) -> Status {
                let types = [x_type, y_type, result_type].map(scalar_type);
                let [Some(x_type), Some(y_type), Some(result_type)] = types else {
                    return log::refused(stringify!($name), "one of the element types is not implemented");
                };
                let vectors = [((x, incx.into()), x_type), ((y, incy.into()), y_type)];
                let kind = (result_type, Double);
                // SAFETY: the program passes a handle that is null or valid, and room for a result of this
                // type.
                unsafe {
                    dot(handle, kind, n.into(), vectors, $is_conjugate, Activation::None, result)
                }
                .into()
            }
        )*
    };
}

products_with_types! {
    false, i32, cublasDotEx;
    false, i64, cublasDotEx_64;
    true, i32, cublasDotcEx;
    true, i64, cublasDotcEx_64;
}
