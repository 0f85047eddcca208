//! Options of the compiler and the linker, as a program passes them: what travels, and where the answers go.

use crate::log::refuse_use;
use crate::model::context;
use crate::submit::send;
use causeway_api::calls;
use causeway_api::sys::{CUjit_option, CUresult};
use causeway_api::types::{JitOptions, JitReport, is_plain_jit_option};
use core::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

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
                    return Err(refuse_use!("option {} of the compiler, which CUDA has withdrawn", option.0));
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
        // SAFETY: as this function demands.
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
            // SAFETY: not null, so text as this function demands.
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
