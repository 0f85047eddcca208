//! Where do bounce buffers come from?

use core::ptr::NonNull;
use parking_lot::Mutex;
use std::sync::OnceLock;

/// Bytes of free buffers that are kept for the next ones: a row of pieces of the usual size.
const MOST_KEPT: usize = 32 << 20;

#[derive(Default)]
struct Pool {
    free: Vec<Vec<u8>>,
    bytes: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool { free: Vec::new(), bytes: 0 });

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

fn give_back(buffer: Vec<u8>) {
    let mut pool = POOL.lock();
    if pool.bytes + buffer.len() <= MOST_KEPT {
        pool.bytes += buffer.len();
        pool.free.push(buffer);
    }
}

/// Memory for a transfer that may have to wait for others, taken from the pool when it is first asked for.
#[derive(Default)]
pub struct Bounce(OnceLock<Taken>);

struct Taken {
    buffer: Vec<u8>,
    start: NonNull<u8>,
}

// SAFETY: `start` points into `buffer`, which moves with it and is read only once nobody writes any more.
unsafe impl Send for Taken {}
// SAFETY: as above; sharing gives out the address alone.
unsafe impl Sync for Taken {}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back(core::mem::take(&mut self.buffer));
    }
}

impl Bounce {
    /// The first of at least `length` bytes, the same at every call.
    pub fn memory(&self, length: usize) -> *mut u8 {
        let taken = self.0.get_or_init(|| {
            let mut buffer = take(length);
            let start = NonNull::new(buffer.as_mut_ptr()).unwrap_or(NonNull::dangling());
            Taken { buffer, start }
        });
        taken.start.as_ptr()
    }

    /// Whether memory was asked for.
    pub fn is_used(&self) -> bool {
        self.0.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_taken_once_and_used_again() {
        let length = 12_345;
        let bounce = Bounce::default();
        assert!(!bounce.is_used());
        let memory = bounce.memory(length);
        assert_eq!(memory, bounce.memory(length));
        // SAFETY: the buffer is ours and has as many bytes.
        unsafe { memory.write_bytes(7, length) };
        let other = Bounce::default();
        assert_ne!(memory, other.memory(length));
        drop(bounce);
        let again = Bounce::default();
        assert_eq!(again.memory(length), memory);
    }

    #[test]
    fn what_is_too_much_is_not_kept() {
        let bounce = Bounce::default();
        bounce.memory(MOST_KEPT + 1);
        drop(bounce);
        assert!(POOL.lock().bytes <= MOST_KEPT);
    }
}
