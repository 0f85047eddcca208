//! Operations element by element, and reductions of vectors: `geam`, `dgmm`, `swap`, `rot`, `rotm`, `asum`, `amax`,
//! `amin`.

use causeway_gemm::{ElementsRequest, ElementsStep, Matrix, Scalar, ScalarType};

use crate::exports::typed_functions;
use crate::handle::{Handle, deliver, host_scalar};
use crate::launch::launch_elements;
use crate::operation::{Argument, ONE, ZERO, column, transposed};
use crate::solve::{real, stored};
use crate::status::{Done, Status};
use crate::types::Operation;

use ElementsStep::{AbsoluteSum, IndexOfMax, IndexOfMin};
use ScalarType::{C32, C64, F32, F64, I32, I64};

/// Launches a step on matrices of this size, unless they are empty.
unsafe fn run(handle: *const Handle, [rows, columns]: [i64; 2], request: ElementsRequest) -> Done {
    // SAFETY: the caller's handle is null or valid.
    let settings = unsafe { Handle::settings(handle)? };
    let sizes = [rows, columns].map(u64::try_from);
    let [Ok(rows), Ok(columns)] = sizes else { return Err(Status::InvalidValue) };
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    launch_elements(&ElementsRequest { rows, columns, ..request }, settings.stream)
}

/// Copies a matrix.
///
/// # Safety
/// The handle is null or valid.
pub unsafe fn copy(handle: *const Handle, sizes: [i64; 2], from: Matrix, to: Matrix) -> Done {
    let factors = [ONE, ZERO, ZERO, ZERO];
    let request = ElementsRequest { x: from, y: from, x_result: to, factors, ..ElementsRequest::default() };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, sizes, request) }
}

/// `X' = f0 * X + f1 * Y`, `Y' = f2 * X + f3 * Y`
unsafe fn transform(
    handle: *const Handle,
    elements: ScalarType,
    len: i64,
    [x, y]: [(*const u8, i64); 2],
    factors: [Scalar; 4],
) -> Done {
    if len <= 0 {
        return Ok(());
    }
    let vector = |(address, increment)| column(address, elements, len, increment);
    let (x, y) = (vector(x)?, vector(y)?);
    let request = ElementsRequest { x, y, x_result: x, y_result: y, factors, ..ElementsRequest::default() };
    // SAFETY: the caller's handle is null or valid.
    unsafe { run(handle, [len, 1], request) }
}

/// A result made of a vector.
unsafe fn reduce(
    handle: *const Handle,
    step: ElementsStep,
    (elements, result_type): (ScalarType, ScalarType),
    len: i64,
    (address, increment): (*const u8, i64),
    result: *mut u8,
) -> Done {
    let len = if increment > 0 { len.max(0) } else { 0 };
    let none = Matrix { scalar_type: elements as u32, ..Matrix::default() };
    let x = if len > 0 { column(address, elements, len, increment)? } else { none };
    // SAFETY: the caller's handle is null or valid, and `result` has room for its type in the memory of the
    // pointer mode.
    unsafe {
        deliver(handle, result, result_type.size() as usize, |address, stream| {
            let x_result = Matrix { address, scalar_type: result_type as u32, ..Matrix::default() };
            let (rows, step) = (len.unsigned_abs(), step as u32);
            let request =
                ElementsRequest { rows, columns: 1, x, x_result, step, ..ElementsRequest::default() };
            launch_elements(&request, stream)
        })
    }
}

typed_functions! {
    "The sum of multiples of two matrices, or of their transposes."
    (
        handle: *const Handle, left: u32, right: u32, m: Int, n: Int, alpha: *const u8, a: *const u8, lda: Int,
        beta: *const u8, b: *const u8, ldb: Int, c: *mut u8, ldc: Int,
    )
    |elements| {
        let settings = Handle::settings(handle)?;
        let [alpha, beta] = [settings.scalar(alpha, elements)?, settings.scalar(beta, elements)?];
        // A matrix whose factor is 0 may be null.
        let is_unused = |factor: Scalar| factor.address == 0 && factor.real == 0.0 && factor.imaginary == 0.0;
        let operand = |operation, address: *const u8, leading: Int, factor| {
            let operation = Operation::from_number(operation).ok_or(Status::InvalidValue)?;
            if is_unused(factor) {
                return Ok(Matrix { scalar_type: elements as u32, ..Matrix::default() });
            }
            if address.is_null() && m > 0 && n > 0 {
                return Err(Status::InvalidValue);
            }
            Argument::new(address, elements, leading.into()).matrix(operation, m.into(), n.into())
        };
        let (x, y) = (operand(left, a, lda, alpha)?, operand(right, b, ldb, beta)?);
        let c = stored(Argument::new(c.cast_const(), elements, ldc.into()), m.into(), n.into())?;
        let factors = [alpha, beta, ZERO, ZERO];
        run(handle, [m.into(), n.into()], ElementsRequest { x, y, x_result: c, factors, ..Default::default() })
    }
    cublasSgeam cublasSgeam_64 F32;
    cublasDgeam cublasDgeam_64 F64;
    cublasCgeam cublasCgeam_64 C32;
    cublasZgeam cublasZgeam_64 C64;
}

typed_functions! {
    "The product of a matrix and a diagonal one."
    (
        handle: *const Handle, side: u32, m: Int, n: Int, a: *const u8, lda: Int, x: *const u8, incx: Int,
        c: *mut u8, ldc: Int,
    )
    |elements| {
        let (m, n) = (i64::from(m), i64::from(n));
        let matrix = |address, leading: Int| stored(Argument::new(address, elements, leading.into()), m, n);
        let (a, c) = (matrix(a, lda)?, matrix(c.cast_const(), ldc)?);
        let diagonal = |len: i64| {
            let vector = column(x, elements, len.max(1), incx.into())?;
            Ok::<_, Status>(Matrix { column_stride: 0, ..vector })
        };
        let y = match side {
            0 => diagonal(m)?,
            1 => transposed(diagonal(n)?),
            _ => return Err(Status::InvalidValue),
        };
        let step = ElementsStep::Multiply as u32;
        run(handle, [m, n], ElementsRequest { x: a, y, x_result: c, step, ..Default::default() })
    }
    cublasSdgmm cublasSdgmm_64 F32;
    cublasDdgmm cublasDdgmm_64 F64;
    cublasCdgmm cublasCdgmm_64 C32;
    cublasZdgmm cublasZdgmm_64 C64;
}

typed_functions! {
    "Exchanges two vectors."
    (handle: *const Handle, n: Int, x: *mut u8, incx: Int, y: *mut u8, incy: Int)
    |elements| {
        let vectors = [(x.cast_const(), incx.into()), (y.cast_const(), incy.into())];
        transform(handle, elements, n.into(), vectors, [ZERO, ONE, ONE, ZERO])
    }
    cublasSswap_v2 cublasSswap_v2_64 F32;
    cublasDswap_v2 cublasDswap_v2_64 F64;
    cublasCswap_v2 cublasCswap_v2_64 C32;
    cublasZswap_v2 cublasZswap_v2_64 C64;
}

typed_functions! {
    "Rotates the pairs of elements of two vectors."
    (
        handle: *const Handle, n: Int, x: *mut u8, incx: Int, y: *mut u8, incy: Int, cosine: *const u8,
        sine: *const u8,
    )
    |types| {
        let (elements, sine_type): (ScalarType, ScalarType) = types;
        let settings = Handle::settings(handle)?;
        let (cosine, sine) = (settings.scalar(cosine, real(elements))?, settings.scalar(sine, sine_type)?);
        let vectors = [(x.cast_const(), incx.into()), (y.cast_const(), incy.into())];
        transform(handle, elements, n.into(), vectors, [cosine, sine, sine.conjugate().negative(), cosine])
    }
    cublasSrot_v2 cublasSrot_v2_64 (F32, F32);
    cublasDrot_v2 cublasDrot_v2_64 (F64, F64);
    cublasCrot_v2 cublasCrot_v2_64 (C32, C32);
    cublasCsrot_v2 cublasCsrot_v2_64 (C32, F32);
    cublasZrot_v2 cublasZrot_v2_64 (C64, C64);
    cublasZdrot_v2 cublasZdrot_v2_64 (C64, F64);
}

typed_functions! {
    "Applies a modified rotation, whose parameters are in host memory."
    (
        handle: *const Handle, n: Int, x: *mut u8, incx: Int, y: *mut u8, incy: Int, parameters: *const u8,
    )
    |elements| {
        if Handle::settings(handle)?.is_device_mode {
            return Err(Status::NotSupported);
        }
        if parameters.is_null() {
            return Err(Status::InvalidValue);
        }
        let parameter =
            |index: usize| host_scalar(parameters.wrapping_add(index * elements.size() as usize), elements);
        let [h11, h21, h12, h22] = [1, 2, 3, 4].map(parameter);
        let factors = match parameter(0).real {
            -2.0 => [ONE, ZERO, ZERO, ONE],
            -1.0 => [h11, h12, h21, h22],
            0.0 => [ONE, h12, h21, ONE],
            1.0 => [h11, ONE, ONE.negative(), h22],
            _ => return Err(Status::InvalidValue),
        };
        let vectors = [(x.cast_const(), incx.into()), (y.cast_const(), incy.into())];
        transform(handle, elements, n.into(), vectors, factors)
    }
    cublasSrotm_v2 cublasSrotm_v2_64 F32;
    cublasDrotm_v2 cublasDrotm_v2_64 F64;
}

typed_functions! {
    "The sum of the absolute values of a vector's elements."
    (handle: *const Handle, n: Int, x: *const u8, incx: Int, result: *mut u8)
    |elements| {
        reduce(handle, AbsoluteSum, (elements, real(elements)), n.into(), (x, incx.into()), result)
    }
    cublasSasum_v2 cublasSasum_v2_64 F32;
    cublasDasum_v2 cublasDasum_v2_64 F64;
    cublasScasum_v2 cublasScasum_v2_64 C32;
    cublasDzasum_v2 cublasDzasum_v2_64 C64;
}

typed_functions! {
    "The number of a vector's largest or smallest element, by absolute value."
    (handle: *const Handle, n: Int, x: *const u8, incx: Int, result: *mut Int)
    |kind| {
        let (step, elements) = kind;
        let result_type = if size_of::<Int>() == 8 { I64 } else { I32 };
        reduce(handle, step, (elements, result_type), n.into(), (x, incx.into()), result.cast())
    }
    cublasIsamax_v2 cublasIsamax_v2_64 (IndexOfMax, F32);
    cublasIdamax_v2 cublasIdamax_v2_64 (IndexOfMax, F64);
    cublasIcamax_v2 cublasIcamax_v2_64 (IndexOfMax, C32);
    cublasIzamax_v2 cublasIzamax_v2_64 (IndexOfMax, C64);
    cublasIsamin_v2 cublasIsamin_v2_64 (IndexOfMin, F32);
    cublasIdamin_v2 cublasIdamin_v2_64 (IndexOfMin, F64);
    cublasIcamin_v2 cublasIcamin_v2_64 (IndexOfMin, C32);
    cublasIzamin_v2 cublasIzamin_v2_64 (IndexOfMin, C64);
}
