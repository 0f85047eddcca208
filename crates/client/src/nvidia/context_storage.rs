//! `CONTEXT_LOCAL_STORAGE`: values that each copy of the runtime keeps for each context, under a key of its
//! own.
//!
//! The runtime reads its value in nearly every call, so each thread remembers what it has read, until
//! anything is changed anywhere.

use crate::locks::{RwLock, rank};
use crate::model::context;
use crate::model::handles::RawHandle as _;
use causeway_api::handle::{Context, Handle};
use causeway_api::sys::{CUcontext, CUresult};
use core::cell::Cell;
use core::ffi::c_void;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Called with the context, the key and the value when the context ends.
pub type Destructor = Option<unsafe extern "C" fn(CUcontext, *mut c_void, *mut c_void)>;

#[derive(Clone, Copy)]
struct Value {
    value: usize,
    destructor: Destructor,
}

/// Context and key of a value.
type Key = (u64, usize);

/// What the runtime keeps with contexts.
struct Storage {
    values: LazyLock<RwLock<rank::ContextStorage, HashMap<Key, Value>>>,
    /// Counts the changes of [`values`](Self::values); what a thread remembers is good for one count.
    changes: AtomicU64,
}

static STORAGE: Storage = Storage { values: LazyLock::new(RwLock::default), changes: AtomicU64::new(1) };

/// A program has a handful of copies of the runtime, each with a key of its own.
const REMEMBERED: usize = 16;

#[derive(Clone, Copy)]
struct Remembered {
    changes: u64,
    key: Key,
    value: usize,
}

thread_local! {
    static READ: [Cell<Remembered>; REMEMBERED] =
        const { [const { Cell::new(Remembered { changes: 0, key: (0, 0), value: 0 }) }; REMEMBERED] };
}

/// The key of a value; a null context means the current one.
fn key(context: CUcontext, key: *mut c_void) -> Result<Key, CUresult> {
    let context =
        if context.is_null() { context::current_or_none() } else { Handle::<Context>::from_raw(context) };
    if context.is_null() {
        Err(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    } else {
        Ok((context.value(), key as usize))
    }
}

/// Keeps a value; a second one under the same key is refused.
pub fn put(context: CUcontext, name: *mut c_void, value: *mut c_void, destructor: Destructor) -> CUresult {
    let key = match key(context, name) {
        Ok(key) => key,
        Err(status) => return status,
    };
    let mut values = STORAGE.values.write();
    if values.contains_key(&key) {
        return CUresult::CUDA_ERROR_INVALID_HANDLE;
    }
    values.insert(key, Value { value: value as usize, destructor });
    STORAGE.changes.fetch_add(1, Ordering::Release);
    CUresult::CUDA_SUCCESS
}

/// Forgets a value without calling its destructor.
pub fn delete(context: CUcontext, name: *mut c_void) -> CUresult {
    match key(context, name) {
        Ok(key) => match STORAGE.values.write().remove(&key) {
            Some(_) => {
                STORAGE.changes.fetch_add(1, Ordering::Release);
                CUresult::CUDA_SUCCESS
            }
            None => CUresult::CUDA_ERROR_INVALID_HANDLE,
        },
        Err(status) => status,
    }
}

/// The value under a key.
pub fn get(context: CUcontext, name: *mut c_void) -> Result<*mut c_void, CUresult> {
    let key = key(context, name)?;
    let changes = STORAGE.changes.load(Ordering::Acquire);
    // Keys are addresses of objects of some size, contexts are small numbers in the lower bits.
    let slot = (key.1 >> 6 ^ key.0 as usize) % REMEMBERED;
    let remembered = READ.try_with(|read| read[slot].get()).ok();
    if let Some(remembered) = remembered
        && (remembered.changes, remembered.key) == (changes, key)
    {
        return Ok(remembered.value as *mut c_void);
    }
    let value = STORAGE.values.read().get(&key).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?.value;
    // A thread that is ending remembers nothing.
    let _ = READ.try_with(|read| read[slot].set(Remembered { changes, key, value }));
    Ok(value as *mut c_void)
}

/// Forgets the values of a context that ends, and calls their destructors.
pub fn context_ends(context: Handle<Context>) {
    let mut ended = Vec::new();
    STORAGE.values.write().retain(|(owner, name), value| {
        let ends = *owner == context.value();
        if ends {
            ended.push((*name, *value));
        }
        !ends
    });
    STORAGE.changes.fetch_add(1, Ordering::Release);
    for (name, value) in ended {
        if let Some(destructor) = value.destructor {
            // SAFETY: the runtime gave the function to be called with these three once the context ends. No
            // lock is held, so it may call us.
            unsafe { destructor(context.as_raw(), name as *mut c_void, value.value as *mut c_void) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    static CALLED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn count(_: CUcontext, name: *mut c_void, value: *mut c_void) {
        assert_eq!((name as usize, value as usize), (0x10, 0x20));
        CALLED.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn context_end_runs_the_destructor_of_a_value() {
        let handle = crate::model::handles::create_context(0);
        let (context, name, value) = (handle.as_raw(), 0x10 as *mut c_void, 0x20 as *mut c_void);
        assert_eq!(get(context, name), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        assert_eq!(put(context, name, value, Some(count)), CUresult::CUDA_SUCCESS);
        assert_eq!(put(context, name, value, None), CUresult::CUDA_ERROR_INVALID_HANDLE);
        assert_eq!(get(context, name), Ok(value));
        assert_eq!(get(context, name), Ok(value), "as remembered");
        assert_eq!(delete(context, name), CUresult::CUDA_SUCCESS);
        assert_eq!(get(context, name), Err(CUresult::CUDA_ERROR_INVALID_HANDLE));
        assert_eq!(put(context, name, value, Some(count)), CUresult::CUDA_SUCCESS);
        context_ends(handle);
        assert_eq!(CALLED.load(Ordering::Relaxed), 1);
        assert_eq!(delete(context, name), CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
}
