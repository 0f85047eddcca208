//! Bounce buffers and the thread that stores them. Few bytes are stored by the thread that finds them
//! unblocked, more by a thread of its own: those that receive must be back for what comes next.

use core::ptr::NonNull;
use std::collections::VecDeque;
use std::io;
use std::thread::JoinHandle;

use causeway_sync::fork::in_background;
use causeway_sync::queue::Receiver;
use causeway_sync::{LazyThread, delays, threads};

use crate::locks::{Mutex, rank};
use crate::log::error;

/// Bytes that are stored in about the time that it takes to wake a thread that may have to wait for a core.
/// While one that receives does, others go on with what comes, and the sooner a copy is in place the fewer
/// bytes of the next one come too early.
const AT_ONCE: usize = 1 << 20;

/// Puts the bytes of a transfer in place, and says that it has finished.
pub struct Store {
    /// How many bytes.
    pub bytes: usize,
    /// Does it, and gives those whose turn has come by that.
    pub run: Box<dyn FnOnce() -> Vec<Store> + Send>,
}

static STORES: LazyThread<Store> = LazyThread::new();

fn start(queue: Receiver<Store>) -> io::Result<JoinHandle<()>> {
    threads::spawn("store", move || {
        while let Some(store) = queue.receive() {
            delays::inject();
            let _work = in_background();
            carry_out((store.run)());
        }
    })
}

/// Forgets the thread in a forked child.
pub fn forget_thread() {
    STORES.forget();
}

/// Stores these, and those whose turn comes by that, at once or soon. Where no thread could be started, the
/// calling one does it.
pub fn carry_out(stores: impl IntoIterator<Item = Store>) {
    let mut stores: VecDeque<_> = stores.into_iter().collect();
    while let Some(store) = stores.pop_front() {
        let refused = if store.bytes <= AT_ONCE {
            Some(store)
        } else {
            if let Err(cause) = STORES.ensure(start) {
                error!("cannot start the thread for copies that arrive early, so others store them: {cause}");
            }
            STORES.send(store).err()
        };
        if let Some(store) = refused {
            delays::inject();
            stores.extend((store.run)());
        }
    }
}

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
// SAFETY: a shared reference gives out the address alone.
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
    use crossbeam_channel::{Sender, bounded};

    use super::*;

    #[test]
    fn long_chain_of_stores_runs_in_order_without_recursion() {
        fn row(left: usize, done: Sender<()>) -> Store {
            let run = Box::new(move || {
                if left == 0 {
                    done.send(()).unwrap();
                    return Vec::new();
                }
                vec![row(left - 1, done)]
            });
            Store { bytes: if left % 10_000 == 1 { AT_ONCE + 1 } else { 4 }, run }
        }
        let (done, ended) = bounded(1);
        carry_out([row(100_000, done)]);
        ended.recv().unwrap();
    }

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
