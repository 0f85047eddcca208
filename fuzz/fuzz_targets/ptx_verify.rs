#![no_main]

#[path = "../src/ptx/mod.rs"]
mod ptx;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ptx::verify(bytes));
