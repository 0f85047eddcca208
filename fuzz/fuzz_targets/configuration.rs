#![no_main]

#[path = "../src/configuration.rs"]
mod configuration;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| configuration::configuration(bytes));
