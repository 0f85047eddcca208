#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| causeway_server::fuzzing::state(bytes));
