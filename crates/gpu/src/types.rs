//! What calls of a back end give and take.

use causeway_api::handle::{Array, MipmappedArray, Native};
use causeway_api::sys::CUresult;
use causeway_api::types::{DeviceLocation, TextureSource};
use core::time::Duration;

/// The outcome of a driver call.
pub type CuResult<T> = Result<T, CUresult>;

/// One end of a copy, as the back end knows it.
pub type NativeLocation = DeviceLocation<Native<Array>>;

/// What a texture looks into, as the back end knows it.
pub type NativeSource = TextureSource<Native<Array>, Native<MipmappedArray>>;

/// Called once when work is done, on whatever thread noticed it; gets the error that ended the work, if any.
pub type Completion = Box<dyn FnOnce(CuResult<()>) + Send>;

/// Which stream of the program something is printed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputStream {
    /// Standard output, where `printf` of kernels goes.
    Standard,
    /// Standard error, where failed assertions of kernels are told.
    Error,
}

/// Takes what kernels print.
pub type OutputSink = Box<dyn Fn(OutputStream, &[u8]) + Send + Sync>;

/// Gets how long a kernel has run, when it has ended.
pub type KernelTimer = Box<dyn Fn(Duration) + Send + Sync>;
