//! Lifetime of a context. Its handle does not say: a context that is reset keeps it, and one
//! that is made may get that of one that was destroyed. Streams, events and kernels go with a context all the same, and
//! NVIDIA's driver does not look at whether a stream is one.

use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::OnceLock;

use super::entry_points::Library;
use crate::entry_points;
use crate::locks::{Mutex, MutexGuard, rank};

entry_points! {
    /// Of drivers since CUDA 12.
    struct Newer {
        context_id: c"cuCtxGetId" (context: *mut c_void, id: *mut u64);
    }
}

/// A number that no other context of this process has, before or after; the handle where the driver gives no such
/// number. And the number of the context that had this handle before, when that is seen for the first time.
pub(super) fn of(context: u64) -> (u64, Option<u64>) {
    let mut number = 0;
    // SAFETY: the driver checks the handle, and there is room for the number.
    let found = newer()
        .is_some_and(|newer| unsafe { newer.context_id(context as *mut c_void, &raw mut number) }.is_ok());
    if found { (number, lives().replace(context, number)) } else { (context, None) }
}

fn newer() -> Option<&'static Newer> {
    static FUNCTIONS: OnceLock<Option<Newer>> = OnceLock::new();
    FUNCTIONS.get_or_init(|| Newer::load(Library::loaded_driver()?).ok()).as_ref()
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

fn lives() -> MutexGuard<'static, rank::Leaf, Lives> {
    static LIVES: Mutex<rank::Leaf, Lives> = Mutex::new(Lives(None));
    LIVES.lock()
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
