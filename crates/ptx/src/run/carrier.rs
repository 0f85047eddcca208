//! Carrier of a block's threads: one coroutine on which they run in turn, where each leaves what it knows in a frame of
//! its own when it waits.
//!
//! Their code calls functions and may fault, which takes a stack, but nothing stays on it while they wait: one stack, which is
//! in the cache, does for all of them.

use std::cell::Cell;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::context::{Entry, Request, ThreadContext};
use super::signals::{Outcome, TrapState};
use crate::memory::SlabStack;

/// No lane.
const NONE: u32 = u32::MAX;

/// Sixteen bytes, aligned for all that a register holds.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
struct Unit([u8; 16]);

pub(super) struct Carrier {
    coroutine: Option<Coroutine<(), (), Outcome, SlabStack>>,
    work: Box<Work>,
    /// The frames of all threads.
    frames: Box<[Unit]>,
    frame_units: usize,
}

/// What the coroutine is to do, and how far it has come.
struct Work {
    entry: Entry,
    /// The contexts of a warp.
    contexts: Cell<*mut ThreadContext>,
    /// Lanes that are to run, a bit each.
    pending: Cell<u32>,
    /// The lane that runs, or [`NONE`].
    running: Cell<u32>,
}

impl Carrier {
    /// For so many threads, which may have frames of so many bytes.
    pub(super) fn new(entry: Entry, threads: usize, frame_size: Option<usize>) -> Self {
        let frame_units = frame_size.unwrap_or(0).div_ceil(size_of::<Unit>());
        let contexts = Cell::new(std::ptr::null_mut());
        Self {
            coroutine: None,
            work: Box::new(Work { entry, contexts, pending: Cell::new(0), running: Cell::new(NONE) }),
            frames: vec![Unit([0; 16]); threads * frame_units].into_boxed_slice(),
            frame_units,
        }
    }

    /// The address of a thread's frame.
    pub(super) fn frame(&self, thread: usize) -> u64 {
        self.frames.as_ptr() as u64 + (thread * self.frame_units * size_of::<Unit>()) as u64
    }

    /// Runs these lanes of a warp, each until it waits or has ended. Gives the lane that left the coroutine, if one did:
    /// by a signal if it faulted, else by its request. `stack` makes the coroutine's, where there is none yet.
    ///
    /// # Safety
    /// `contexts` are those of a warp's threads, which have frames and run nowhere else. They and the memory of the stack,
    /// which no other coroutine uses, outlive the carrier or its next [`Carrier::discard`].
    pub(super) unsafe fn run(
        &mut self,
        contexts: *mut ThreadContext,
        lanes: u32,
        traps: &TrapState,
        stack: impl FnOnce() -> SlabStack,
    ) -> Option<(usize, Outcome)> {
        self.work.contexts.set(contexts);
        self.work.pending.set(lanes);
        self.work.running.set(NONE);
        let work: *const Work = &*self.work;
        let coroutine = self.coroutine.get_or_insert_with(|| {
            Coroutine::with_stack(stack(), move |yielder: &Yielder<(), ()>, ()| {
                // SAFETY: the work lives as long as the carrier, and its coroutine is resumed by that alone.
                let work = unsafe { &*work };
                loop {
                    work.run(yielder);
                    yielder.suspend(());
                }
            })
        });
        traps.enter(coroutine.trap_handler());
        let outcome = match coroutine.resume(()) {
            CoroutineResult::Yield(()) => Outcome::Finished,
            CoroutineResult::Return(outcome) => {
                self.coroutine = None;
                outcome
            }
        };
        let lane = self.work.running.get();
        (lane != NONE).then_some((lane as usize, outcome))
    }

    /// Abandons what runs or waits to run on it.
    pub(super) fn discard(&mut self) {
        if let Some(mut coroutine) = self.coroutine.take() {
            // SAFETY: its stack holds frames of compiled code, and of functions that own nothing.
            unsafe { coroutine.force_reset() };
        }
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.discard();
    }
}

impl Work {
    fn run(&self, yielder: &Yielder<(), ()>) {
        let contexts = self.contexts.get();
        loop {
            let pending = self.pending.get();
            if pending == 0 {
                break;
            }
            let lane = pending.trailing_zeros();
            self.pending.set(pending & (pending - 1));
            self.running.set(lane);
            // SAFETY: `Carrier::run` was given the contexts of these lanes, for whose kernel the entry is.
            unsafe {
                let context = contexts.add(lane as usize);
                (*context).yielder = yielder;
                (*context).request = Request::Finished;
                (self.entry)(context);
            }
        }
        self.running.set(NONE);
    }
}
