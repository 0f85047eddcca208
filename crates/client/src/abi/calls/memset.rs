//! Memsets. Those that CUDA calls synchronous are not, of device memory, so they are posted to the default
//! stream.

use crate::abi::outcome::Outcome;
use crate::model::{context, memory};
use crate::remote::{mirrored, session};
use crate::submit::copy;
use crate::submit::send;
use crate::submit::streams;
use crate::submit::streams::DefaultStream;
use causeway_api::calls;
use causeway_api::handle::{Context, Handle, Stream};
use causeway_api::sys::{CUdeviceptr, CUresult, CUstream};

macro_rules! memsets {
    ($($linear:ident => $linear_request:ident, $pitched:ident => $pitched_request:ident, $field:ident: $type:ty;)*) => {$(
        pub unsafe fn $linear(
            dstDevice: CUdeviceptr,
            $field: $type,
            N: usize,
            default_stream: DefaultStream,
        ) -> Outcome {
            let hStream = streams::resolve(core::ptr::null_mut(), default_stream)?;
            check(dstDevice, size_of::<$type>(), N)?;
            mirrored::note_address(dstDevice)?;
            put(dstDevice, hStream, |context, hStream| {
                send::post_in(context, &calls::$linear_request { dstDevice, $field, N, hStream })
            })?;
            synchronize_mirrored(dstDevice, hStream)
        }

        pub unsafe fn $pitched(
            dstDevice: CUdeviceptr,
            dstPitch: usize,
            $field: $type,
            Width: usize,
            Height: usize,
            default_stream: DefaultStream,
        ) -> Outcome {
            let hStream = streams::resolve(core::ptr::null_mut(), default_stream)?;
            check(dstDevice, size_of::<$type>(), Width)?;
            if Height > 1 && dstPitch < Width.saturating_mul(size_of::<$type>()) {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            mirrored::note_address(dstDevice)?;
            put(dstDevice, hStream, |context, hStream| {
                let request = calls::$pitched_request { dstDevice, dstPitch, $field, Width, Height, hStream };
                send::post_in(context, &request)
            })?;
            synchronize_mirrored(dstDevice, hStream)
        }

        pub unsafe fn $linear_request(
            dstDevice: CUdeviceptr,
            $field: $type,
            N: usize,
            hStream: CUstream,
            default_stream: DefaultStream,
        ) -> Outcome {
            let hStream = streams::resolve(hStream, default_stream)?;
            mirrored::note_address(dstDevice)?;
            put(dstDevice, hStream, |context, hStream| {
                send::post_in(context, &calls::$linear_request { dstDevice, $field, N, hStream })
            })
        }

        pub unsafe fn $pitched_request(
            dstDevice: CUdeviceptr,
            dstPitch: usize,
            $field: $type,
            Width: usize,
            Height: usize,
            hStream: CUstream,
            default_stream: DefaultStream,
        ) -> Outcome {
            let hStream = streams::resolve(hStream, default_stream)?;
            mirrored::note_address(dstDevice)?;
            put(dstDevice, hStream, |context, hStream| {
                let request = calls::$pitched_request { dstDevice, dstPitch, $field, Width, Height, hStream };
                send::post_in(context, &request)
            })
        }
    )*};
}

/// Puts a memset into a stream of the current context. One for memory of another server is carried out there.
#[inline]
fn put(
    address: CUdeviceptr,
    stream: Handle<Stream>,
    post: impl FnOnce(Handle<Context>, Handle<Stream>) -> Outcome,
) -> Outcome {
    let current = context::current()?;
    let elsewhere =
        || copy::owner_of(address).filter(|owning_context| owning_context.server() != current.server());
    match if session::are_several() { elsewhere() } else { None } {
        None => post(current, stream),
        Some(owning_context) => copy::by_proxy_stream(owning_context, &*context::stream(stream)?, |proxy| {
            post(owning_context, proxy.handle)
        }),
    }
}

memsets! {
    cuMemsetD8_v2 => cuMemsetD8Async, cuMemsetD2D8_v2 => cuMemsetD2D8Async, uc: u8;
    cuMemsetD16_v2 => cuMemsetD16Async, cuMemsetD2D16_v2 => cuMemsetD2D16Async, us: u16;
    cuMemsetD32_v2 => cuMemsetD32Async, cuMemsetD2D32_v2 => cuMemsetD2D32Async, ui: u32;
}

/// Of memory that the program reads with no call in between, a memset is synchronous in truth.
fn synchronize_mirrored(address: CUdeviceptr, stream: Handle<Stream>) -> Outcome {
    if mirrored::contains(address) { context::stream(stream)?.synchronize() } else { Ok(()) }
}

/// Refuses elements that do not lie at a multiple of their size, and known memory that is too small.
fn check(address: CUdeviceptr, element: usize, count: usize) -> Outcome {
    let bytes = count.checked_mul(element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if !address.is_multiple_of(element as u64) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if bytes == 0 { Ok(()) } else { memory::check_range(address, bytes as u64) }
}
