//! Bounce buffer pool.

use crate::locks::{Mutex, rank};
use core::ptr::NonNull;

/// Bytes of free buffers that are kept for the next ones: a row of chunks of the usual size.
const MAX_CACHED: usize = 32 << 20;

/// As many of them are kept at most: all are looked at for the next one.
const MAX_BUFFERS: usize = 256;

#[derive(Default)]
struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
}

static POOL: Mutex<rank::BounceBuffers, Pool> = Mutex::new(Pool { free: Vec::new(), bytes: 0 });

/// A buffer of at least `length` bytes, whatever they hold.
fn take(length: usize) -> Vec<u8> {
    let mut pool = POOL.lock();
    let fitting = pool.free.iter().enumerate().filter(|(_, buffer)| buffer.len() >= length);
    let best = fitting.min_by_key(|(_, buffer)| buffer.len()).map(|(at, _)| at);
    match best {
        Some(at) => {
            let buffer = pool.free.swap_remove(at);
            pool.bytes -= buffer.len();
            buffer
        }
        None => {
            drop(pool);
            vec![0; length]
        }
    }
}

fn release(buffer: Vec<u8>) {
    let mut pool = POOL.lock();
    if pool.bytes + buffer.len() <= MAX_CACHED && pool.free.len() < MAX_BUFFERS {
        pool.bytes += buffer.len();
        pool.free.push(buffer);
    }
}

/// Memory of the pool in which a transfer waits for others.
pub struct Bounce {
    buffer: Vec<u8>,
    start: NonNull<u8>,
}

// SAFETY: `start` points into `buffer`, which moves with it.
unsafe impl Send for Bounce {}
// SAFETY: as above; sharing gives out the address alone.
unsafe impl Sync for Bounce {}

impl Drop for Bounce {
    fn drop(&mut self) {
        release(core::mem::take(&mut self.buffer));
    }
}

impl Bounce {
    /// Memory of at least `length` bytes, whatever they hold.
    pub fn of(length: usize) -> Self {
        let mut buffer = take(length);
        let start = NonNull::new(buffer.as_mut_ptr()).unwrap_or(NonNull::dangling());
        Self { buffer, start }
    }

    /// Its first byte.
    pub fn memory(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_and_never_twice_at_a_time() {
        let length = 12_345;
        let bounce = Bounce::of(length);
        let memory = bounce.memory();
        // SAFETY: the buffer is ours and has as many bytes.
        unsafe { memory.write_bytes(7, length) };
        assert_ne!(memory, Bounce::of(length).memory());
        drop(bounce);
        let buffers = [(); 2].map(|()| Bounce::of(length));
        assert!(buffers.iter().any(|again| again.memory() == memory));
    }

    #[test]
    fn what_is_too_much_is_not_kept() {
        drop(Bounce::of(MAX_CACHED + 1));
        assert!(POOL.lock().bytes <= MAX_CACHED);
    }
}
