//! One completion for several waits.

use crate::locks::{Mutex, rank};
use causeway_gpu::{Completion, CuResult};
use std::sync::Arc;

/// Gets the first error of several waits, once all are over.
pub(crate) struct Join {
    state: Mutex<rank::Leaf, State>,
}

struct State {
    /// Waits that are not over.
    left: usize,
    status: CuResult<()>,
    done: Option<Completion>,
}

impl Join {
    /// The completions for `parts` waits, which together call `done`.
    pub(crate) fn split(parts: usize, done: Completion) -> impl Iterator<Item = Completion> {
        let join =
            Arc::new(Self { state: Mutex::new(State { left: parts, status: Ok(()), done: Some(done) }) });
        (0..parts).map(move |_| {
            let join = Arc::clone(&join);
            Box::new(move |status| join.part_is_over(status)) as Completion
        })
    }

    fn part_is_over(&self, status: CuResult<()>) {
        let mut state = self.state.lock();
        state.left -= 1;
        state.status = state.status.and(status);
        if state.left == 0
            && let Some(done) = state.done.take()
        {
            let status = state.status;
            drop(state);
            done(status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use causeway_api::sys::CUresult;
    use std::sync::mpsc;

    #[test]
    fn the_first_error_of_the_parts_is_told_once_all_are_over() {
        let (sender, results) = mpsc::channel();
        let mut parts = Join::split(3, Box::new(move |status| sender.send(status).unwrap()));
        let mut next = || parts.next().unwrap();
        next()(Ok(()));
        next()(Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
        assert!(results.try_recv().is_err());
        next()(Err(CUresult::CUDA_ERROR_UNKNOWN));
        assert_eq!(results.recv(), Ok(Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)));
    }
}
