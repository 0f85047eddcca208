//! Launch of what the server's processor computes.

use std::ffi::CString;
use std::sync::OnceLock;

use causeway_gemm::{
    ElementsRequest, MAX_ELEMENTS, Operation, RandomRequest, Request, SolveRequest, SparseRequest,
};

use crate::driver;
use crate::status::{Done, Status};

/// The kernel of an operation, which the driver loads into each context when it is first launched there.
fn kernel(operation: Operation) -> Result<usize, Status> {
    static KERNELS: OnceLock<[usize; Operation::ALL.len()]> = OnceLock::new();
    if let Some(kernels) = KERNELS.get() {
        return Ok(kernels[operation as usize]);
    }
    let no_zero = |_| Status::ExecutionFailed;
    let text = CString::new(causeway_gemm::kernels()).map_err(no_zero)?;
    let mut names = Vec::new();
    for operation in Operation::ALL {
        names.push(CString::new(operation.entry()).map_err(no_zero)?);
    }
    let found = driver::functions()?.load_kernels(&text, &names)?;
    let loaded = found.try_into().map_err(|_| Status::ExecutionFailed)?;
    // Where another thread has been faster, its kernels are as good.
    Ok(KERNELS.get_or_init(|| loaded)[operation as usize])
}

/// Makes sure that operations can be launched.
pub fn prepare() -> Done {
    driver::functions()?.have_context()?;
    kernel(Operation::Multiply).map(drop)
}

/// Puts a product behind the work of a stream.
pub fn launch(request: &Request, stream: usize) -> Done {
    let Some(tiles) = request.tiles() else { return Err(Status::InvalidValue) };
    // SAFETY: the kernel takes a request.
    unsafe { start(Operation::Multiply, tiles, stream, request) }
}

/// Puts an operation on elements behind the work of a stream.
pub fn launch_elements(request: &ElementsRequest, stream: usize) -> Done {
    let Some(blocks) = request.blocks() else { return Err(Status::InvalidValue) };
    // SAFETY: the kernel takes a request of this type.
    unsafe { start(Operation::Elements, blocks, stream, request) }
}

/// Puts a step of a generator behind the work of a stream.
pub fn launch_random(request: &RandomRequest, stream: usize) -> Done {
    // SAFETY: the kernel takes a request of this type.
    unsafe { start(Operation::Random, 1, stream, request) }
}

/// Puts an operation with sparse matrices behind the work of a stream.
pub fn launch_sparse(request: &SparseRequest, stream: usize) -> Done {
    // SAFETY: the kernel takes a request of this type.
    unsafe { start(Operation::Sparse, 1, stream, request) }
}

/// Puts a solution or factorization behind the work of a stream.
pub fn launch_solve(request: &SolveRequest, stream: usize) -> Done {
    let sizes = [
        (request.rows, request.columns),
        (request.b_rows, request.b_columns),
        (request.c_rows, request.columns),
    ];
    let is_small =
        |(rows, columns): (u64, u64)| rows.checked_mul(columns).is_some_and(|all| all <= MAX_ELEMENTS);
    if !sizes.into_iter().all(is_small) {
        return Err(Status::NotSupported);
    }
    // SAFETY: the kernel takes a request of this type.
    unsafe { start(Operation::Solve, request.batch, stream, request) }
}

/// # Safety
/// The operation takes a parameter of this type.
unsafe fn start<T>(operation: Operation, blocks: u64, stream: usize, parameter: &T) -> Done {
    debug_assert_eq!(size_of::<T>(), operation.parameter_bytes());
    if blocks == 0 {
        return Ok(());
    }
    // The most blocks that a grid has.
    let blocks = i32::try_from(blocks).map_err(|_| Status::NotSupported)?.unsigned_abs();
    // SAFETY: the caller's operation takes a parameter of this type.
    unsafe { driver::functions()?.launch(kernel(operation)?, blocks, stream, parameter) }
}
