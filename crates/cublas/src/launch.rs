//! Launch of a matrix product.

use std::ffi::CString;
use std::sync::OnceLock;

use causeway_gemm::{ENTRY, Request};

use crate::driver;
use crate::status::{Done, Status};

/// The kernel, which the driver loads into each context when it is first launched there.
fn kernel() -> Result<usize, Status> {
    static KERNEL: OnceLock<usize> = OnceLock::new();
    if let Some(kernel) = KERNEL.get() {
        return Ok(*kernel);
    }
    let no_zero = |_| Status::ExecutionFailed;
    let (text, entry) =
        (CString::new(causeway_gemm::kernel()).map_err(no_zero)?, CString::new(ENTRY).map_err(no_zero)?);
    let loaded = driver::functions()?.load_kernel(&text, &entry)?;
    // Where another thread has been faster, its kernel is as good.
    Ok(*KERNEL.get_or_init(|| loaded))
}

/// Makes sure that products can be launched.
pub fn prepare() -> Done {
    driver::functions()?.have_context()?;
    kernel().map(drop)
}

/// Puts a product behind the work of a stream.
pub fn launch(request: &Request, stream: usize) -> Done {
    let Some(tiles) = request.tiles() else { return Err(Status::InvalidValue) };
    if tiles == 0 {
        return Ok(());
    }
    // The most blocks that a grid has.
    let blocks = i32::try_from(tiles).map_err(|_| Status::NotSupported)?;
    // SAFETY: the kernel takes a request.
    unsafe { driver::functions()?.launch(kernel()?, blocks.unsigned_abs(), stream, request) }
}
