//! Memsets. Those that CUDA calls synchronous are not, of device memory, so they are posted to the default
//! stream.

use crate::abi::entry::Outcome;
use crate::model::context;
use crate::remote::{mirrored, session};
use crate::submit::streams::DefaultStream;
use crate::submit::{capture, copy, device_memory, send, streams};
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
            check(dstDevice, size_of::<$type>(), N, 1, 0)?;
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
            check(dstDevice, size_of::<$type>(), Width, Height, dstPitch)?;
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
            check(dstDevice, size_of::<$type>(), N, 1, 0)?;
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
            check(dstDevice, size_of::<$type>(), Width, Height, dstPitch)?;
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
    mirrored::note_address(address)?;
    let is_known = device_memory::is_known(address);
    let elsewhere =
        || copy::owner_of(address).filter(|owning_context| owning_context.server() != current.server());
    match if session::are_several() { elsewhere() } else { None } {
        None => post(current, stream)?,
        Some(owning_context) => copy::by_proxy_stream(owning_context, &*context::stream(stream)?, |proxy| {
            post(owning_context, proxy.handle)
        })?,
    }
    if is_known || capture::of(&*context::stream(stream)?) != 0 {
        Ok(())
    } else {
        device_memory::wait_for_server(current)
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

/// Refuses elements that do not lie at a multiple of their size, rows that overlap, and memory that is too small.
fn check(address: CUdeviceptr, element: usize, width: usize, height: usize, pitch: usize) -> Outcome {
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let row = width.checked_mul(element).ok_or(invalid)?;
    if !address.is_multiple_of(element as u64) {
        return Err(invalid);
    }
    if height > 1 && (pitch < row || !pitch.is_multiple_of(element)) {
        return Err(invalid);
    }
    if row == 0 || height == 0 {
        return Ok(());
    }
    let bytes = (height - 1).checked_mul(pitch).and_then(|rows| rows.checked_add(row)).ok_or(invalid)?;
    device_memory::check_range(address, bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::memory::{self, Origin};

    #[test]
    fn memsets_stay_within_their_memory() {
        const BASE: u64 = 0x7300_0000_1000;
        let context = Handle::new(903, 1);
        memory::add(BASE, 512, context, 0, Origin::Allocation).unwrap();
        let fits =
            |address, element, width, height, pitch| check(address, element, width, height, pitch).is_ok();
        assert!(fits(BASE, 1, 512, 1, 0) && !fits(BASE, 1, 513, 1, 0));
        assert!(fits(BASE, 4, 128, 1, 0) && !fits(BASE + 4, 4, 128, 1, 0) && !fits(BASE + 2, 4, 1, 1, 0));
        // The last row needs no whole pitch.
        assert!(fits(BASE, 1, 100, 5, 103) && !fits(BASE, 1, 101, 5, 103) && !fits(BASE, 1, 100, 6, 103));
        assert!(!fits(BASE, 1, 100, 2, 99) && !fits(BASE, 4, 4, 2, 18) && fits(BASE, 4, 4, 2, 16));
        assert!(!fits(BASE, 1, 1, usize::MAX, 2) && !fits(BASE, 4, usize::MAX, 1, 0));
        assert!(fits(BASE, 1, 0, 9, 9) && fits(BASE, 1, 9, 0, 9));
        assert!(!fits(0, 1, 1, 1, 0) && fits(0, 1, 0, 1, 0));
        memory::context_ends(context);
    }
}
