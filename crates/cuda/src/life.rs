//! Lifetime of a context. Its handle does not say: a context that is reset keeps it, and one
//! that is made may get that of one that was destroyed. Streams, events and kernels go with a context all the same, and
//! NVIDIA's driver does not look at whether a stream is one.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use super::entry_points::LoadedDriver;

/// `cuCtxGetId`, of drivers since CUDA 12.
type GetId = unsafe extern "C" fn(*mut c_void, *mut u64) -> c_int;

/// A number that no other context of this process has, before or after; the handle where the driver gives no such
/// number. And the number of the context that had this handle before, when that is seen for the first time.
pub(super) fn of(context: u64) -> (u64, Option<u64>) {
    let mut number = 0;
    // SAFETY: the driver checks the handle, and there is room for the number.
    let found =
        get_id().is_some_and(|get_id| unsafe { get_id(context as *mut c_void, &raw mut number) } == 0);
    if found { (number, lives().replace(context, number)) } else { (context, None) }
}

fn get_id() -> Option<GetId> {
    static FUNCTION: OnceLock<Option<GetId>> = OnceLock::new();
    *FUNCTION.get_or_init(|| {
        let address = LoadedDriver::find()?.function(c"cuCtxGetId")?;
        // SAFETY: a function of this name in a library of the driver's name takes a context and a place for a number.
        Some(unsafe { core::mem::transmute::<NonNull<c_void>, GetId>(address) })
    })
}

/// The number of the context that each handle is of.
#[derive(Debug, Default)]
struct Lives(Option<HashMap<u64, u64>>);

impl Lives {
    /// A handle is that of the context with this number. The number that it had before, where that is another one.
    fn replace(&mut self, context: u64, number: u64) -> Option<u64> {
        self.0.get_or_insert_default().insert(context, number).filter(|before| *before != number)
    }
}

fn lives() -> MutexGuard<'static, Lives> {
    static LIVES: Mutex<Lives> = Mutex::new(Lives(None));
    LIVES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_is_used_again_is_another_context() {
        let mut lives = Lives::default();
        assert_eq!(
            [(5, 1), (6, 2), (5, 1)].map(|(context, number)| lives.replace(context, number)),
            [None; 3]
        );
        assert_eq!((lives.replace(5, 3), lives.replace(5, 3), lives.replace(6, 2)), (Some(1), None, None));
    }
}
