//! Shutdown: waiting for the end of all sessions.

use std::sync::{Arc, Weak};
use std::time::Duration;

use causeway_sync::threads;

use super::shared::Shared;

/// Interval at which sessions that are not in the table yet are looked for.
const SESSION_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Begins to drain the server, or changes by when it is to be done; `limit` is how long sessions may go on.
/// True if it had begun before.
pub fn drain(shared: &Arc<Shared>, limit: Option<Duration>) -> bool {
    if shared.drain.begin(limit) {
        return true;
    }
    tracing::info!(sessions = shared.admission.sessions(), ?limit, "draining: new sessions are refused");
    let watched = Arc::downgrade(shared);
    if let Err(error) = threads::spawn("drain", move || wait(&watched)) {
        tracing::error!("cannot wait for the sessions to end, so the server ends now: {error}");
        shared.drain.notify();
    }
    false
}

/// Waits until no session is left, or their time is over.
fn wait(shared: &Weak<Shared>) {
    // The broker may have been stopped meanwhile.
    while let Some(shared) = shared.upgrade() {
        if shared.drain.is_late() || shared.admission.sessions() == 0 {
            return shared.drain.notify();
        }
        shared.sessions.wait_for_end(SESSION_POLL_INTERVAL);
    }
}
