//! What does the receiving thread look for while its client says nothing?

use super::parts::Engine;
use causeway_gpu::Watch;
use causeway_link::Meanwhile;
use std::sync::Arc;

/// For the end of work, since a program that waits for the device says nothing until that is noticed; and for what has become ready,
/// which it issues itself.
pub struct Looking<'a> {
    watch: Watch<'a>,
    engine: Arc<Engine>,
    /// Whether the engine knows.
    is_looking: bool,
}

impl<'a> Looking<'a> {
    /// It has not begun.
    pub fn new(watch: Watch<'a>, engine: Arc<Engine>) -> Self {
        Self { watch, engine, is_looking: false }
    }

    fn end(&mut self) {
        if core::mem::take(&mut self.is_looking) {
            self.engine.session().exchange().pulse().at_work(|| self.engine.end_to_look());
        }
    }
}

impl Meanwhile for Looking<'_> {
    fn is_waited_for(&self) -> bool {
        self.watch.is_waited_for()
    }

    fn look(&mut self) {
        if !core::mem::replace(&mut self.is_looking, true) {
            self.engine.begin_to_look();
        }
        self.engine.session().exchange().pulse().at_work(|| {
            self.watch.look();
            self.engine.look();
        });
    }

    fn turn_away(&mut self) {
        self.end();
        self.watch.turn_away();
    }

    fn asleep<R>(&mut self, sleep: impl FnOnce() -> R) -> R {
        self.end();
        self.watch.asleep(sleep)
    }
}

impl Drop for Looking<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
