//! Gate of the program's calls, closed while the process forks together with its session.
//!
//! What a call changes must be whole before the process is copied: the child has no other thread that would
//! do the rest, or release a lock. So calls that begin while the gate is closed wait, and the thread that closes it
//! waits for those that are in progress. The library's own threads have [another
//! gate](causeway_sync::fork::BACKGROUND), since calls wait for them.

use std::time::Duration;

use causeway_sync::fork::BACKGROUND;
use causeway_sync::{Gate, NotClosed, Section};

static CALLS: Gate = Gate::new();

/// How long calls may take that are in progress when the gate is closed.
const CALLS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the library's threads may take for what they do.
const BACKGROUND_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a function cannot fork.
const IN_FUNCTION: &str =
    "it is called by a function that CUDA runs for the program: call it outside of that";

/// A call begins, before anything is looked at for it.
#[inline]
pub fn begin() -> Section<'static> {
    CALLS.enter()
}

/// Keeps other threads of the program out, once they have returned from their calls.
///
/// # Errors
/// Why that is impossible, as a sentence behind "cannot fork the session"; calls go on.
pub fn close() -> Result<(), String> {
    if BACKGROUND.is_entered() {
        return Err(IN_FUNCTION.to_owned());
    }
    CALLS.close(CALLS_TIMEOUT).map_err(|why| match why {
        NotClosed::Closed => "another thread of the program forks at the same time".to_owned(),
        NotClosed::Nested => IN_FUNCTION.to_owned(),
        NotClosed::Busy => {
            let seconds = CALLS_TIMEOUT.as_secs();
            format!(
                "another thread of the program has been in a CUDA call for {seconds} s: fork when it has \
                 returned"
            )
        }
        NotClosed::TooManyThreads => format!("{why}: fork in a thread that has used CUDA before most others"),
        NotClosed::NoBarrier => why.to_string(),
    })
}

/// Has the library's threads rest, behind [`close`].
///
/// # Errors
/// Why that is impossible, as above.
pub fn close_background() -> Result<(), String> {
    BACKGROUND.close(BACKGROUND_TIMEOUT).map_err(|why| match why {
        NotClosed::Busy => {
            let seconds = BACKGROUND_TIMEOUT.as_secs();
            format!(
                "a thread of the library, or a function of the program that it runs, has not ended for \
                 {seconds} s: fork when callbacks have returned"
            )
        }
        other => other.to_string(),
    })
}

/// Lets the library's threads go on.
pub fn open_background() {
    BACKGROUND.open();
}

/// Lets calls go on.
pub fn open() {
    CALLS.open();
}

/// Forgets, in a forked child, what the parent's other threads were in.
pub fn after_fork() {
    CALLS.after_fork();
    BACKGROUND.after_fork();
}
