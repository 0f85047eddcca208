//! Requests: what NCCL tests until it is done. Each is a slot of its communicator, and its address is NCCL's handle.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::ResultCode;

/// Requests of a communicator at a time. NCCL has at most 32 (`NCCL_NET_MAX_REQUESTS`).
pub const MAX_REQUESTS: usize = 64;

/// States of a request; from [`FAILED`] on there follow NCCL's codes.
const FREE: u32 = 0;
const PENDING: u32 = 1;
const DONE: u32 = 2;
const FAILED: u32 = 16;

/// A request.
#[derive(Debug, Default)]
pub struct Request {
    state: AtomicU32,
    bytes: AtomicU64,
    /// Parts that are still to be carried.
    parts: AtomicU32,
    /// Its memory: the first address, and the one behind it.
    start: AtomicU64,
    end: AtomicU64,
}

impl Request {
    /// Whether it is done: then with how many bytes, and it is free again. With an error it is free as well.
    ///
    /// # Errors
    /// When the communicator has failed.
    pub fn test(&self) -> Result<Option<u64>, ResultCode> {
        // Acquired: what was received is there.
        match self.state.load(Ordering::Acquire) {
            PENDING => Ok(None),
            DONE => {
                let bytes = self.bytes.load(Ordering::Relaxed);
                self.state.store(FREE, Ordering::Release);
                Ok(Some(bytes))
            }
            state => {
                self.state.store(FREE, Ordering::Release);
                Err(ResultCode::from_number(state.wrapping_sub(FAILED)))
            }
        }
    }
}

/// The requests of a communicator.
#[derive(Debug)]
pub(super) struct Requests([Request; MAX_REQUESTS]);

impl Requests {
    pub(super) fn new() -> Self {
        Self(core::array::from_fn(|_| Request::default()))
    }

    /// Takes a free one for memory, if there is one.
    pub(super) fn take(&self, start: u64, bytes: usize) -> Option<(u32, &Request)> {
        let is_free = |request: &Request| {
            request.state.compare_exchange(FREE, PENDING, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let at = self.0.iter().position(is_free)?;
        self.0[at].start.store(start, Ordering::Relaxed);
        self.0[at].end.store(start.saturating_add(bytes as u64), Ordering::Relaxed);
        Some((at as u32, &self.0[at]))
    }

    /// It consists of so many parts, which have so many bytes together.
    pub(super) fn set_parts(&self, at: u32, parts: u32, bytes: u64) {
        self.0[at as usize].parts.store(parts, Ordering::Relaxed);
        self.0[at as usize].bytes.store(bytes, Ordering::Relaxed);
    }

    /// One of its parts is carried. It is done when that was the last.
    pub(super) fn finish_part(&self, at: u32) {
        let request = &self.0[at as usize];
        if request.parts.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.finish(at, request.bytes.load(Ordering::Relaxed));
        }
    }

    /// It is done, with so many bytes. Nothing where it has failed meanwhile.
    pub(super) fn finish(&self, at: u32, bytes: u64) {
        let request = &self.0[at as usize];
        request.bytes.store(bytes, Ordering::Relaxed);
        let _ = request.state.compare_exchange(PENDING, DONE, Ordering::Release, Ordering::Relaxed);
    }

    /// All that are not done have failed.
    pub(super) fn fail_pending(&self, code: ResultCode) {
        for request in &self.0 {
            let failed = FAILED + code as u32;
            let _ = request.state.compare_exchange(PENDING, failed, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Whether any is not done whose memory lies in a range. For the thread that takes requests.
    pub(super) fn has_pending_in(&self, start: u64, bytes: usize) -> bool {
        self.0.iter().any(|request| {
            request.state.load(Ordering::Acquire) == PENDING
                && request.start.load(Ordering::Relaxed) < start.saturating_add(bytes as u64)
                && start < request.end.load(Ordering::Relaxed)
        })
    }

    /// Whether any is not done.
    pub(super) fn has_pending(&self) -> bool {
        self.0.iter().any(|request| request.state.load(Ordering::Acquire) == PENDING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_used_again_after_their_end() {
        let requests = Requests::new();
        let taken: Vec<u32> = core::iter::from_fn(|| requests.take(0x1000, 16).map(|(at, _)| at)).collect();
        assert_eq!(taken.len(), MAX_REQUESTS);
        requests.finish(3, 7);
        assert!(requests.take(0, 0).is_none(), "a request that was not tested is free");
        assert_eq!(requests.0[3].test(), Ok(Some(7)));
        assert_eq!(requests.take(0x2000, 16).map(|(at, _)| at), Some(3));
        for (start, bytes, is_pending) in
            [(0x2000, 1, true), (0x2010, 1, false), (0x1ff0, 16, false), (0x1ff0, 17, true)]
        {
            assert_eq!(requests.has_pending_in(start, bytes), is_pending, "{start:#x} {bytes}");
        }
        assert_eq!(requests.0[3].test(), Ok(None));
        requests.finish(4, 1);
        requests.fail_pending(ResultCode::RemoteError);
        assert_eq!(requests.0[3].test(), Err(ResultCode::RemoteError));
        assert_eq!(requests.0[4].test(), Ok(Some(1)), "one that was done stays so");
        requests.finish(5, 9);
        assert_eq!(requests.0[5].test(), Err(ResultCode::RemoteError));
    }
}
