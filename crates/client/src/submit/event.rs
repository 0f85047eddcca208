//! Events as the client knows them: what lay before their last record.
//!
//! The server hears of an event when it is first recorded or named otherwise. Many are never, such as those
//! of profilers and of pools, and a record that goes out anyway brings the news along.

use crate::locks::{Mutex, rank};
use crate::log::refuse_use;
use crate::model::context::PendingWrites;
use crate::model::exchange::{self, Kind};
use crate::model::handles::RawHandle as _;
use crate::model::stream::StreamState;
use crate::model::{completion, context, device, handles, transfers};
use crate::remote::{mirrored, session};
use crate::submit::{callbacks, capture, send, waits};
use causeway_api::calls;
use causeway_api::handle::{Context, Event, Handle};
use causeway_api::sys::{CUevent, CUevent_flags, CUevent_record_flags, CUevent_wait_flags, CUresult};
use causeway_api::types::ExportToken;
use core::ffi::c_char;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the client keeps of an event.
pub struct EventState {
    handle: Handle<Event>,
    context: Handle<Context>,
    flags: u32,
    /// Whether the server knows it.
    is_made: AtomicBool,
    /// Held while the command is sent.
    making: Mutex<rank::EventMaking, ()>,
    /// Its last record; nothing before the first.
    record: Mutex<rank::EventRecord, Option<Record>>,
    /// Whether other processes may record it, so that only the server knows what its last record is.
    is_shared: AtomicBool,
}

#[derive(Clone)]
struct Record {
    pending: PendingWrites,
    /// The stream, and the sequence number of the record in it.
    stream: Arc<StreamState>,
    sequence: u64,
    /// The capture in which it was recorded, 0 when there was none.
    capture: u64,
}

impl Record {
    /// A record that the calling thread's newest command has put into a stream.
    fn at_end_of(stream: &Arc<StreamState>) -> Self {
        let (pending, stream) = (stream.pending_writes(), stream.clone());
        Self { pending, stream, sequence: completion::of_thread(), capture: 0 }
    }
}

impl handles::Object for EventState {
    type Kind = Event;
}

/// Creates an event in the current context.
pub fn create(flags: u32) -> Result<Handle<Event>, CUresult> {
    let known = CUevent_flags::CU_EVENT_BLOCKING_SYNC.0
        | CUevent_flags::CU_EVENT_DISABLE_TIMING.0
        | CUevent_flags::CU_EVENT_INTERPROCESS.0;
    let interprocess = flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 != 0;
    if flags & !known != 0 || interprocess && flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = context::current()?;
    session::of(context)?.faults().check()?;
    let handle = handles::create::<Event>();
    insert(handle, context, flags, false);
    Ok(handle)
}

/// Enters an event; one that `is_shared` was made by another process.
fn insert(handle: Handle<Event>, context: Handle<Context>, flags: u32, is_shared: bool) {
    let state = EventState {
        handle,
        context,
        flags,
        is_made: AtomicBool::new(is_shared),
        making: Mutex::new(()),
        record: Mutex::new(None),
        is_shared: AtomicBool::new(is_shared),
    };
    handles::insert(handle, Arc::new(state));
}

/// Opens an event of another process, by a handle that [`EventState::export`] gave there.
pub fn import(shared: &[c_char; 64]) -> Result<Handle<Event>, CUresult> {
    let content = exchange::content(shared, Kind::Event)?;
    let token = ExportToken(core::array::from_fn(|index| content[index]));
    let context = context::current()?;
    let handle = handles::create::<Event>();
    send::call_in(context, &calls::event_import { event: handle, token }).inspect_err(|_| {
        handles::drop_handle(handle);
    })?;
    let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0 | CUevent_flags::CU_EVENT_INTERPROCESS.0;
    insert(handle, context, flags, true);
    Ok(handle)
}

/// The event that the program passed.
pub fn resolve(raw: CUevent) -> Result<Arc<EventState>, CUresult> {
    handles::get::<EventState>(Handle::from_raw(raw))
}

/// The handle of an event that the program passed, for a command that names it.
pub fn named(raw: CUevent) -> Result<Handle<Event>, CUresult> {
    let event = resolve(raw)?;
    event.make()?;
    Ok(event.handle)
}

/// Destroys an event; a record that is not done yet completes all the same.
pub fn destroy(raw: CUevent) -> Result<(), CUresult> {
    let event =
        handles::remove::<EventState>(Handle::from_raw(raw)).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    handles::drop_handle(event.handle);
    if !event.is_made.load(Ordering::Acquire) {
        return Ok(());
    }
    send::post_in(event.context, &calls::event_destroy { event: event.handle })
}

/// Forgets the events of a context that ends.
pub fn context_ends(context: Handle<Context>) {
    for (handle, _) in handles::select::<EventState>(|event| event.context == context) {
        handles::remove::<EventState>(handle);
        handles::drop_handle(handle);
    }
}

impl EventState {
    /// Tells the server of the event, unless it knows it; before any command that names it.
    fn make(&self) -> Result<(), CUresult> {
        if self.is_made.load(Ordering::Acquire) {
            return Ok(());
        }
        let _making = self.making.lock();
        if !self.is_made.load(Ordering::Acquire) {
            let request = calls::event_create { event: self.handle, flags: self.flags };
            send::post_in(self.context, &request)?;
            self.is_made.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Records the event in a stream of the same context.
    pub fn record(&self, stream: &Arc<StreamState>, flags: u32) -> Result<(), CUresult> {
        if stream.context != self.context {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        let capture = capture::of(stream);
        if capture != 0 {
            let is_external = flags & CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0 != 0;
            if is_external {
                self.make()?;
            }
            let mut record = self.record.lock();
            capture::record(stream, self.handle, is_external)?;
            if !is_external {
                let (pending, stream) = (PendingWrites::default(), stream.clone());
                *record = Some(Record { pending, stream, sequence: 0, capture });
            }
            return Ok(());
        }
        self.make()?;
        let request = calls::event_record { event: self.handle, stream: stream.handle, flags };
        // Held while the command is sent, so that of two threads' records the later one is kept here too.
        let mut record = self.record.lock();
        send::post_in(stream.context, &request)?;
        *record = Some(Record::at_end_of(stream));
        Ok(())
    }

    /// The handle by which another process can open the event.
    pub fn export(&self) -> Result<[c_char; 64], CUresult> {
        if self.flags & CUevent_flags::CU_EVENT_INTERPROCESS.0 == 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        self.make()?;
        let token = send::call_in(self.context, &calls::event_export { event: self.handle })?;
        self.is_shared.store(true, Ordering::Release);
        Ok(exchange::handle(Kind::Event, &token.0))
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// Notes that what a stream holds now, the launch of a graph, records the event.
    pub fn note_record(&self, stream: &Arc<StreamState>) {
        *self.record.lock() = Some(Record::at_end_of(stream));
    }

    /// The event as the program names it.
    pub fn raw(&self) -> CUevent {
        self.handle.as_raw()
    }

    /// Makes a stream wait for the event's last record.
    pub fn delay(&self, stream: &StreamState, flags: u32) -> Result<(), CUresult> {
        let is_external = flags & CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0 != 0;
        let record = self.record.lock().clone();
        let is_captured =
            record.as_ref().is_some_and(|record| record.capture != 0) || capture::of(stream) != 0;
        if is_captured && stream.context.server() != self.context.server() {
            return Err(refuse_use!("graphs with work for devices of several servers"));
        }
        capture::refuse_invalid(stream)?;
        if let Some(record) = record.as_ref().filter(|record| record.capture != 0 && !is_external) {
            return capture::join(stream, record.capture, self.handle);
        }
        if capture::of(stream) != 0 && (is_external || record.is_some() || self.is_shared()) {
            self.make()?;
            return capture::wait_outside(stream, self.handle, is_external);
        }
        let pending = match record {
            Some(record) => record.pending,
            None if self.is_shared() => PendingWrites::default(),
            None => return Ok(()),
        };
        if stream.context.server() == self.context.server() {
            let request = calls::stream_wait_event { stream: stream.handle, event: self.handle, flags };
            send::post_in(stream.context, &request)?;
        } else {
            wait_elsewhere(stream, self.context, self.handle, &pending)?;
        }
        stream.inherit(&pending);
        Ok(())
    }

    /// Waits until the last record is done and all bytes before it are in the program's memory.
    pub fn synchronize(&self) -> Result<(), CUresult> {
        if self.is_shared() {
            send::call_in(self.context, &calls::event_synchronize { event: self.handle })?;
            return self.record.lock().clone().map_or(Ok(()), |record| record.pending.wait());
        }
        let Some(record) = self.record_outside()? else { return Ok(()) };
        if record.stream.has_done(record.sequence) {
            session::of(self.context)?.faults().take()?;
        } else {
            let event = self.handle;
            let (plain, compared) =
                (calls::event_synchronize { event }, calls::event_synchronize_mirrored { event });
            let is_fetched = waits::wait_alone(self.context, &plain, &compared)?;
            if self.is_newest(&record) {
                record.stream.watermark.note_done(record.sequence, is_fetched);
            }
        }
        record.pending.wait()?;
        record.stream.fetch(record.sequence)
    }

    /// Whether the last record is done and all bytes before it are there; "not ready" is an error.
    pub fn query(&self) -> Result<(), CUresult> {
        if self.is_shared() {
            let token = device::fresh();
            let is_pending = send::call_in(self.context, &calls::event_query { event: self.handle, token })?;
            return if is_pending { Err(CUresult::CUDA_ERROR_NOT_READY) } else { Ok(()) };
        }
        let Some(record) = self.record_outside()? else { return Ok(()) };
        if record.stream.has_published(record.sequence) {
            return self.synchronize();
        }
        record.stream.require_done(record.sequence, |token| {
            let is_pending = send::call_in(self.context, &calls::event_query { event: self.handle, token })?;
            if self.is_newest(&record) { Ok(is_pending) } else { Err(CUresult::CUDA_ERROR_NOT_READY) }
        })?;
        if !record.pending.is_done() {
            return Err(CUresult::CUDA_ERROR_NOT_READY);
        }
        record.pending.wait()?;
        record.stream.fetch(record.sequence)
    }

    /// The time from this event to `end` in milliseconds.
    pub fn elapsed(&self, end: &Self) -> Result<f32, CUresult> {
        for event in [self, end] {
            let timed = event.flags & CUevent_flags::CU_EVENT_DISABLE_TIMING.0 == 0;
            match event.record.lock().clone() {
                Some(record) if record.capture != 0 => return Err(captured_event(&record)),
                Some(record) if timed => {
                    if !record.pending.is_done() {
                        return Err(CUresult::CUDA_ERROR_NOT_READY);
                    }
                }
                _ => return Err(CUresult::CUDA_ERROR_INVALID_HANDLE),
            }
        }
        let device_of = |event: &Self| context::state(event.context).map(|context| context.device);
        if device_of(self)? != device_of(end)? {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        send::call_in(self.context, &calls::event_elapsed { start: self.handle, end: end.handle })
    }

    /// Whether the event has not been recorded since. Another thread may do so before a command about the event is
    /// sent, which is then about that record and says nothing of the stream of this one.
    fn is_newest(&self, record: &Record) -> bool {
        self.record.lock().as_ref().is_some_and(|newest| {
            Arc::ptr_eq(&newest.stream, &record.stream) && newest.sequence == record.sequence
        })
    }

    /// The last record. One in a capture is never done: asking for it is refused and spoils the capture.
    fn record_outside(&self) -> Result<Option<Record>, CUresult> {
        match self.record.lock().clone() {
            Some(record) if record.capture != 0 => {
                let refusal = captured_event(&record);
                capture::invalidate(record.capture);
                Err(refusal)
            }
            record => {
                capture::refuse_unsafe()?;
                Ok(record)
            }
        }
    }
}

/// The error for who asks when a record in a capture was reached: it never is.
fn captured_event(record: &Record) -> CUresult {
    if capture::is_good(record.capture) {
        CUresult::CUDA_ERROR_CAPTURED_EVENT
    } else {
        CUresult::CUDA_ERROR_INVALID_VALUE
    }
}

/// An event of ours that is recorded once.
pub(super) struct Mark {
    event: Handle<Event>,
    context: Handle<Context>,
}

impl Mark {
    /// Records one behind what a stream holds now.
    pub fn at_end_of(stream: &StreamState) -> Result<Self, CUresult> {
        let mark = Self { event: handles::create::<Event>(), context: stream.context };
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
        send::post_in(mark.context, &calls::event_create { event: mark.event, flags })?;
        let request = calls::event_record { event: mark.event, stream: stream.handle, flags: 0 };
        send::post_in(mark.context, &request)?;
        Ok(mark)
    }

    /// Destroys it; the record and what waits for it stay as they are.
    pub fn destroy(self) -> Result<(), CUresult> {
        handles::drop_handle(self.event);
        send::post_in(self.context, &calls::event_destroy { event: self.event })
    }
}

/// Makes `stream` wait for everything that `other` holds now.
pub fn join(stream: &StreamState, other: &StreamState) -> Result<(), CUresult> {
    let mark = Mark::at_end_of(other)?;
    let pending = other.pending_writes();
    if stream.context.server() == other.context.server() {
        let request = calls::stream_wait_event { stream: stream.handle, event: mark.event, flags: 0 };
        send::post_in(stream.context, &request)?;
    } else {
        wait_elsewhere(stream, other.context, mark.event, &pending)?;
    }
    stream.inherit(&pending);
    mark.destroy()
}

/// Makes a stream wait for an event of another server: that one reports the event, and the stream is let go
/// on when the bytes that lie before the event are in the program's memory too, where the stream's device may
/// find them.
fn wait_elsewhere(
    stream: &StreamState,
    context: Handle<Context>,
    event: Handle<Event>,
    pending: &PendingWrites,
) -> Result<(), CUresult> {
    let token = callbacks::hold(stream)?;
    // The other server's device may write to the program's memory before the event.
    stream.add_hazard();
    let (server, other, pending) = (stream.context.server(), context.server(), pending.clone());
    callbacks::when_recorded(context, event, move || {
        if mirrored::is_any() {
            callbacks::release_hold_after(server, token, pending, other);
        } else {
            transfers::when_done(&pending.transfers, move || callbacks::release_hold(server, token));
        }
    })
    .inspect_err(|_| callbacks::release_hold(server, token))
}
