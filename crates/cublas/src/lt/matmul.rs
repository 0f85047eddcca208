//! Products described by descriptors: `cublasLtMatmul`, and the choice of its algorithm, of which there is
//! one.

use core::ffi::{c_int, c_void};

use causeway_gemm::{Activation, Matrix, Request, Scalar, ScalarType, Source};

use super::descriptors::{Description, Layout};
use crate::handle::host_scalar;
use crate::launch::{self, launch};
use crate::log;
use crate::operation::{plain, transposed};
use crate::status::{Done, Status};
use crate::types::{Operation, compute_type, scalar_type};

/// `cublasLtMatmulAlgo_t`
type Algorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct HeuristicResult {
    algorithm: Algorithm,
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

const RESULT: HeuristicResult =
    HeuristicResult { algorithm: [0; 8], workspace: 0, state: Status::Success, waves: 1.0, reserved: [0; 4] };

/// Bits of `cublasLtEpilogue_t`.
const RELU: u32 = 2;
const BIAS: u32 = 4;
const GELU: u32 = 32;
/// All but "default", which is 1.
const IMPLEMENTED_EPILOGUES: u32 = RELU | BIAS | GELU;

/// Device memory of the matrices.
#[derive(Debug, Clone, Copy, Default)]
struct Addresses {
    a: u64,
    b: u64,
    c: u64,
    d: u64,
}

/// A stored matrix, with an operation applied; of this size then.
fn matrix(layout: &Layout, address: u64, operation: u32) -> Result<(Matrix, u64, u64), Status> {
    let refused = |reason| log::refused("cublasLtMatmul", reason);
    let operation = Operation::from_number(operation).ok_or(Status::InvalidValue)?;
    let scalar_type = scalar_type(layout.scalar_type)
        .ok_or_else(|| refused("one of the element types is not implemented"))?;
    let (row_stride, column_stride, lines) = match layout.order {
        0 => (1, layout.leading, layout.rows),
        1 => (layout.leading, 1, layout.columns),
        _ => return Err(refused("one of the memory orders is not implemented")),
    };
    if layout.leading < 0 || layout.leading.unsigned_abs() < lines {
        return Err(Status::InvalidValue);
    }
    let source = match layout.batch_mode {
        0 => Source::Memory,
        1 => Source::Array,
        _ => return Err(refused("the batch mode is not implemented")),
    };
    let stored = Matrix {
        address,
        row_stride,
        column_stride,
        batch_stride: layout.batch_stride,
        scalar_type: scalar_type as u32,
        source: source as u16,
        is_conjugate: u8::from(operation == Operation::ConjugateTranspose && scalar_type.is_complex()),
        structure: 0,
    };
    Ok(match operation {
        Operation::None => (stored, layout.rows, layout.columns),
        Operation::Transpose | Operation::ConjugateTranspose => {
            (transposed(stored), layout.columns, layout.rows)
        }
    })
}

/// Descriptors of a call.
struct Call<'a> {
    description: &'a Description,
    /// Of A, B, C and D.
    layouts: [&'a Layout; 4],
}

impl<'a> Call<'a> {
    /// # Safety
    /// The pointers are null or those of descriptors.
    unsafe fn of(description: *const Description, layouts: [*const Layout; 4]) -> Result<Self, Status> {
        // SAFETY: the caller's pointers are null or those of descriptors.
        unsafe {
            let layout = |index: usize| layouts[index].as_ref().ok_or(Status::InvalidValue);
            Ok(Self {
                description: description.as_ref().ok_or(Status::InvalidValue)?,
                layouts: [layout(0)?, layout(1)?, layout(2)?, layout(3)?],
            })
        }
    }

    /// The type of alpha and beta.
    fn scale_type(&self) -> Result<ScalarType, Status> {
        let refused = || log::refused("cublasLtMatmul", "the type of alpha and beta is not implemented");
        scalar_type(self.description.scale_type).ok_or_else(refused)
    }

    /// The request, with factors of zero.
    fn request(&self, at: Addresses) -> Result<Request, Status> {
        let Self { description, layouts: [a, b, c, d] } = self;
        let refused = |reason| log::refused("cublasLtMatmul", reason);
        let ([left, right, added], epilogue) = (description.operations, description.epilogue);
        if description.refused != 0 {
            return Err(refused("one of the attributes that are set is not implemented"));
        }
        if description.pointer_mode > 1 {
            return Err(refused("the pointer mode is not implemented"));
        }
        if (epilogue & !1 & !IMPLEMENTED_EPILOGUES) != 0 {
            return Err(refused("the epilogue is not implemented"));
        }
        let ((a, rows, depth), (b, b_rows, columns)) = (matrix(a, at.a, left)?, matrix(b, at.b, right)?);
        let ((c, ..), (result, d_rows, d_columns)) = (matrix(c, at.c, added)?, matrix(d, at.d, 0)?);
        if depth != b_rows || rows != d_rows || columns != d_columns || d.batch < 0 {
            return Err(Status::InvalidValue);
        }
        let result_type = scalar_type(d.scalar_type).ok_or(Status::NotSupported)?;
        let is_complex = result_type.is_complex();
        let is_as_result = |matrix: &Matrix| {
            ScalarType::from_number(matrix.scalar_type).is_some_and(|other| other.is_complex() == is_complex)
        };
        let accumulator = compute_type(description.compute, is_complex)
            .filter(|_| [a, b, c].iter().all(is_as_result))
            .ok_or_else(|| refused("the combination of types is not implemented"))?
            .0;
        let bias_type = match description.bias_type {
            u32::MAX => result_type,
            number => {
                scalar_type(number).ok_or_else(|| refused("the type of the bias is not implemented"))?
            }
        };
        let activation = match epilogue & (RELU | GELU) {
            RELU => Activation::Relu,
            GELU => Activation::Gelu,
            _ => Activation::None,
        };
        let none = Scalar::default();
        Ok(Request {
            rows,
            columns,
            depth,
            batch: d.batch.unsigned_abs().into(),
            d: result,
            bias: if epilogue & BIAS != 0 { description.bias } else { 0 },
            bias_batch_stride: description.bias_batch_stride,
            bias_type: bias_type as u32,
            activation: activation as u32,
            ..plain(a, b, c, accumulator, none, none)
        })
    }
}

/// Makes a handle, which has nothing but its address, and a context if there is none.
///
/// # Safety
/// As the documentation of cuBLAS requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtCreate(handle: *mut *mut u64) -> Status {
    if handle.is_null() {
        return Status::InvalidValue;
    }
    // SAFETY: the pointer leads to a handle, as the caller promises.
    let create = || launch::prepare().map(|()| unsafe { handle.write(Box::into_raw(Box::new(0))) });
    create().into()
}

/// Ends a handle.
///
/// # Safety
/// As the documentation of cuBLAS requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtDestroy(handle: *mut u64) -> Status {
    if handle.is_null() {
        return Status::NotInitialized;
    }
    // SAFETY: the handle is one of `cublasLtCreate`, as the caller promises. That of cuBLAS, which may be
    // used here as well, is ended by `cublasDestroy`.
    drop(unsafe { Box::from_raw(handle) });
    Status::Success
}

/// `D = epilogue(alpha * op(A) * op(B) + beta * op(C))`
///
/// # Safety
/// As the documentation of cuBLAS requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmul(
    _handle: *const c_void,
    description: *const Description,
    alpha: *const u8,
    a: u64,
    a_layout: *const Layout,
    b: u64,
    b_layout: *const Layout,
    beta: *const u8,
    c: u64,
    c_layout: *const Layout,
    d: u64,
    d_layout: *const Layout,
    _algorithm: *const Algorithm,
    _workspace: *mut c_void,
    _workspace_size: usize,
    stream: usize,
) -> Status {
    let run = || -> Done {
        // SAFETY: the program's descriptors are null or valid.
        let call = unsafe { Call::of(description, [a_layout, b_layout, c_layout, d_layout])? };
        let request = call.request(Addresses { a, b, c, d })?;
        let scale_type = call.scale_type()?;
        let factor = |pointer: *const u8| match (pointer.is_null(), call.description.pointer_mode) {
            (true, _) => Err(Status::InvalidValue),
            // SAFETY: the program's factors point at values of the scale type, in the host's memory in this
            // pointer mode.
            (false, 0) => Ok(unsafe { host_scalar(pointer, scale_type) }),
            (false, _) => {
                Ok(Scalar { address: pointer as u64, scalar_type: scale_type as u32, ..Scalar::default() })
            }
        };
        launch(&Request { alpha: factor(alpha)?, beta: factor(beta)?, ..request }, stream)
    };
    run().into()
}

/// The algorithms for a product: the one there is, if the product is implemented.
///
/// # Safety
/// As the documentation of cuBLAS requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *const c_void,
    description: *const Description,
    a: *const Layout,
    b: *const Layout,
    c: *const Layout,
    d: *const Layout,
    _preference: *const c_void,
    requested: c_int,
    results: *mut HeuristicResult,
    returned: *mut c_int,
) -> Status {
    if requested < 1 || results.is_null() || returned.is_null() {
        return Status::InvalidValue;
    }
    let find = || -> Done {
        // SAFETY: the program's descriptors are null or valid; there is room for the number and for one
        // result at least.
        unsafe {
            returned.write(0);
            let call = Call::of(description, [a, b, c, d])?;
            call.request(Addresses::default())?;
            call.scale_type()?;
            results.write(RESULT);
            returned.write(1);
        }
        Ok(())
    };
    find().into()
}

/// Whether an algorithm can compute a product.
///
/// # Safety
/// As the documentation of cuBLAS requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    handle: *const c_void,
    description: *const Description,
    a: *const Layout,
    b: *const Layout,
    c: *const Layout,
    d: *const Layout,
    _algorithm: *const Algorithm,
    result: *mut HeuristicResult,
) -> Status {
    let mut returned = 0;
    let none = core::ptr::null();
    // SAFETY: the program's descriptors are null or valid, and it has room for one result; `returned` is a
    // local.
    unsafe {
        cublasLtMatmulAlgoGetHeuristic(handle, description, a, b, c, d, none, 1, result, &raw mut returned)
    }
}

/// The numbers of the algorithms: 0.
///
/// # Safety
/// As the documentation of cuBLAS requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoGetIds(
    _handle: *const c_void,
    _compute: u32,
    _scale_type: u32,
    _a: u32,
    _b: u32,
    _c: u32,
    _d: u32,
    requested: c_int,
    numbers: *mut c_int,
    returned: *mut c_int,
) -> Status {
    if requested < 1 || numbers.is_null() || returned.is_null() {
        return Status::InvalidValue;
    }
    // SAFETY: there is room for one number at least, as the caller promises.
    unsafe {
        numbers.write(0);
        returned.write(1);
    }
    Status::Success
}

/// Makes an algorithm of its number.
///
/// # Safety
/// As the documentation of cuBLAS requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoInit(
    _handle: *const c_void,
    _compute: u32,
    _scale_type: u32,
    _a: u32,
    _b: u32,
    _c: u32,
    _d: u32,
    number: c_int,
    algorithm: *mut Algorithm,
) -> Status {
    if number != 0 || algorithm.is_null() {
        return Status::InvalidValue;
    }
    // SAFETY: there is room for the algorithm, as the caller promises.
    unsafe { algorithm.write([0; 8]) };
    Status::Success
}

/// Changes how an algorithm works, which has no effect.
///
/// # Safety
/// As the documentation of cuBLAS requires.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cublasLtMatmulAlgoConfigSetAttribute(
    algorithm: *mut Algorithm,
    _number: u32,
    _buffer: *const c_void,
    _size: usize,
) -> Status {
    if algorithm.is_null() { Status::InvalidValue } else { Status::Success }
}
