//! Handles, `cublasHandle_t`: stream, modes, and memory for results that go to the host.

use std::sync::Mutex;

use causeway_gemm::{Scalar, ScalarType};

use crate::driver;
use crate::launch;
use crate::status::{Done, Status, write_value};

/// What a handle points at.
pub struct Handle {
    settings: Mutex<Settings>,
}

/// What calls with a handle use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    /// `CUstream`
    pub stream: usize,
    /// Whether alpha, beta and results are in device memory: `cublasPointerMode_t`.
    pub is_device_mode: bool,
    /// `cublasMath_t`. All modes compute the same.
    pub math_mode: u32,
    /// `cublasAtomicsMode_t`
    pub atomics_mode: u32,
    /// Multiprocessors that products are made for.
    pub sm_count_target: i32,
    /// Device memory for one result, or 0.
    result: u64,
}

/// Bytes of the largest result.
const RESULT_BYTES: usize = 16;

impl Handle {
    /// Makes one, in memory that [`Self::destroy`] releases, and a context if there is none.
    ///
    /// # Safety
    /// The pointer is null, or leads to a pointer.
    pub unsafe fn create(to: *mut *mut Self) -> Done {
        if to.is_null() {
            return Err(Status::InvalidValue);
        }
        launch::prepare()?;
        // SAFETY: the caller passes null, or room for a pointer.
        unsafe { write_value(to, Box::into_raw(Box::new(Self { settings: Mutex::default() }))) }
    }

    /// Ends a handle.
    ///
    /// # Safety
    /// It is one of [`Self::create`], and not used any more.
    pub unsafe fn destroy(handle: *mut Self) -> Result<(), Status> {
        if handle.is_null() {
            return Err(Status::NotInitialized);
        }
        // SAFETY: the caller passes what `create` made with `Box::into_raw`, and uses it no more.
        let handle = unsafe { Box::from_raw(handle) };
        let result = handle.settings.lock().map_or(0, |settings| settings.result);
        if result != 0 {
            driver::functions()?.free(result);
        }
        Ok(())
    }

    /// The settings.
    ///
    /// # Safety
    /// The pointer is null or that of a handle.
    pub unsafe fn settings(handle: *const Self) -> Result<Settings, Status> {
        // SAFETY: the caller passes null or what `create` made and `destroy` has not freed.
        let handle = unsafe { handle.as_ref() }.ok_or(Status::NotInitialized)?;
        handle.settings.lock().map(|settings| *settings).map_err(|_| Status::NotInitialized)
    }

    /// Changes the settings.
    ///
    /// # Safety
    /// The pointer is null or that of a handle.
    pub unsafe fn change(handle: *const Self, change: impl FnOnce(&mut Settings)) -> Result<(), Status> {
        // SAFETY: the caller passes null or what `create` made and `destroy` has not freed.
        let handle = unsafe { handle.as_ref() }.ok_or(Status::NotInitialized)?;
        let mut settings = handle.settings.lock().map_err(|_| Status::NotInitialized)?;
        change(&mut settings);
        Ok(())
    }

    /// Device memory for one result. Two threads that use a handle at once would get each other's results, as
    /// they would with NVIDIA's.
    ///
    /// # Safety
    /// The pointer is null or that of a handle.
    pub unsafe fn result(handle: *const Self) -> Result<u64, Status> {
        // SAFETY: the caller's handle is null or valid.
        unsafe {
            let there = Self::settings(handle)?.result;
            if there != 0 {
                return Ok(there);
            }
            let made = driver::functions()?.allocate(RESULT_BYTES)?;
            let mut kept = made;
            Self::change(handle, |settings| match settings.result {
                0 => settings.result = made,
                other => kept = other,
            })?;
            if kept != made {
                driver::functions()?.free(made);
            }
            Ok(kept)
        }
    }
}

/// Has a result of so many bytes written where a call wants it: `launch` gets the address and the stream. A
/// result for the host is waited for.
///
/// # Safety
/// The handle is null or valid, and the result has so much room in the memory of the pointer mode.
pub unsafe fn deliver(
    handle: *const Handle,
    result: *mut u8,
    size: usize,
    launch: impl FnOnce(u64, usize) -> Done,
) -> Done {
    // SAFETY: the caller's handle is null or valid.
    let settings = unsafe { Handle::settings(handle)? };
    if result.is_null() {
        return Err(Status::InvalidValue);
    }
    if settings.is_device_mode {
        return launch(result as u64, settings.stream);
    }
    // SAFETY: the caller's handle is null or valid.
    let from = unsafe { Handle::result(handle)? };
    launch(from, settings.stream)?;
    // SAFETY: the caller has room for `size` bytes at `result`, which is in the host's memory in this pointer
    // mode.
    unsafe { driver::functions()?.copy_to_host(result.cast(), from, size, settings.stream) }
}

impl Settings {
    /// A factor that a call points at.
    ///
    /// # Safety
    /// It points at a value of this type, in the memory of the pointer mode.
    pub unsafe fn scalar(&self, pointer: *const u8, scalar_type: ScalarType) -> Result<Scalar, Status> {
        if pointer.is_null() {
            return Err(Status::InvalidValue);
        }
        if self.is_device_mode {
            return Ok(Scalar {
                address: pointer as u64,
                scalar_type: scalar_type as u32,
                ..Scalar::default()
            });
        }
        // SAFETY: the caller's pointer is to a value of this type in the host's memory.
        Ok(unsafe { host_scalar(pointer, scalar_type) })
    }
}

/// A factor in host memory.
///
/// # Safety
/// It points at a value of this type.
pub unsafe fn host_scalar(pointer: *const u8, scalar_type: ScalarType) -> Scalar {
    // SAFETY: the caller's pointer is to a value of this type in the host's memory.
    let (real, imaginary) = unsafe {
        match scalar_type {
            ScalarType::F16 => (half(pointer.cast::<u16>().read_unaligned()), 0.0),
            ScalarType::Bf16 => {
                (f64::from(f32::from_bits(u32::from(pointer.cast::<u16>().read_unaligned()) << 16)), 0.0)
            }
            ScalarType::F32 => (f64::from(pointer.cast::<f32>().read_unaligned()), 0.0),
            ScalarType::F64 => (pointer.cast::<f64>().read_unaligned(), 0.0),
            ScalarType::C32 => {
                let [real, imaginary] = pointer.cast::<[f32; 2]>().read_unaligned();
                (f64::from(real), f64::from(imaginary))
            }
            ScalarType::C64 => pointer.cast::<[f64; 2]>().read_unaligned().into(),
            ScalarType::I8 => (f64::from(pointer.cast::<i8>().read()), 0.0),
            ScalarType::I32 => (f64::from(pointer.cast::<i32>().read_unaligned()), 0.0),
            ScalarType::I64 => (pointer.cast::<i64>().read_unaligned() as f64, 0.0),
        }
    };
    Scalar { real, imaginary, scalar_type: scalar_type as u32, ..Scalar::default() }
}

/// The value of a number in half precision.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        0x1f if fraction == 0.0 => f64::INFINITY,
        0x1f => f64::NAN,
        _ => (1024.0 + fraction) * 2_f64.powi(exponent - 25),
    };
    if bits & 0x8000 == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_is_read_exactly() {
        for (bits, value) in [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2_f64.powi(-24)), (0x7bff, 65504.0)] {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7e00).is_nan() && half(0xfc00) == f64::NEG_INFINITY);
    }
}
