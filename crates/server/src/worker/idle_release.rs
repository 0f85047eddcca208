//! Idle release: a session that does nothing returns its device memory until its next command.
//!
//! One thread of each session looks, where that is wanted, and does what `causeway sessions release` asks for.

use std::sync::{Arc, Weak};
use std::time::Instant;

use causeway_sync::threads;
use causeway_wire::codec::Encode as _;
use causeway_wire::message::WorkerMessage;
use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::engine::Engine;
use super::release_check::{Busy, IdleClock, NotReleased};
use super::suspension;

/// Starts the thread, which ends with the session.
pub fn start(engine: &Arc<Engine>) {
    let (watched, exchange) = (Arc::downgrade(engine), Arc::clone(engine.session().exchange()));
    let requests = exchange.release_requests();
    if let (Some(_), Err(error)) = (exchange.release_times().idle(), engine.session().gpu().suspends_to()) {
        tracing::warn!("device memory cannot be released while this session is idle: {error}");
        exchange.release_refused(&error.to_string());
    }
    if let Err(error) = threads::spawn("idle-release", move || watch(&watched, &requests)) {
        tracing::warn!("cannot release device memory: starting a thread failed: {error}");
    }
}

fn watch(engine: &Weak<Engine>, requests: &Receiver<u32>) {
    let times = engine.upgrade().map(|engine| engine.session().exchange().release_times());
    let mut clock = times.and_then(|times| times.idle()).map(|limit| IdleClock::new(limit, Instant::now()));
    loop {
        let request = match &clock {
            Some(clock) => requests.recv_timeout(clock.interval()),
            None => requests.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        let Some(engine) = engine.upgrade() else { return };
        match (request, &mut clock) {
            (Ok(number), _) => {
                let outcome = release(&engine);
                tracing::debug!(?outcome, "release of device memory requested");
                let refused = outcome.err().map(|why| why.to_string());
                engine.session().exchange().report_release(number, refused);
            }
            (Err(RecvTimeoutError::Timeout), Some(clock)) => look(&engine, clock),
            (Err(_), _) => return,
        }
    }
}

/// Releases the memory if the session has been idle for long enough.
fn look(engine: &Arc<Engine>, clock: &mut IdleClock) {
    let residency = engine.session().residency();
    if residency.is_away() || !clock.is_due(Instant::now(), residency.entries(), engine.busy()) {
        return;
    }
    let outcome = release(engine);
    if let Err(why @ (NotReleased::Held(_) | NotReleased::BackEnd(_) | NotReleased::Server(_))) = &outcome {
        engine.session().exchange().release_refused(&why.to_string());
    }
    clock.attempted(Instant::now(), &outcome);
}

/// Releases the session's device memory now.
fn release(engine: &Arc<Engine>) -> Result<(), NotReleased> {
    let session = engine.session();
    if session.residency().is_away() {
        return Err(NotReleased::Already);
    }
    let contexts = engine.contexts();
    if contexts == 0 {
        return Err(NotReleased::Nothing);
    }
    // In this order: what holds the memory is noted before the work that notes it has ended.
    let check = || match (engine.busy(), engine.held_by()) {
        (Some(busy), _) => Err(NotReleased::Busy(busy)),
        (None, Some(held)) => Err(NotReleased::Held(held)),
        (None, None) => Ok(()),
    };
    let target = session.gpu().suspends_to().map_err(|error| NotReleased::BackEnd(error.to_string()))?;
    check()?;
    let leaving = session.residency().close().ok_or(NotReleased::Busy(Busy::Message))?;
    // Nothing comes from here on; what has come just before is seen now.
    check()?;
    if !session.gpu().is_quiet() {
        return Err(NotReleased::Busy(Busy::Stream));
    }
    // A job that was still queued at the look before may have begun since, and another one have followed it.
    check()?;
    engine.forget_shared_memory();
    let outcome = suspension::suspend(session, leaving, target, contexts);
    if let Err(NotReleased::BackEnd(why)) = &outcome
        && session.residency().is_away()
    {
        // It is lost, and the client need not wait for its next call to learn that. A lost link is noticed elsewhere.
        let text = why.as_str().into();
        let _ = session.link().send(|out| WorkerMessage::Fatal { text }.encode(out));
    }
    outcome
}
