//! JIT options of the compiler and the linker, and their report.

use causeway_wire::record;

/// What a program asks of the compiler or the linker, as far as another machine can do it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct JitOptions {
    /// Pairs of `CUjit_option` and its value, for options whose value is a number.
    pub values: Vec<(u32, u64)>,
    /// Device addresses by the names of the symbols that they stand for (`CU_JIT_GLOBAL_SYMBOL_NAMES`).
    pub symbols: Vec<(String, u64)>,
    /// Room for the information log, in bytes; 0 when the program wants none.
    pub information_bytes: u32,
    /// Room for the error log, in bytes; 0 when the program wants none.
    pub error_bytes: u32,
    /// Names what is to be kept for `jit_report`; 0 when nothing is.
    pub report: u64,
}

record!(JitOptions { values, symbols, information_bytes, error_bytes, report });

/// Whether the value of a `CUjit_option` is a number that means the same on every machine: not an address,
/// and not the size of something at one.
pub fn is_plain_jit_option(option: u32) -> bool {
    matches!(option, 0 | 1 | 7..=16 | 20..=24 | 29..=33)
}

/// What the compiler or the linker said.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct JitReport {
    /// The information log.
    pub information: String,
    /// The error log.
    pub errors: String,
    /// How long it took (`CU_JIT_WALL_TIME`), in milliseconds.
    pub milliseconds: f32,
    /// Threads of a block that the code was really compiled for (`CU_JIT_THREADS_PER_BLOCK`).
    pub threads_per_block: u32,
}

record!(JitReport { information, errors, milliseconds, threads_per_block });
