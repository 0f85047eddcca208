//! The table by which compilers ask for what they have compiled before.
//!
//! PTX that a compiler made on its way to machine code, for devices that run PTX only.
//!
//! NVRTC makes PTX of a program first and then machine code of the same program, and asks for a kept result
//! before each step; nvJitLink names the PTX as the source of the second step. What such a device runs is
//! PTX, so that the result of the second step is that of the first, in the form of machine code.

use core::ffi::{CStr, c_char, c_void};
use std::collections::VecDeque;

use blake3::Hash;
use causeway_api::image::texts::container;
use causeway_api::sys::CUresult;

use crate::arguments::write_out;
use crate::locks::{Mutex, rank};
use crate::log::debug;
use crate::model::device;
use crate::nvidia::compile_cache::{CompilationInputs, Key, MACHINE_CODE, PTX};
use crate::nvidia::table::{Table, Word, guarded, memory_with};
use crate::remote::session;

/// Under an identifier whose name nobody has published: results of compilers, kept on disk. Read from the
/// calls that NVRTC 13.0.88 makes, 2026-11-22; with fewer words it would give results back by entry 13 of the
/// table of layouts.
pub static COMPILED: Table<7> = Table::<7>::new()
    .with(1, compiled_key as Word)
    .with(2, release_compiled_key as Word)
    .with(3, find_compiled as Word)
    .with(4, keep_compiled as Word)
    .with(6, release_compiled as Word);

/// The PTX of programs that are being compiled, where devices run nothing else.
static TEXTS: Texts = Texts::new();

/// Whether the program sees devices, none of which runs machine code.
fn run_ptx_only() -> bool {
    let runs = |device: &device::Device| {
        session::with(device.server).is_ok_and(|session| !session.snapshot.machine_code)
    };
    !device::all().is_empty() && device::all().iter().all(runs)
}

/// A key for what a compiler makes of a source. An error where nothing is kept: the compiler does without
/// then.
unsafe extern "C" fn compiled_key(
    key: *mut *mut c_void,
    kind: u32,
    source: *const u8,
    length: u32,
    options: *const c_char,
    host: *const c_char,
    version: *const c_char,
    first: u32,
    second: u32,
) -> CUresult {
    guarded(|| {
        if super::folder().is_none() && !run_ptx_only() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let strings = [options, host, version];
        if source.is_null() || strings.iter().any(|text| text.is_null()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller gives as many bytes as it says, and strings that end in a zero.
        let (source, texts) = unsafe {
            let texts = strings.map(|text| CStr::from_ptr(text).to_bytes());
            (core::slice::from_raw_parts(source, length as usize), texts)
        };
        let made = Key::new(&CompilationInputs { kind, source, texts, numbers: [first, second] });
        if kind == MACHINE_CODE && run_ptx_only() {
            // nvJitLink names the PTX itself as the source of machine code; other sources are not remembered.
            TEXTS.remember(made.program, source);
        }
        let made = Box::into_raw(Box::new(made));
        // SAFETY: room for the result, or null.
        unsafe { write_out(key, made.cast()) }.inspect_err(|_| {
            // SAFETY: nobody else has it.
            drop(unsafe { Box::from_raw(made) });
        })
    })
}

unsafe extern "C" fn release_compiled_key(key: *mut Key) -> CUresult {
    if !key.is_null() {
        // SAFETY: it came from `compiled_key`, and is released once.
        drop(unsafe { Box::from_raw(key) });
    }
    CUresult::CUDA_SUCCESS
}

/// The result of this key, which [`release_compiled`] frees.
unsafe extern "C" fn find_compiled(
    key: *const Key,
    _flags: u32,
    result: *mut *mut c_void,
    length: *mut u32,
) -> CUresult {
    guarded(|| {
        // SAFETY: it came from `compiled_key`, or is null.
        let key = unsafe { key.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let cached = || super::folder().and_then(|folder| super::find(&folder, key));
        let found = match (run_ptx_only(), key.kind) {
            // What is kept is for devices of NVIDIA's.
            (true, MACHINE_CODE) => TEXTS.machine_code(key.program),
            (true, PTX) => cached().inspect(|text| TEXTS.remember(key.program, text)),
            _ => cached(),
        };
        let found = found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
        // SAFETY: there is room for the length, or null.
        unsafe { write_out(length, found.len() as u32) }?;
        let memory = memory_with(&found)?;
        // SAFETY: there is room for the result, or null; memory that nobody gets is freed.
        unsafe { write_out(result, memory).inspect_err(|_| libc::free(memory)) }
    })
}

unsafe extern "C" fn keep_compiled(key: *const Key, _flags: u32, result: *const u8, length: u32) -> CUresult {
    guarded(|| {
        // SAFETY: it came from `compiled_key`, or is null.
        let key = unsafe { key.as_ref() }.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if result.is_null() {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: the caller gives as many bytes as it says.
        let result = unsafe { core::slice::from_raw_parts(result, length as usize) };
        if run_ptx_only() && key.kind == PTX {
            TEXTS.remember(key.program, result);
        }
        let folder = super::folder().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        super::keep(&folder, key, result).map_err(|error| {
            debug!("compiled code is not cached: {error}");
            CUresult::CUDA_ERROR_OPERATING_SYSTEM
        })
    })
}

unsafe extern "C" fn release_compiled(result: *mut c_void) -> CUresult {
    // SAFETY: it came from `find_compiled`, or is null.
    unsafe { libc::free(result) };
    CUresult::CUDA_SUCCESS
}

/// Texts that are remembered: more than threads of a program compile at a time.
const MAX_TEXTS: usize = 64;
/// Bytes of all of them.
const MAX_BYTES: usize = 64 << 20;

/// The latest texts by their programs, the oldest first.
#[derive(Debug)]
pub struct Texts(Mutex<rank::CompiledTexts, VecDeque<(Hash, String)>>);

impl Texts {
    /// None.
    pub const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Remembers what a compiler made of a program, if it is PTX.
    pub fn remember(&self, program: Hash, result: &[u8]) {
        let end = result.iter().position(|byte| *byte == 0).unwrap_or(result.len());
        let Ok(text) = core::str::from_utf8(&result[..end]) else { return };
        if !text.contains(".version") || text.len() > MAX_BYTES {
            return;
        }
        let mut texts = self.0.lock();
        texts.retain(|(known, _)| *known != program);
        texts.push_back((program, text.to_owned()));
        let bytes =
            |texts: &VecDeque<(Hash, String)>| texts.iter().map(|(_, text)| text.len()).sum::<usize>();
        while texts.len() > MAX_TEXTS || bytes(&texts) > MAX_BYTES {
            texts.pop_front();
        }
    }

    /// The program's text in the form of machine code.
    pub fn machine_code(&self, program: Hash) -> Option<Vec<u8>> {
        let texts = self.0.lock();
        let (_, text) = texts.iter().find(|(known, _)| *known == program)?;
        Some(container(core::slice::from_ref(text)))
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use causeway_api::image::texts::texts_of;

    use super::*;

    #[test]
    fn what_is_not_there_is_refused() {
        let (mut key, mut result, mut length) = (ptr::null_mut(), ptr::null_mut(), 0);
        let word = c"word".as_ptr();
        // SAFETY: results have room; what is null is what is tried.
        unsafe {
            assert_ne!(
                compiled_key(&mut key, 1, ptr::null(), 1, word, word, word, 0, 0),
                CUresult::CUDA_SUCCESS
            );
            assert_ne!(
                compiled_key(&mut key, 1, b"x".as_ptr(), 1, word, ptr::null(), word, 0, 0),
                CUresult::CUDA_SUCCESS
            );
            assert!(key.is_null());
            let found = find_compiled(ptr::null(), 0, &mut result, &mut length);
            assert_eq!((found, result), (CUresult::CUDA_ERROR_INVALID_VALUE, ptr::null_mut()));
            let cached = keep_compiled(ptr::null(), 0, b"x".as_ptr(), 1);
            assert_eq!(cached, CUresult::CUDA_ERROR_INVALID_VALUE);
            assert_eq!(release_compiled_key(ptr::null_mut()), CUresult::CUDA_SUCCESS);
            assert_eq!(release_compiled(ptr::null_mut()), CUresult::CUDA_SUCCESS);
        }
    }

    #[test]
    fn the_text_of_a_program_is_its_machine_code() {
        let texts = Texts::new();
        let program = |number: usize| blake3::hash(&number.to_le_bytes());
        assert_eq!(texts.machine_code(program(0)), None);
        texts.remember(program(0), b"no PTX");
        texts.remember(program(0), b".version \xff");
        assert_eq!(texts.machine_code(program(0)), None);
        for number in 0..MAX_TEXTS + 2 {
            texts.remember(program(number), format!(".version 9.5 // {number}\0rest").as_bytes());
        }
        texts.remember(program(3), b".version 9.5 // again");
        let text = |number| texts.machine_code(program(number)).map(|file| texts_of(&file));
        assert_eq!((text(0), text(1)), (None, None), "the oldest are forgotten");
        assert_eq!(text(2), Some(Some(Ok(vec![".version 9.5 // 2".to_owned()]))));
        assert_eq!(text(3), Some(Some(Ok(vec![".version 9.5 // again".to_owned()]))));
    }
}
