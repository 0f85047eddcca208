//! The driver's linker for device code, and the driver's log.

use core::ffi::c_void;

use causeway_api::handle::{LinkState, Native};
use causeway_api::sys::{CUjitInputType, CUlinkState, CUlogIterator, CUresult};
use causeway_api::types::JitOptions;
use causeway_gpu::CuResult;
use causeway_gpu::calls::{LinkerCalls, LogCalls};

use crate::calls::module::c_text;
use crate::driver::Driver;
use crate::graphs::Link;
use crate::jit::Options;

/// The longest piece of a result that is given at once, in bytes: what a reply can hold, with room to spare.
const MAX_PIECE_BYTES: usize = 8 << 20;

impl LinkerCalls for Driver {
    fn link_create(&self, options: &JitOptions) -> CuResult<Native<LinkState>> {
        let mut options = Options::new(options)?;
        let mut state: CUlinkState = core::ptr::null_mut();
        // SAFETY: as many names as values; what they point to lives in the table until the linker is
        // destroyed.
        unsafe {
            let values = options.values();
            self.functions.cuLinkCreate_v2(options.count(), options.names(), values, &mut state)?;
        }
        let native = Native::from_raw(state);
        self.links.lock().insert(native.value(), Link { options, result: None });
        Ok(native)
    }

    fn link_add(
        &self,
        state: Native<LinkState>,
        kind: CUjitInputType,
        name: &str,
        options: &JitOptions,
        data: &[u8],
    ) -> CuResult<()> {
        let name = c_text(name)?;
        let mut options = Options::of_input(options)?;
        // PTX must end in a NUL that counts, and what the driver reads must be aligned for it.
        let mut bytes = data.to_vec();
        if kind == CUjitInputType::CU_JIT_INPUT_PTX && bytes.last() != Some(&0) {
            bytes.push(0);
        }
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut whole = [0; 8];
            whole[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(whole);
        }
        // SAFETY: the data is of the size that is passed along and read during the call only; as many names
        // as values, which live as long.
        let outcome = unsafe {
            let values = options.values();
            let data: *mut c_void = words.as_mut_ptr().cast();
            self.functions.cuLinkAddData_v2(
                state.as_raw(),
                kind,
                data,
                bytes.len(),
                name.as_ptr(),
                options.count(),
                options.names(),
                values,
            )
        };
        self.report_link(state);
        outcome
    }

    fn link_complete(&self, state: Native<LinkState>) -> CuResult<usize> {
        let (mut cubin, mut size) = (core::ptr::null_mut(), 0);
        // SAFETY: the pointers are to locals.
        let outcome = unsafe { self.functions.cuLinkComplete(state.as_raw(), &raw mut cubin, &mut size) };
        self.report_link(state);
        outcome?;
        let mut links = self.links.lock();
        let link = links.get_mut(&state.value()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        link.result = Some((cubin as usize, size));
        Ok(size)
    }

    fn link_result(&self, state: Native<LinkState>, start: usize, length: usize) -> CuResult<Vec<u8>> {
        let links = self.links.lock();
        let result = links.get(&state.value()).and_then(|link| link.result);
        let (address, size) = result.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let end = start.checked_add(length).filter(|end| *end <= size && length <= MAX_PIECE_BYTES);
        end.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: within the result, which the driver keeps until the linker is destroyed; the table is
        // locked, and whoever destroys the linker takes it out of the table first.
        Ok(unsafe { core::slice::from_raw_parts((address as *const u8).add(start), length) }.to_vec())
    }

    fn link_destroy(&self, state: Native<LinkState>) -> CuResult<()> {
        let link = self.links.lock().remove(&state.value());
        // SAFETY: the linker is the driver's own and nobody can name it any more.
        let outcome = unsafe { self.functions.cuLinkDestroy(state.as_raw()) };
        drop(link);
        outcome
    }
}

impl Driver {
    /// Keeps what the linker has said so far for the client, which asks when a call has failed or all is
    /// done.
    fn report_link(&self, state: Native<LinkState>) {
        if let Some(link) = self.links.lock().get(&state.value()) {
            self.reports.put(link.options.report, link.options.answers());
        }
    }
}

/// The longest piece of the log that is asked for at once; the driver keeps about a hundred lines.
const MAX_LOG_BYTES: usize = 1 << 20;

impl LogCalls for Driver {
    causeway_api_macros::driver_calls!(log);

    /// The log from `start` on, at most `size` bytes, and where it goes on.
    fn logs_dump(&self, start: Option<&CUlogIterator>, size: usize) -> CuResult<(Vec<u8>, CUlogIterator)> {
        let mut text = vec![0; size.min(MAX_LOG_BYTES)];
        let (mut length, mut next) = (text.len(), start.copied().unwrap_or_default());
        let iterator = if start.is_some() { &raw mut next } else { core::ptr::null_mut() };
        // SAFETY: the buffer has `length` bytes; the driver writes no more and says how many.
        unsafe {
            self.functions.cuLogsDumpToMemory(iterator, text.as_mut_ptr().cast(), &mut length, 0)?;
        }
        text.truncate(length);
        Ok((text, next))
    }
}
