//! Device timestamps, for a trace and for the device times of the report.
//!
//! Around every launch and copy two events are recorded in its stream. What they say is asked
//! for when the program ends. Where that lies on this machine's clock is known by one event more, the
//! context's *mark*: the program waits for it, so that its time is known but for half a round trip.

use crate::locks::{Mutex, rank};
use crate::log::info;
use crate::model::handles;
use crate::remote::session;
use crate::statistics::device_time::{self, Span, Work};
use crate::trace;
use causeway_api::calls::{self, Call, Opcode};
use causeway_api::handle::{Context, Event, Handle, Stream};
use causeway_api::sys::{CUresult, CUstream_flags};
use causeway_wire::codec::{DecodeError, Decoder};
use core::cell::RefCell;
use std::collections::HashMap;

/// The most launches and copies whose times are taken. Each has two events of the driver; those that come
/// after them are counted as lost.
const MAX_TIMED: usize = 16_384;

/// How often a round trip is measured for a mark.
const ROUND_TRIPS: usize = 5;

/// A launch or copy between two events.
struct Timed {
    work: Work,
    name: String,
    context: Handle<Context>,
    stream: Handle<Stream>,
    begin: Handle<Event>,
    end: Handle<Event>,
}

/// An event of which it is known when it was reached.
#[derive(Clone, Copy)]
struct Mark {
    event: Handle<Event>,
    /// When, in ns of this machine's clock.
    recorded_at: u64,
}

#[derive(Default)]
struct State {
    timed: Vec<Timed>,
    marks: HashMap<u64, Mark>,
}

static STATE: Mutex<rank::DeviceTimes, Option<State>> = Mutex::new(None);

thread_local! {
    /// What the next launch of this thread is called.
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Names the launch that this thread is about to make.
#[inline]
pub fn name(name: &str) {
    if is_on() {
        // In the last destructors of a thread there is no name.
        let _ = NAME.try_with(|cell| name.clone_into(&mut cell.borrow_mut()));
    }
}

/// Whether any times are wanted.
#[inline]
pub fn is_on() -> bool {
    trace::is_on() || device_time::is_on()
}

/// What a device does for a command whose times are taken.
const fn work(opcode: Opcode) -> Option<Work> {
    match opcode {
        Opcode::launch | Opcode::graph_launch => Some(Work::Kernel),
        Opcode::copy_to_device => Some(Work::ToDevice),
        Opcode::copy_from_device => Some(Work::FromDevice),
        Opcode::copy_within_device | Opcode::copy_between_contexts => Some(Work::WithinDevice),
        _ => None,
    }
}

/// Counts launches and copies without times.
fn lose(count: u64) {
    trace::lose(count);
    device_time::lose(count);
}

/// Sends a command by `send`, between two events where its times are wanted.
#[inline]
pub fn around<C: Call>(
    context: Handle<Context>,
    request: &C,
    send: impl FnOnce() -> Result<(), CUresult>,
) -> Result<(), CUresult> {
    let Some(work) = const { work(C::OPCODE) }.filter(|_| is_on()) else { return send() };
    let started = request.stream().and_then(|stream| begin(context, stream, work, C::OPCODE));
    let sent = send();
    if let Some(timed) = started {
        finish(timed, sent.is_ok());
    }
    sent
}

/// Records the first event; nothing where no more are taken.
fn begin(context: Handle<Context>, stream: Handle<Stream>, work: Work, opcode: Opcode) -> Option<Timed> {
    let is_full = STATE.lock().get_or_insert_default().timed.len() >= MAX_TIMED;
    if is_full {
        lose(1);
        return None;
    }
    mark(context).ok()?;
    let named = NAME.try_with(RefCell::take).unwrap_or_default();
    let name = if opcode == Opcode::launch && !named.is_empty() { named } else { opcode.name().to_owned() };
    let begin = record(context, stream).ok()?;
    Some(Timed { work, name, context, stream, begin, end: Handle::NULL })
}

fn finish(mut timed: Timed, is_sent: bool) {
    if let Ok(end) = record(timed.context, timed.stream)
        && is_sent
    {
        timed.end = end;
        STATE.lock().get_or_insert_default().timed.push(timed);
    }
}

/// Records a new event in a stream.
fn record(context: Handle<Context>, stream: Handle<Stream>) -> Result<Handle<Event>, CUresult> {
    let event = handles::create::<Event>();
    let session = session::of(context)?;
    session.append(context, &calls::event_create { event, flags: 0 }, || ())?;
    session.append(context, &calls::event_record { event, stream, flags: 0 }, || ())?;
    Ok(event)
}

/// Takes the reply of a wait. It is no unit, so that an error of the program's own commands is left to the
/// program.
fn done(input: &mut Decoder<'_>) -> Result<bool, DecodeError> {
    input.value::<()>().map(|()| true)
}

/// Sees to it that the context has its mark.
fn mark(context: Handle<Context>) -> Result<(), CUresult> {
    if STATE.lock().get_or_insert_default().marks.contains_key(&context.value()) {
        return Ok(());
    }
    let session = session::of(context)?;
    // In a stream of its own: the program's may wait for what this thread is about to do.
    let stream = handles::create::<Stream>();
    let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
    session.append(context, &calls::stream_create { stream, flags, priority: 0 }, || ())?;
    let event = record(context, stream)?;
    let wait = || session.call(context, &calls::event_synchronize { event }, done);
    wait()?;
    let answered = trace::now();
    // The event has been reached: what is measured now is the way alone.
    let mut min_round_trip = u64::MAX;
    for _ in 0..ROUND_TRIPS {
        let sent_at = trace::now();
        wait()?;
        min_round_trip = min_round_trip.min(trace::now().saturating_sub(sent_at));
    }
    let mark = Mark { event, recorded_at: answered.saturating_sub(min_round_trip / 2) };
    STATE.lock().get_or_insert_default().marks.insert(context.value(), mark);
    Ok(())
}

/// Asks for all times, and hands them to trace and report. Contexts that have ended took theirs along.
pub fn gather() {
    let Some(State { timed, marks }) = STATE.lock().take() else { return };
    let mut unknown = 0;
    for Timed { work, name, context, stream, begin, end } in timed {
        let Some(mark) = marks.get(&context.value()) else { continue };
        let since = |start: Handle<Event>, end: Handle<Event>| -> Result<f32, CUresult> {
            let request = calls::event_elapsed { start, end };
            session::of(context)?.call(context, &request, |input| input.value())
        };
        let wait = |event| session::of(context)?.call(context, &calls::event_synchronize { event }, done);
        match wait(end).and_then(|_| Ok((since(mark.event, begin)?, since(begin, end)?))) {
            Ok((before, took)) => {
                let nanoseconds = |milliseconds: f32| (f64::from(milliseconds).max(0.0) * 1e6) as u64;
                let started = mark.recorded_at.saturating_add(nanoseconds(before));
                let took = nanoseconds(took);
                if device_time::is_on() {
                    device_time::keep(Span {
                        work,
                        name: name.clone(),
                        context: context.value(),
                        started,
                        took,
                    });
                }
                if trace::is_on() {
                    trace::device(name, context.server(), stream.value(), started, took);
                }
            }
            Err(_) => unknown += 1,
        }
    }
    if unknown > 0 {
        info!("the times of {unknown} launches and copies are unknown: their contexts have ended");
        lose(unknown);
    }
}
