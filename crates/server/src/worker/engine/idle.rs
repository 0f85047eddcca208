//! Idle hook: what the receiving thread polls while its client is silent.

use super::parts::Engine;
use causeway_gpu::IdlePoller;
use causeway_link::IdleHook;
use std::sync::Arc;

/// For the end of work, since a program that waits for the device says nothing until that is noticed; and for
/// what has become ready, which it issues itself.
pub struct IdleWork<'a> {
    gpu: IdlePoller<'a>,
    engine: Arc<Engine>,
    /// Whether the engine knows.
    is_polling: bool,
}

impl<'a> IdleWork<'a> {
    /// It has not begun.
    pub fn new(gpu: IdlePoller<'a>, engine: Arc<Engine>) -> Self {
        Self { gpu, engine, is_polling: false }
    }

    fn end(&mut self) {
        if core::mem::take(&mut self.is_polling) {
            self.engine.session().exchange().progress().at_work(|| self.engine.end_polling());
        }
    }
}

impl IdleHook for IdleWork<'_> {
    fn is_waited_for(&self) -> bool {
        self.gpu.is_waited_for()
    }

    fn poll(&mut self) {
        if !core::mem::replace(&mut self.is_polling, true) {
            self.engine.begin_polling();
        }
        self.engine.session().exchange().progress().at_work(|| {
            self.gpu.poll();
            self.engine.poll();
        });
    }

    fn leave(&mut self) {
        self.end();
        self.gpu.leave();
    }

    fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        self.end();
        self.gpu.asleep(sleep)
    }
}

impl Drop for IdleWork<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
