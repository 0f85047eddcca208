#![no_main]

#[path = "../src/fatbin.rs"]
mod fatbin;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fatbin::fatbin(bytes));
