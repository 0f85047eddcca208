//! How far is a stream, and does it hold as much as the driver takes?

use super::{Engine, State};
use crate::worker::order::{self, Place};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A stream's progress is asked for once in so many commands: an event each would double the cost of a launch.
const COMMANDS_PER_MARK: u64 = 64;

/// How far a stream is, in commands.
#[derive(Default)]
pub(super) struct Progress {
    issued: u64,
    marked: u64,
    completed: Arc<AtomicU64>,
}

impl Engine {
    /// Whether the place of a command can take one more without blocking.
    pub(super) fn has_room(&self, state: &State, place: Place) -> bool {
        match (self.gpu.queue_limit(), place) {
            (Some(limit), Place::InStream { stream, .. }) => {
                state.progress.get(&stream).is_none_or(|progress| {
                    progress.issued - progress.completed.load(Ordering::Acquire) < limit as u64
                })
            }
            _ => true,
        }
    }

    /// Counts a command of a stream, and asks for the stream's progress now and then.
    pub(super) fn count(self: &Arc<Self>, state: &mut State, stream: u64) {
        if self.gpu.queue_limit().is_none() {
            return;
        }
        let progress = state.progress.entry(stream).or_default();
        progress.issued += 1;
        if progress.issued - progress.marked < COMMANDS_PER_MARK {
            return;
        }
        progress.marked = progress.issued;
        let (mark, completed) = (progress.issued, Arc::clone(&progress.completed));
        let Ok(native) = self.objects.native(order::handle(stream)) else { return };
        let engine = Arc::clone(self);
        let asked = self.gpu.after_a_while(
            native,
            Box::new(move |_| {
                completed.store(mark, Ordering::Release);
                engine.wake();
            }),
        );
        if asked.is_err() {
            // The stream has failed; so will every command in it, and none of them will block.
            progress.completed.store(mark, Ordering::Release);
        }
    }
}
