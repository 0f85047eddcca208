//! Numbers that nothing else of its sort in the process has had.

use std::sync::atomic::{AtomicU64, Ordering};

/// The next number of each sort.
struct Numbers {
    messages: AtomicU64,
    contexts: AtomicU64,
    streams: AtomicU64,
    memory: AtomicU64,
}

static NUMBERS: Numbers = Numbers {
    messages: AtomicU64::new(1),
    contexts: AtomicU64::new(1),
    streams: AtomicU64::new(1),
    memory: AtomicU64::new(1),
};

fn next(number: &AtomicU64) -> u64 {
    number.fetch_add(1, Ordering::Relaxed)
}

/// A number that no transfer, watch or offer of any session has had.
pub fn fresh() -> u64 {
    next(&NUMBERS.messages)
}

/// What a program asks for as a context's id.
pub fn of_context() -> u64 {
    next(&NUMBERS.contexts)
}

/// What a program asks for as a stream's id.
pub fn of_stream() -> u64 {
    next(&NUMBERS.streams)
}

/// What a program asks for as the id of a piece of CUDA's memory, the device's or the host's.
pub fn of_memory() -> u64 {
    next(&NUMBERS.memory)
}
