//! Options of the compiler and the linker: from what a client sent to what the driver takes, and back.

use causeway_api::sys::{CUjit_option, CUresult};
use causeway_api::types::{JitOptions, JitReport, is_plain_jit_option};
use causeway_gpu::CuResult;
use core::ffi::{CStr, c_char, c_void};
use std::ffi::CString;

/// Room for the error log when the program has none of its own, for the server's log.
const MIN_ERROR_BYTES: u32 = 4096;
/// No log is longer, whatever the client asks for.
const MAX_LOG_BYTES: u32 = 1 << 20;

/// A list of options as the driver takes it, with the room where the driver answers.
///
/// A linker writes to that room until it is destroyed: this must live as long.
pub(crate) struct Options {
    names: Vec<CUjit_option>,
    values: Vec<*mut c_void>,
    information: Box<[u8]>,
    errors: Box<[u8]>,
    /// What the addresses of the symbols' names in `values` point to.
    _symbols: Symbols,
    /// Where the report goes, 0 for nowhere.
    pub(crate) report: u64,
}

// SAFETY: the addresses are those of memory that the value itself owns.
unsafe impl Send for Options {}

struct Symbols {
    _texts: Vec<CString>,
    names: Vec<*const c_char>,
    addresses: Vec<*mut c_void>,
}

impl Options {
    /// What may go with one input of a linker: what the compiler is to do. Its logs are those of the linker.
    pub(crate) fn of_input(options: &JitOptions) -> CuResult<Self> {
        let plain = JitOptions { values: options.values.clone(), ..JitOptions::default() };
        let mut list = Self::new(&plain)?;
        let from = list.names.len() - plain.values.len();
        list.names.drain(..from);
        list.values.drain(..from);
        Ok(list)
    }

    pub(crate) fn new(options: &JitOptions) -> CuResult<Self> {
        if options.values.iter().any(|(option, _)| !is_plain_jit_option(*option)) {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let capacity = |bytes: u32| vec![0_u8; bytes.min(MAX_LOG_BYTES) as usize].into_boxed_slice();
        let mut information = capacity(options.information_bytes);
        let mut errors = capacity(options.error_bytes.max(MIN_ERROR_BYTES));
        let texts = options.symbols.iter().map(|(name, _)| CString::new(name.as_str()));
        let texts = texts.collect::<Result<Vec<_>, _>>().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
        let mut symbols = Symbols {
            names: texts.iter().map(|text| text.as_ptr()).collect(),
            addresses: options.symbols.iter().map(|(_, address)| *address as *mut c_void).collect(),
            _texts: texts,
        };
        let mut list: Vec<(CUjit_option, *mut c_void)> = vec![
            (CUjit_option::CU_JIT_ERROR_LOG_BUFFER, errors.as_mut_ptr().cast()),
            (CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, errors.len() as *mut c_void),
        ];
        if !information.is_empty() {
            list.push((CUjit_option::CU_JIT_INFO_LOG_BUFFER, information.as_mut_ptr().cast()));
            list.push((CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, information.len() as *mut c_void));
        }
        if options.report != 0 {
            list.push((CUjit_option::CU_JIT_WALL_TIME, core::ptr::null_mut()));
        }
        if !symbols.names.is_empty() {
            list.push((CUjit_option::CU_JIT_GLOBAL_SYMBOL_NAMES, symbols.names.as_mut_ptr().cast()));
            list.push((CUjit_option::CU_JIT_GLOBAL_SYMBOL_ADDRESSES, symbols.addresses.as_mut_ptr().cast()));
            list.push((CUjit_option::CU_JIT_GLOBAL_SYMBOL_COUNT, symbols.names.len() as *mut c_void));
        }
        list.extend(
            options.values.iter().map(|(option, value)| (CUjit_option(*option), *value as *mut c_void)),
        );
        let (names, values) = list.into_iter().unzip();
        Ok(Self { names, values, information, errors, _symbols: symbols, report: options.report })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.names.len() as u32
    }

    /// Their names.
    pub(crate) fn names(&self) -> *const CUjit_option {
        self.names.as_ptr()
    }

    /// Their values, some of which the driver changes.
    pub(crate) fn values(&mut self) -> *mut *mut c_void {
        self.values.as_mut_ptr()
    }

    /// What the driver has answered so far.
    pub(crate) fn answers(&self) -> JitReport {
        let value = |wanted| {
            let index = self.names.iter().position(|name| *name == wanted);
            index.map_or(0, |index| self.values[index] as usize as u32)
        };
        JitReport {
            information: text(&self.information),
            errors: text(&self.errors),
            milliseconds: f32::from_bits(value(CUjit_option::CU_JIT_WALL_TIME)),
            threads_per_block: value(CUjit_option::CU_JIT_THREADS_PER_BLOCK),
        }
    }
}

/// Text up to its first NUL.
fn text(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes).unwrap_or_default().to_string_lossy().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drivers_list_has_every_option_and_room_for_the_answers() {
        let asked = JitOptions {
            values: vec![(CUjit_option::CU_JIT_MAX_REGISTERS.0, 32)],
            symbols: vec![("symbol".into(), 0x1000)],
            information_bytes: 100,
            error_bytes: u32::MAX,
            report: 1,
        };
        let mut options = Options::new(&asked).unwrap();
        assert_eq!(options.count(), 9);
        let index = |wanted| options.names.iter().position(|name| *name == wanted).unwrap();
        let wall = index(CUjit_option::CU_JIT_WALL_TIME);
        assert_eq!(options.values[index(CUjit_option::CU_JIT_MAX_REGISTERS)] as usize, 32);
        options.values[wall] = 1.5_f32.to_bits() as usize as *mut c_void;
        options.information[..4].copy_from_slice(b"info");
        let answers = options.answers();
        assert_eq!((answers.information.as_str(), answers.milliseconds), ("info", 1.5));
        assert_eq!(options.errors.len(), MAX_LOG_BYTES as usize);
    }

    #[test]
    fn an_input_of_a_linker_has_no_logs() {
        let values = vec![(CUjit_option::CU_JIT_MAX_REGISTERS.0, 32)];
        let options = Options::of_input(&JitOptions { values, report: 3, ..JitOptions::default() }).unwrap();
        assert_eq!(options.names, [CUjit_option::CU_JIT_MAX_REGISTERS]);
        assert_eq!((options.count(), options.values[0] as usize), (1, 32));
        assert_eq!(Options::of_input(&JitOptions::default()).unwrap().count(), 0);
    }

    #[test]
    fn options_that_are_addresses_are_refused() {
        for option in [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_GLOBAL_SYMBOL_NAMES] {
            let asked = JitOptions { values: vec![(option.0, 0x7000)], ..JitOptions::default() };
            assert!(Options::new(&asked).is_err());
        }
    }
}
