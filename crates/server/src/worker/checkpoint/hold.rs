//! The quiet point of a session: its client's commands are held back until the state is written, and until it is known
//! where it goes on. One that is forked goes on where it is as soon as its state is with the other worker.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_link::{IdleHook as _, LinkError, Receiver};
use causeway_wire::codec::Encode as _;
use causeway_wire::handshake::Features;
use causeway_wire::message::WorkerMessage;
use causeway_wire::moves::QUIET_TIMEOUT;
use causeway_wire::relocation::LinkState;
use thiserror::Error;

use super::code;
use super::stages::Stages;
use super::write::{self, NotWritten};
use crate::protocol::messages::{CheckpointStart, WrittenState};
use crate::state_file::{CodeRecord, StateHeader};
use crate::worker::engine::{Engine, IdleWork, ProtocolError, handle};
use crate::worker::release_check::{Busy, Held as MemoryHeld};
use crate::worker::suspension;
use crate::worker_process::Decision;

/// For how long commands are held back at a time while there is none: the client may have to say something first.
const HOLD_INTERVAL: Duration = Duration::from_millis(500);

/// For how long they are carried out in between.
const RUN_INTERVAL: Duration = Duration::from_millis(20);

/// Interval at which the session is checked for a quiet point.
const POLL_INTERVAL: Duration = Duration::from_micros(500);

/// How long a session is held at most while there is no decision.
const DECISION_TIMEOUT: Duration = Duration::from_secs(3600);

/// Why a session cannot be held, or its state not be written; sentences for people. It goes on.
#[derive(Debug, Error)]
enum NotHeld {
    #[error(
        "its link cannot outlive its connection: start the program with CAUSEWAY_RESUME_TIMEOUT=60 and \
         CAUSEWAY_VIA=tcp, and the server with a --resume-timeout that is not 0"
    )]
    NotResumable,
    #[error(
        "no journal of it is kept from which another worker could recreate it: start the program with \
         CAUSEWAY_FORK=1, or with CAUSEWAY_RESUME_TIMEOUT"
    )]
    NotForkable,
    #[error(
        "its program uses a client library of a release that does not support moves: update Causeway on the \
         program's machine, and start the program again"
    )]
    OldClient,
    #[error("it cannot be transferred to another worker: {0}")]
    Memory(MemoryHeld),
    #[error("{0}")]
    Hindrance(String),
    #[error("{0}")]
    Code(String),
    #[error("there was no quiet point within {seconds} s: {busy}")]
    Busy { seconds: u64, busy: Busy },
    #[error("it was held for {minutes} minutes without a decision, and continues here; move it again")]
    Undecided { minutes: u64 },
    #[error("cannot restore released device memory: {0}")]
    Lost(Arc<str>),
    #[error(transparent)]
    NotWritten(#[from] NotWritten),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Link(#[from] LinkError),
    #[error("the client ends")]
    Goodbye,
}

/// The outcome for a session that was held.
pub enum Held {
    /// It goes on here.
    Continues,
    /// The worker ends, without a word to its client: the session goes on elsewhere, or later.
    Leaves,
    /// The client has gone, or said what makes no sense.
    Ended,
}

/// Holds the session for a request of the broker, and lets it go on here or elsewhere. `receiver` has no frame that was
/// not dealt with.
pub fn hold(
    engine: &Arc<Engine>,
    receiver: &mut Receiver,
    idle: &mut IdleWork<'_>,
    request: (CheckpointStart, OwnedFd),
) -> Held {
    let (start, file) = request;
    let exchange = engine.session().exchange();
    match checkpoint(engine, receiver, idle, &start, file) {
        Ok(outcome) => outcome,
        Err(why) => {
            release(engine);
            let text = why.to_string();
            tracing::info!("cannot write the session's state: {text}");
            exchange.report_checkpoint(start.number, Err(text));
            match why {
                NotHeld::Protocol(error) => {
                    let text = error.to_string().into();
                    // A lost link is noticed elsewhere.
                    let _ = engine.session().link().send(|out| WorkerMessage::Fatal { text }.encode(out));
                    Held::Ended
                }
                NotHeld::Goodbye => Held::Ended,
                _ => Held::Continues,
            }
        }
    }
}

/// Lets everything go on.
fn release(engine: &Arc<Engine>) {
    engine.uploads().incoming().release();
    // A lost link is noticed by the receiving thread.
    let _ = engine.session().link().release();
    engine.session().wake();
}

fn checkpoint(
    engine: &Arc<Engine>,
    receiver: &mut Receiver,
    idle: &mut IdleWork<'_>,
    start: &CheckpointStart,
    file: OwnedFd,
) -> Result<Held, NotHeld> {
    let session = engine.session();
    let identity = session.exchange().identity().ok_or(NotHeld::NotResumable)?;
    if start.is_fork {
        if !engine.journal().is_recording() {
            return Err(NotHeld::NotForkable);
        }
    } else if !session.link().is_resumable() || !engine.journal().is_recording() {
        return Err(NotHeld::NotResumable);
    } else if !identity.hello.abilities.features.contain(Features::MOVES) {
        return Err(NotHeld::OldClient);
    }
    carriable(engine)?;
    // For as long as it is held the memory stays where it is.
    let _entered = suspension::enter(session).map_err(|lost| NotHeld::Lost(lost.0))?;
    let started_at = Instant::now();
    let mut stages = Stages::begin("held");
    wait_for_quiet(engine, receiver, idle)?;
    stages.end("quiet point");
    // What has been carried out meanwhile may be a hindrance.
    carriable(engine)?;
    let code = code::find(engine).map_err(NotHeld::Code)?;
    stages.end("variables");
    if start.is_fork {
        return forked(engine, idle, start, code, file, started_at);
    }
    let mut message = Vec::new();
    WorkerMessage::Moving(start.relocation.clone()).encode(&mut message);
    let link = session.link().hold(receiver, &message).ok_or(NotHeld::NotResumable)?;
    let known = end_of(&link);
    let header = StateHeader {
        ticket: start.relocation.ticket,
        seconds: start.relocation.seconds,
        ..identity.clone()
    };
    let has_variables = code.iter().any(|code| !code.variables.is_empty());
    // It waits for copies, of whose end somebody else has to tell.
    let bytes = idle.asleep(|| write::write(engine, &header, link, code, file))?;
    tracing::info!(bytes, milliseconds = started_at.elapsed().as_millis() as u64, "the session is held");
    session.exchange().report_checkpoint(start.number, Ok(WrittenState { bytes, has_variables }));
    match session.exchange().decision(start.number, DECISION_TIMEOUT) {
        Some(Decision::Proceed) => return Ok(proceed(engine, receiver, &message, known, start.stops)),
        Some(Decision::Stay) => {}
        // It is said to the broker, which would let the client go at any time otherwise.
        None => return Err(NotHeld::Undecided { minutes: DECISION_TIMEOUT.as_secs() / 60 }),
    }
    tracing::info!("the session continues here");
    release(engine);
    Ok(Held::Continues)
}

/// Gives the state of a session at rest to the worker of a fork, as that reads it. The link is the client's
/// here: the other one begins with none.
fn forked(
    engine: &Arc<Engine>,
    idle: &mut IdleWork<'_>,
    start: &CheckpointStart,
    code: Vec<CodeRecord>,
    file: OwnedFd,
    started_at: Instant,
) -> Result<Held, NotHeld> {
    let exchange = engine.session().exchange();
    let identity = exchange.identity().ok_or(NotHeld::NotForkable)?;
    exchange.report_quiet(start.number);
    let has_variables = code.iter().any(|code| !code.variables.is_empty());
    let link = LinkState::default();
    let bytes = idle.asleep(|| write::write(engine, identity, link, code, file))?;
    let milliseconds = started_at.elapsed().as_millis() as u64;
    tracing::info!(bytes, milliseconds, "a fork has the session's state, and the session continues");
    release(engine);
    exchange.report_checkpoint(start.number, Ok(WrittenState { bytes, has_variables }));
    Ok(Held::Continues)
}

/// The session's state is elsewhere: lets its client go there.
fn proceed(engine: &Arc<Engine>, receiver: &mut Receiver, message: &[u8], known: u64, stops: bool) -> Held {
    let session = engine.session();
    if session.link().send_last(message).is_err() {
        return Held::Ended;
    }
    // Only what it has received when it comes back says whether it has heard: it may have given the connection up before.
    loop {
        match receiver.await_return() {
            // It has heard, and looks for its session here until a server has that again.
            Ok(received) if received >= known && stops => {
                tracing::info!("the session ends here; its state is in a file");
                return Held::Leaves;
            }
            // It has heard, and has come back: there is no session where it was to go.
            Ok(received) if received >= known => {
                session.exchange().report_return("its program could not connect to the other server");
                let sent = session.link().send_last(&relocated());
                release(engine);
                return if sent.is_ok() { Held::Continues } else { Held::Ended };
            }
            // It gets the message again.
            Ok(_) => {}
            Err(error) => {
                tracing::info!("the client has not reconnected: {error}");
                return Held::Leaves;
            }
        }
    }
}

/// The message that says that the session is here now.
pub fn relocated() -> Vec<u8> {
    let mut message = Vec::new();
    WorkerMessage::Relocated.encode(&mut message);
    message
}

/// Where the last frame ends.
fn end_of(link: &LinkState) -> u64 {
    link.frames_start + link.frames.iter().map(|frame| frame.len() as u64).sum::<u64>()
}

/// Whether a session can be carried, as far as that is known without a look at its code.
fn carriable(engine: &Arc<Engine>) -> Result<(), NotHeld> {
    if let Some(held) = engine.held_by() {
        return Err(NotHeld::Memory(held));
    }
    match engine.journal().hindrance() {
        Some(hindrance) => Err(NotHeld::Hindrance(hindrance)),
        None => Ok(()),
    }
}

/// Holds the client's commands back until nothing is under way.
fn wait_for_quiet(
    engine: &Arc<Engine>,
    receiver: &mut Receiver,
    idle: &mut IdleWork<'_>,
) -> Result<(), NotHeld> {
    let started_at = Instant::now();
    loop {
        let held_since = Instant::now();
        let mut busy = Busy::Transfer;
        while held_since.elapsed() < HOLD_INTERVAL {
            match engine.busy_but_for_commands() {
                None if engine.uploads().incoming().hold() => {
                    // What has come just before is seen now.
                    match engine.busy_but_for_commands() {
                        None => return Ok(()),
                        Some(found) => busy = found,
                    }
                    engine.uploads().incoming().release();
                }
                None => busy = Busy::Transfer,
                Some(found) => busy = found,
            }
            engine.session().wake();
            idle.asleep(|| std::thread::sleep(POLL_INTERVAL));
        }
        if started_at.elapsed() >= QUIET_TIMEOUT {
            return Err(NotHeld::Busy { seconds: QUIET_TIMEOUT.as_secs(), busy });
        }
        let until = Instant::now() + RUN_INTERVAL;
        while Instant::now() < until {
            // Without sleeping for a frame: a program that waits for the quiet point itself sends none.
            match receiver.poll() {
                Ok(Some(body)) => {
                    idle.leave();
                    let is_more = handle(engine, body)?;
                    if !is_more {
                        return Err(NotHeld::Goodbye);
                    }
                }
                Ok(None) => idle.asleep(|| std::thread::sleep(POLL_INTERVAL)),
                Err(error) => return Err(error.into()),
            }
        }
        idle.leave();
    }
}
