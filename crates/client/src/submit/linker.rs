//! Linkers that the program has made, with their results, and the options of compiler and linker: what
//! travels, and where the answers go.

use core::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use causeway_api::calls;
use causeway_api::handle::{Context, Handle, LinkState};
use causeway_api::sys::{CUjit_option, CUjitInputType, CUlinkState, CUresult};
use causeway_api::types::{JitOptions, JitReport, is_plain_jit_option};

use crate::locks::{Mutex, rank};
use crate::log::refuse_use;
use crate::model::context;
use crate::model::handles::{self, RawHandle as _};
use crate::remote::image::pending_images::send_inline;
use crate::remote::session;
use crate::submit::send;

/// How much of a result is fetched at once, in bytes.
const PIECE: usize = 8 << 20;

struct State {
    handle: Handle<LinkState>,
    context: Handle<Context>,
    /// The options of the linker, by which it answers.
    jit: Mutex<rank::Linker, Jit>,
    /// The linked image. It is put here once and not moved, since the program has its address.
    result: Mutex<rank::LinkerResult, Option<Box<[u8]>>>,
}

impl handles::Object for State {
    type Kind = LinkState;
}

/// Makes a linker in the current context.
pub fn create(jit: Jit) -> Result<CUlinkState, CUresult> {
    let context = context::current()?;
    let state = handles::create::<LinkState>();
    send::call_in(context, &calls::link_create { state, options: jit.options.clone() })?;
    let linker = State { handle: state, context, jit: Mutex::new(jit), result: Mutex::new(None) };
    handles::insert(state, Arc::new(linker));
    Ok(state.as_raw())
}

/// Adds something to be linked.
pub fn add(
    raw: CUlinkState,
    kind: CUjitInputType,
    name: &str,
    jit: &Jit,
    bytes: &[u8],
) -> Result<(), CUresult> {
    let state = handles::get::<State>(Handle::from_raw(raw))?;
    if jit.options.report != 0 || jit.options.values.iter().any(|(option, _)| is_of_linker(*option)) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let data = send_inline(session::of(state.context)?, bytes)?;
    let options = jit.options.clone();
    let request = calls::link_add { state: state.handle, kind, name, options, data };
    send::call_in(state.context, &request).inspect_err(|_| state.write_results())
}

/// Whether an option is one of a whole linker, and not of what is added to it.
fn is_of_linker(option: u32) -> bool {
    [CUjit_option::CU_JIT_TARGET_FROM_CUCONTEXT, CUjit_option::CU_JIT_TARGET].contains(&CUjit_option(option))
}

/// Links everything; address and size of the result, which lives as long as the linker.
pub fn complete(raw: CUlinkState) -> Result<(*const u8, usize), CUresult> {
    let state = handles::get::<State>(Handle::from_raw(raw))?;
    let mut result = state.result.lock();
    if let Some(image) = result.as_ref() {
        return Ok((image.as_ptr(), image.len()));
    }
    let linked = send::call_in(state.context, &calls::link_complete { state: state.handle });
    state.write_results();
    let size = linked?;
    let mut image = Vec::with_capacity(size);
    while image.len() < size {
        let (start, length) = (image.len(), PIECE.min(size - image.len()));
        let request = calls::link_result { state: state.handle, start, length };
        let piece = send::call_in(state.context, &request)?;
        if piece.len() != length {
            return Err(CUresult::CUDA_ERROR_UNKNOWN);
        }
        image.extend(piece);
    }
    let image = result.insert(image.into_boxed_slice());
    Ok((image.as_ptr(), image.len()))
}

/// Destroys a linker and its result.
pub fn destroy(raw: CUlinkState) -> Result<(), CUresult> {
    let state = handles::remove::<State>(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(state.handle);
    send::post_in(state.context, &calls::link_destroy { state: state.handle })
}

impl State {
    /// Gives the program what the linker has said.
    fn write_results(&self) {
        // SAFETY: the manual demands that the options of a linker live as long as the linker.
        unsafe { self.jit.lock().write_results() };
    }
}

/// The options of one call.
pub struct Jit {
    /// What travels.
    pub options: JitOptions,
    outputs: Outputs,
}

/// Where the program wants its answers.
struct Outputs {
    values: *mut *mut c_void,
    wall_time: Option<usize>,
    threads: Option<usize>,
    information: Option<Log>,
    errors: Option<Log>,
}

// SAFETY: the program gave the addresses to be written to by whichever of its threads makes the next call.
unsafe impl Send for Jit {}

/// A buffer of the program for a log.
#[derive(Clone, Copy)]
struct Log {
    address: *mut u8,
    bytes: usize,
    /// Which of the values is the log's size, which is an answer too.
    size: usize,
}

impl Jit {
    /// Reads a list of options.
    ///
    /// # Safety
    /// `names` and `values` are null or lists of `count` entries with the meaning that `cuda.h` gives them.
    /// The values and the logs that they name stay where they are while the result is used.
    pub unsafe fn read(
        count: u32,
        names: *const CUjit_option,
        values: *mut *mut c_void,
    ) -> Result<Self, CUresult> {
        if count > 0 && (names.is_null() || values.is_null()) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        // SAFETY: within the lists.
        let pairs: Vec<(CUjit_option, *mut c_void)> = (0..count as usize)
            .map(|index| unsafe { (names.add(index).read(), values.add(index).read()) })
            .collect();
        let index = |key| pairs.iter().position(|(option, _)| *option == key);
        let value = |key| index(key).map(|index| pairs[index].1);
        let log = |buffer, size| {
            let (address, size) = (value(buffer)?.cast::<u8>(), index(size)?);
            Some(Log { address, bytes: if address.is_null() { 0 } else { pairs[size].1 as usize }, size })
        };
        let outputs = Outputs {
            values,
            wall_time: index(CUjit_option::CU_JIT_WALL_TIME),
            threads: index(CUjit_option::CU_JIT_THREADS_PER_BLOCK),
            information: log(
                CUjit_option::CU_JIT_INFO_LOG_BUFFER,
                CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            ),
            errors: log(
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            ),
        };
        let mut options = JitOptions::default();
        for (option, value) in &pairs {
            match *option {
                plain if is_plain_jit_option(plain.0) => options.values.push((plain.0, *value as u64)),
                CUjit_option::CU_JIT_WALL_TIME
                | CUjit_option::CU_JIT_INFO_LOG_BUFFER
                | CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES
                | CUjit_option::CU_JIT_ERROR_LOG_BUFFER
                | CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
                | CUjit_option::CU_JIT_GLOBAL_SYMBOL_NAMES
                | CUjit_option::CU_JIT_GLOBAL_SYMBOL_ADDRESSES
                | CUjit_option::CU_JIT_GLOBAL_SYMBOL_COUNT => {}
                CUjit_option::CU_JIT_REFERENCED_KERNEL_NAMES
                | CUjit_option::CU_JIT_REFERENCED_KERNEL_COUNT
                | CUjit_option::CU_JIT_REFERENCED_VARIABLE_NAMES
                | CUjit_option::CU_JIT_REFERENCED_VARIABLE_COUNT => {
                    return Err(refuse_use!(
                        "option {} of the compiler, which CUDA no longer supports",
                        option.0
                    ));
                }
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            }
        }
        if let Some(count) = value(CUjit_option::CU_JIT_GLOBAL_SYMBOL_COUNT) {
            let names = value(CUjit_option::CU_JIT_GLOBAL_SYMBOL_NAMES);
            let addresses = value(CUjit_option::CU_JIT_GLOBAL_SYMBOL_ADDRESSES);
            let (Some(names), Some(addresses)) = (names, addresses) else {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            };
            // SAFETY: lists of that many names and addresses, as the options say.
            options.symbols = unsafe { symbols(names.cast(), addresses.cast(), count as usize) }?;
        }
        let capacity = |log: &Option<Log>| log.map_or(0, |log| u32::try_from(log.bytes).unwrap_or(u32::MAX));
        options.information_bytes = capacity(&outputs.information);
        options.error_bytes = capacity(&outputs.errors);
        if outputs.are_requested() {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            options.report = NEXT.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Self { options, outputs })
    }

    /// Asks the server what the compiler or the linker said, and gives it to the program, if that wants to
    /// know.
    ///
    /// # Safety
    /// The values and logs of the options are still where they were.
    pub unsafe fn write_results(&self) {
        if self.options.report == 0 {
            return;
        }
        let request = calls::jit_report { report: self.options.report };
        // Without a server there is nothing to tell, and the call that this belongs to has failed already.
        let report = send::call_in(context::current_or_none(), &request).unwrap_or_default();
        // SAFETY: the program keeps the options' values and logs where they are until the linker is
        // destroyed.
        unsafe { self.outputs.write(&report) };
    }
}

impl Outputs {
    fn are_requested(&self) -> bool {
        self.wall_time.is_some()
            || self.threads.is_some()
            || self.information.is_some()
            || self.errors.is_some()
    }

    /// # Safety
    /// The values and logs of the options are still where they were.
    unsafe fn write(&self, report: &JitReport) {
        // SAFETY: within the program's lists; what is written to a log fits with its NUL.
        unsafe {
            if let Some(index) = self.wall_time {
                self.values.add(index).cast::<f32>().write(report.milliseconds);
            }
            if let Some(index) = self.threads
                && report.threads_per_block != 0
            {
                self.values.add(index).write(report.threads_per_block as usize as *mut c_void);
            }
            for (log, text) in [(self.information, &report.information), (self.errors, &report.errors)] {
                let Some(log) = log else { continue };
                let written = text.len().min(log.bytes.saturating_sub(1));
                if log.bytes > 0 {
                    log.address.copy_from(text.as_ptr(), written);
                    log.address.add(written).write(0);
                }
                self.values.add(log.size).write(written as *mut c_void);
            }
        }
    }
}

/// # Safety
/// Both are lists of `count` entries; the names are NUL-terminated texts.
unsafe fn symbols(
    names: *const *const c_char,
    addresses: *const u64,
    count: usize,
) -> Result<Vec<(String, u64)>, CUresult> {
    if count > 0 && (names.is_null() || addresses.is_null()) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    (0..count)
        .map(|index| {
            // SAFETY: within the lists.
            let (name, address) = unsafe { (names.add(index).read(), addresses.add(index).read()) };
            if name.is_null() {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            // SAFETY: not null, so NUL-terminated text, which the program passes until the call returns.
            Ok((unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(), address))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(names: &[CUjit_option], values: &mut [*mut c_void]) -> Result<Jit, CUresult> {
        // SAFETY: lists of equal length that outlive what the tests do with the result.
        unsafe { Jit::read(names.len() as u32, names.as_ptr(), values.as_mut_ptr()) }
    }

    #[test]
    fn answers_go_where_the_program_wants_them() {
        let mut log = [b'x'; 8];
        let names = [
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
            CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            CUjit_option::CU_JIT_WALL_TIME,
            CUjit_option::CU_JIT_MAX_REGISTERS,
        ];
        let mut values =
            [log.as_mut_ptr().cast(), 8 as *mut c_void, core::ptr::null_mut(), 32 as *mut c_void];
        let jit = read(&names, &mut values).unwrap();
        assert_eq!(jit.options.values, [(CUjit_option::CU_JIT_MAX_REGISTERS.0, 32)]);
        assert_eq!((jit.options.error_bytes, jit.options.information_bytes), (8, 0));
        assert_ne!(jit.options.report, 0);
        let report = JitReport { errors: "much too long".into(), milliseconds: 2.5, ..JitReport::default() };
        // SAFETY: the lists and the log are still there.
        unsafe { jit.outputs.write(&report) };
        assert_eq!(&log, b"much to\0");
        assert_eq!(values[1] as usize, 7);
        assert_eq!(f32::from_bits(values[2] as usize as u32), 2.5);
    }

    #[test]
    fn unknown_options_and_missing_lists_are_refused() {
        assert!(read(&[CUjit_option(77)], &mut [core::ptr::null_mut()]).is_err());
        assert!(
            read(&[CUjit_option::CU_JIT_GLOBAL_SYMBOL_COUNT], &mut [core::ptr::without_provenance_mut(1)])
                .is_err()
        );
        // SAFETY: null lists are allowed.
        assert!(unsafe { Jit::read(1, core::ptr::null(), core::ptr::null_mut()) }.is_err());
        assert_eq!(read(&[], &mut []).map(|jit| jit.options.report), Ok(0));
    }
}
