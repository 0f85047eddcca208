//! Operation of several work requests, and its completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::Mutex;

use causeway_transport::{LinkError, OnComplete};

/// Work of one or more requests, on whichever queue pairs.
pub struct Operation {
    left: AtomicU32,
    then: Mutex<Option<OnComplete>>,
    is_over: AtomicBool,
}

impl Operation {
    /// Work of so many requests.
    pub fn new(requests: u32, then: OnComplete) -> Arc<Self> {
        let (left, is_over) = (AtomicU32::new(requests), AtomicBool::new(false));
        Arc::new(Self { left, then: Mutex::new(Some(then)), is_over })
    }

    /// One of the requests is done.
    pub fn done(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.end(Ok(()));
        }
    }

    /// The link has ended.
    pub fn fail(&self, cause: &LinkError) {
        self.end(Err(cause.clone()));
    }

    fn end(&self, outcome: Result<(), LinkError>) {
        let then = self.then.lock().take();
        if let Some(then) = then {
            then(outcome);
            self.is_over.store(true, Ordering::Release);
        }
    }

    /// Whether what follows has been done.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_follows_comes_once_and_after_the_last_request() {
        let (tell, told) = mpsc::channel();
        let of = |requests| {
            let tell = tell.clone();
            Operation::new(requests, Box::new(move |outcome| tell.send(outcome.is_ok()).unwrap()))
        };
        let operation = of(2);
        operation.done();
        assert!(told.try_recv().is_err() && !operation.is_over());
        operation.done();
        operation.fail(&LinkError::PeerDisconnected);
        assert!(told.try_iter().eq([true]) && operation.is_over());
        of(3).fail(&LinkError::PeerDisconnected);
        assert!(told.try_iter().eq([false]));
    }
}
