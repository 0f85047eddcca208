//! Work of others that has its task in a stream, of a network card or of the client: it begins when the stream gets
//! there, and the stream goes on when it is done.

use crate::locks::{Mutex, rank};
use causeway_api::handle::{Native, Stream};
use causeway_api::sys::CUresult;
use causeway_gpu::{CuResult, Gate, Gpu};
use std::sync::Arc;

/// Where the stream is with a stop.
enum State {
    /// The gate has not been handed over yet.
    Ahead,
    Closed(Box<dyn Gate>),
    Open,
}

/// A stop of a stream that is opened once; perhaps before it is known here, since streams are quick.
pub struct Stop(Mutex<rank::Leaf, State>);

impl Stop {
    /// Lets the stream go on.
    pub fn open(&self) {
        let before = core::mem::replace(&mut *self.0.lock(), State::Open);
        if let State::Closed(gate) = before {
            gate.open();
        }
    }

    fn close(&self, gate: Box<dyn Gate>) {
        let mut state = self.0.lock();
        if let State::Ahead = *state {
            *state = State::Closed(gate);
            return;
        }
        drop(state);
        gate.open();
    }
}

/// What is done when the stream gets there, and what instead if it never will, because work before it has
/// failed.
struct StreamTask<S, R> {
    parts: Mutex<rank::Leaf, Option<(S, R)>>,
    stop: Arc<Stop>,
}

impl<S: FnOnce(Arc<Stop>), R: FnOnce(CUresult)> StreamTask<S, R> {
    fn start(&self) {
        let parts = self.parts.lock().take();
        if let Some((start, _)) = parts {
            start(Arc::clone(&self.stop));
        }
    }

    fn refuse(&self, error: CUresult) {
        let parts = self.parts.lock().take();
        if let Some((_, refuse)) = parts {
            refuse(error);
        }
    }
}

/// Has `start` begin something when `stream` gets here; it opens the stop when that is done. Of the two
/// functions exactly one is called. Gives the stop.
pub fn enqueue(
    gpu: &dyn Gpu,
    stream: Native<Stream>,
    start: impl FnOnce(Arc<Stop>) + Send + 'static,
    refuse: impl FnOnce(CUresult) + Send + 'static,
) -> CuResult<Arc<Stop>> {
    let stop = Arc::new(Stop(Mutex::new(State::Ahead)));
    let task = Arc::new(StreamTask { parts: Mutex::new(Some((start, refuse))), stop: Arc::clone(&stop) });
    let ready = Arc::clone(&task);
    match gpu.gate(stream, Box::new(move || ready.start())) {
        Ok(gate) => stop.close(gate),
        Err(error) => {
            task.refuse(error);
            return Err(error);
        }
    }
    // A stream that has failed does not get here, and tells nobody else.
    let passed = Arc::clone(&task);
    let registered = gpu.after_a_while(
        stream,
        Box::new(move |outcome| {
            if let Err(error) = outcome {
                passed.refuse(error);
            }
        }),
    );
    registered.inspect_err(|error| task.refuse(*error))?;
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Counted(Arc<AtomicU32>);

    impl Gate for Counted {
        fn open(self: Box<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_stop_opens_whichever_comes_first_the_gate_or_its_opening() {
        for opens_first in [false, true] {
            let opened = Arc::new(AtomicU32::new(0));
            let (stop, gate) = (Stop(Mutex::new(State::Ahead)), Box::new(Counted(Arc::clone(&opened))));
            if opens_first {
                stop.open();
                stop.close(gate);
            } else {
                stop.close(gate);
                assert_eq!(opened.load(Ordering::Relaxed), 0);
                stop.open();
            }
            stop.open();
            assert_eq!(opened.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn a_turn_is_taken_or_refused_and_never_both() {
        let counts = [0, 1].map(|_| Arc::new(AtomicU32::new(0)));
        let task = || {
            let [started, refused] = counts.clone();
            let start = move |_| {
                started.fetch_add(1, Ordering::Relaxed);
            };
            let refuse = move |_| {
                refused.fetch_add(1, Ordering::Relaxed);
            };
            StreamTask {
                parts: Mutex::new(Some((start, refuse))),
                stop: Arc::new(Stop(Mutex::new(State::Ahead))),
            }
        };
        let (taken, given_up) = (task(), task());
        taken.start();
        taken.refuse(CUresult::CUDA_ERROR_UNKNOWN);
        given_up.refuse(CUresult::CUDA_ERROR_UNKNOWN);
        given_up.start();
        assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [1, 1]);
    }
}
