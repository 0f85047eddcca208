#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| causeway_comm::fuzzing::ranks(bytes));
