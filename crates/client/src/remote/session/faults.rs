//! Errors that no call has reported yet, and errors that no call can get past.

use causeway_api::sys::CUresult;
use std::sync::atomic::{AtomicU32, Ordering};

/// What every call answers once the server or the connection is lost.
pub use crate::model::completion::LOST;

/// The errors of a session.
#[derive(Default)]
pub struct Faults {
    /// The first error of a posted call since one was last reported; 0 when there is none.
    deferred: AtomicU32,
    /// The error that ended the session or its contexts; 0 when there is none.
    sticky: AtomicU32,
}

/// Whether nothing can be done in a context after this error.
pub fn is_sticky(status: CUresult) -> bool {
    matches!(
        status,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
    )
}

impl Faults {
    /// Keeps an error until a call reports it. The first one wins.
    pub fn record(&self, status: CUresult) {
        let slot = if is_sticky(status) { &self.sticky } else { &self.deferred };
        let _ = slot.compare_exchange(0, status.0, Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Records that the link is lost.
    pub fn lose(&self) {
        self.sticky.store(LOST.0, Ordering::SeqCst);
    }

    /// Fails when nothing can be done any more.
    #[inline]
    pub fn check(&self) -> Result<(), CUresult> {
        // Sequentially consistent: a caller that has said it waits, and the thread that ends all waits after
        // it has recorded the loss, must not both miss each other.
        result(self.sticky.load(Ordering::SeqCst))
    }

    /// Fails with an error that is due, which is then reported; one that stays is due every time.
    pub fn take(&self) -> Result<(), CUresult> {
        self.check()?;
        if self.deferred.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        result(self.deferred.swap(0, Ordering::AcqRel))
    }
}

fn result(status: u32) -> Result<(), CUresult> {
    if status == 0 { Ok(()) } else { Err(CUresult(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_deferred_error_is_reported_once() {
        let faults = Faults::default();
        faults.record(CUresult::CUDA_ERROR_INVALID_VALUE);
        faults.record(CUresult::CUDA_ERROR_NOT_FOUND);
        assert_eq!(faults.check(), Ok(()));
        assert_eq!(faults.take(), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(faults.take(), Ok(()));
    }

    #[test]
    fn a_sticky_error_stays_and_outranks_deferred_ones() {
        let faults = Faults::default();
        faults.record(CUresult::CUDA_ERROR_INVALID_VALUE);
        faults.record(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        for _ in 0..3 {
            assert_eq!(faults.take(), Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        }
        faults.lose();
        assert_eq!(faults.take(), Err(LOST));
    }
}
