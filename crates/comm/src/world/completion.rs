//! Wake-up of the completion thread (`watch`).

use std::sync::OnceLock;
use std::time::Duration;

use causeway_sync::Monitor;

/// What the thread and those who begin copies know of each other.
#[derive(Debug, Default)]
pub(super) struct Completion {
    /// Whether the thread could be started, when that has been tried.
    pub(super) is_started: OnceLock<bool>,
    state: Monitor<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A copy was begun since the thread last went to sleep.
    has_new_copy: bool,
    /// The rank leaves its job.
    is_over: bool,
}

impl Completion {
    /// A copy is under way from now on.
    pub(super) fn copy_started(&self) {
        self.state.change(|state| state.has_new_copy = true);
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.state.change(|state| state.is_over = true);
    }

    /// Sleeps until a copy is begun. Says whether there is one: not when the rank leaves.
    pub(super) fn sleep(&self) -> bool {
        self.state.wait(|state| match state {
            State { is_over: true, .. } => Some(false),
            State { has_new_copy, .. } => core::mem::take(has_new_copy).then_some(true),
        })
    }

    /// Sleeps for so long. Says whether there may be something to be seen: not when the rank leaves.
    pub(super) fn pause(&self, interval: Duration) -> bool {
        self.state.wait_for(interval, |state| state.is_over.then_some(())).is_none()
    }
}
