//! Registration of pinned memory with the RDMA devices of sessions, for zero-copy reads and writes.
//!
//! Registering pins pages once more, in the kernel, which takes time for each of them and counts against the
//! limit of locked memory: so it is done when a range has been copied from or to often enough to be worth it,
//! and where the system refuses, copies of the range go on through staging.

use crate::locks::{Mutex, rank};
use crate::log::info;
use crate::model::host_memory::{self, Range};
use crate::model::region::HostRegion;
use crate::remote::session::{self, Session};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// Registering a page takes about as long as copying it once (`docs/src/reference/verbs-model.md`), so half
/// of a range is enough.
const WORTH: usize = 2;

/// What a session's card knows of a range.
enum State {
    /// Nothing: so many bytes have been copied.
    Unknown(usize),
    Known,
    Refused,
}

/// By the range's number and by server.
type States = HashMap<(u64, usize), State>;

/// Memory that network cards know.
struct Registered {
    ranges: Mutex<rank::RegisteredMemory, Option<States>>,
    /// Whether anything was ever entered there.
    is_used: AtomicBool,
}

static REGISTERED: Registered = Registered { ranges: Mutex::new(None), is_used: AtomicBool::new(false) };

/// Whether a copy of so many bytes makes it worth while to register memory of `size` bytes, of which `before`
/// have been copied.
fn is_worth_while(size: usize, before: usize, bytes: usize) -> bool {
    before.saturating_add(bytes) >= size / WORTH
}

/// A copy from or to this memory is about to go over a session: its card had better know it, if the memory
/// has no gaps.
pub fn note(session: &Session, memory: &HostRegion) {
    if !session.link().is_one_sided() || !memory.is_contiguous() {
        return;
    }
    let (start, end) = memory.span();
    // A pool gives its memory out again, in other pieces.
    let is_whole = |range: &Range| end <= range.base + range.size && !range.is_pooled;
    let Some(range) = host_memory::find(start).filter(is_whole) else { return };
    let mut ranges = REGISTERED.ranges.lock();
    REGISTERED.is_used.store(true, Ordering::Release);
    let ranges = ranges.get_or_insert_default();
    let state = ranges.entry((range.id, session.server())).or_insert(State::Unknown(0));
    let State::Unknown(before) = *state else { return };
    if !is_worth_while(range.size, before, end - start) {
        *state = State::Unknown(before + (end - start));
        return;
    }
    // SAFETY: the range is forgotten before it is unmapped or released to the program; while a copy writes
    // to it CUDA forbids the program to rely on its bytes.
    match unsafe { session.link().register(range.base as *mut u8, range.size) } {
        Ok(()) => *state = State::Known,
        Err(cause) => {
            info!("{} bytes of pinned memory are copied through staging: {cause}", range.size);
            *state = State::Refused;
        }
    }
}

/// The range is about to end, and nothing is on its way from or to it: cards do not reach it any more.
pub fn forget(range: &Range) {
    if !REGISTERED.is_used.load(Ordering::Acquire) {
        return;
    }
    let mut ranges = REGISTERED.ranges.lock();
    let Some(ranges) = ranges.as_mut() else { return };
    for session in session::all() {
        if let Some(State::Known) = ranges.remove(&(range.id, session.server())) {
            session.link().forget(range.base as *mut u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_registered_once_it_pays_off() {
        assert!(is_worth_while(1 << 20, 0, 1 << 20));
        assert!(!is_worth_while(1 << 30, 0, 1 << 20));
        assert!(is_worth_while(1 << 30, 1 << 29, 1) && is_worth_while(1, usize::MAX, 1));
    }
}
