//! Private table (`cuGetExportTable`): layout, and what all entries have in common.

use crate::log::debug;
use crate::{call_gate, guard};
use causeway_api::sys::CUresult;
use core::ffi::c_void;
use core::ptr;

/// A size, or the address of a function.
pub type Word = *const c_void;

/// A table of `N` words.
pub struct Table<const N: usize>(pub [Word; N]);

// SAFETY: the words are sizes and addresses of functions, never written.
unsafe impl<const N: usize> Sync for Table<N> {}

impl<const N: usize> Table<N> {
    /// A table that refuses everything, with its size in word 0.
    pub const fn new() -> Self {
        let mut words = [refuse as Word; N];
        words[0] = ptr::without_provenance(N * size_of::<Word>());
        Self(words)
    }

    /// The same with a function in a word.
    pub const fn with(mut self, word: usize, function: Word) -> Self {
        self.0[word] = function;
        self
    }
}

/// Runs the body of an entry: no panic may leave it.
pub fn guarded(body: impl FnOnce() -> Result<(), CUresult>) -> CUresult {
    let _call = call_gate::begin();
    match guard::run(body) {
        Some(Ok(())) => CUresult::CUDA_SUCCESS,
        Some(Err(status)) => status,
        None => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

extern "C" fn refuse() -> CUresult {
    debug!("call of an unknown entry of a private table");
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

/// Memory of the C library with these bytes.
pub fn memory_with(bytes: &[u8]) -> Result<*mut c_void, CUresult> {
    // SAFETY: the size is that of the bytes; a null result is looked at before it is used.
    let memory = unsafe { libc::malloc(bytes.len().max(1)) };
    if memory.is_null() {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    // SAFETY: there is room for as many bytes.
    unsafe { memory.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(memory)
}
