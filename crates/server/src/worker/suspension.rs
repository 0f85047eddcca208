//! Suspension of a session's device memory: its way to the host, and its return before the next command.

use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_gpu::device_memory::{ResumeError, SuspendError, SuspendedTo};

use super::release_check::NotReleased;
use super::residency::{Entered, Leaving, MemoryLost};
use super::session::Session;

/// How long is waited before it is tried again to bring memory back, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// What the driver takes of the host for a context besides what the session has asked for.
const BYTES_OF_CONTEXT: u64 = 1 << 30;

/// Enters the session, to use its device; brings its memory back before, if that has been released.
///
/// # Errors
/// When the memory does not come back, with which the session ends.
pub fn enter(session: &Arc<Session>) -> Result<Entered<'_>, MemoryLost> {
    session.residency().enter(|| bring_back(session))
}

/// Brings the memory back; tries again for as long as that may take where something else has the device's memory now.
fn bring_back(session: &Session) -> Result<(), String> {
    let (started_at, mut pause) = (Instant::now(), FIRST_PAUSE);
    let exchange = session.exchange();
    let limit = exchange.release_times().returns_within();
    let capacity = session.gpu().shared_capacity().unwrap_or(0);
    loop {
        let why = match exchange.reclaim(capacity).map(|()| session.gpu().resume()) {
            Ok(Ok(())) => {
                let time = started_at.elapsed();
                tracing::debug!(?time, "device memory restored");
                exchange.returned(time);
                return Ok(());
            }
            Ok(Err(lost @ (ResumeError::Lost(_) | ResumeError::Store(_)))) => return Err(lost.to_string()),
            Ok(Err(short @ ResumeError::OutOfMemory(_))) => short.to_string(),
            Err(why) => why,
        };
        if started_at.elapsed() >= limit {
            return Err(format!(
                "device memory that was released while the session was idle did not come back within {} s (--idle-return-timeout): {why}",
                limit.as_secs()
            ));
        }
        if exchange.is_client_disconnected() {
            return Err("the client has gone while its device memory was to come back".to_owned());
        }
        tracing::debug!("device memory cannot be restored yet: {why}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

/// Releases the memory of a session with `contexts` contexts to `target`. It is leaving: nothing else uses the device, which
/// is quiet.
///
/// # Errors
/// Why the memory stays, or is lost.
pub fn suspend(
    session: &Session,
    leaving: Leaving<'_>,
    target: SuspendedTo,
    contexts: usize,
) -> Result<(), NotReleased> {
    let (gpu, exchange) = (session.gpu(), session.exchange());
    let bytes = exchange.activity().device_memory();
    let host_bytes = match target {
        SuspendedTo::HostMemory => bytes.saturating_add(BYTES_OF_CONTEXT.saturating_mul(contexts as u64)),
        SuspendedTo::File => 0,
    };
    let store =
        exchange.may_suspend(bytes, host_bytes, target == SuspendedTo::File).map_err(NotReleased::Server)?;
    let started_at = Instant::now();
    match gpu.suspend(store) {
        Ok(()) => {
            let time = started_at.elapsed();
            tracing::debug!(?time, bytes, "device memory released");
            // Before it is brought back, of which the broker hears, too.
            exchange.suspended(bytes, time);
            leaving.has_left();
            Ok(())
        }
        Err(error) => {
            exchange.stays_resident();
            if let SuspendError::Lost(_) = error {
                tracing::error!("{error}");
                leaving.lose(&error.to_string());
            }
            Err(NotReleased::BackEnd(error.to_string()))
        }
    }
}
