//! Host-to-device copy: when the source is read, and how it is sent to the server.
//!
//! Synchronous copies may return before the device has the bytes.
//!
//! A copy can be *published*: the server puts all that it gets afterwards behind it, in any
//! stream. Its call returns when the source may change, and whoever asks how far the work before it is waits
//! for it, so that the program finds what it would find had the copy been waited for. That holds for what
//! this program can ask for: memory that another process or another server may use is not published. And
//! CUDA's synchronous copies, short ones too, wait for what lies before them in their stream (4 B to 1 MiB
//! behind a kernel of 20 ms, from pinned, registered and pageable memory; H100, driver 580.159.04,
//! 2026-11-24), so that such a one is published only where nothing but published copies is under way.
//!
//! Long copies are published over shared memory alone, where the server has the bytes as soon as they have
//! left the program's memory: there the call of a pageable copy returns in half the time. Elsewhere it has to
//! be informed that they have come, and who waits for the device afterwards would wait for a second answer (on an
//! H200 up to 18 us less for the call and up to 25 more for both, 2026-11-23).

use super::endpoint::Mode;
use super::gpudirect;
use crate::model::context::{self, ContextState};
use crate::model::region::HostRegion;
use crate::model::stream::StreamState;
use crate::model::transfers::{self, Reading};
use crate::model::{array, completion, device, exchange};
use crate::remote::session::faults::LOST;
use crate::remote::session::{self, Session};
use crate::remote::{mirrored, registered};
use crate::statistics::copies::{self, By};
use crate::submit::callbacks::{self, Task};
use crate::submit::copy::download::{Part, pieces};
use crate::submit::{content_upload, send, virtual_memory};
use causeway_api::calls;
use causeway_api::sys::CUresult;
use causeway_api::types::{DeviceLocation, Payload};
use causeway_link::{Sending, TransferOptions};
use causeway_pipeline::{Direction, INLINE_BYTES, NONTEMPORAL_UP_TO, Plan};
use core::slice;
use std::collections::VecDeque;
use std::sync::Arc;

/// # Safety
/// `source` must be readable, for an asynchronous copy from pinned memory until the stream has passed it.
pub(super) unsafe fn to_device(
    destination: DeviceLocation,
    source: HostRegion,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let is_deferred = stream.pending_writes().is_unsettled();
    if is_deferred && mode == Mode::Synchronous {
        stream.synchronize()?;
    }
    let bytes = source.bytes();
    let by = if bytes <= INLINE_BYTES { By::Command } else { By::Transfers };
    copies::count(Direction::ToDevice, by, &source);
    let is_pinned = mode == Mode::Asynchronous && (is_deferred || bytes > INLINE_BYTES) && source.is_pinned();
    // SAFETY: the caller has the source readable; CUDA forbids the program to change it before the copy is
    // done.
    unsafe {
        mirrored::note_copied(&source)?;
        if is_deferred && (mode == Mode::InGraph || is_pinned) {
            return read_later(destination, source, stream);
        }
        if bytes <= INLINE_BYTES {
            return send_with_command(destination, source, stream, mode);
        }
        if let DeviceLocation::Memory(region) = destination
            && region.is_contiguous()
            && source.is_contiguous()
            && content_upload::suits(bytes)
        {
            content_upload::copy(region.address, source.address, bytes, stream)?;
            return if mode == Mode::Synchronous { stream.synchronize() } else { Ok(()) };
        }
        let is_stable = is_pinned || mode == Mode::Synchronous && source.is_pinned();
        if source.is_contiguous()
            && gpudirect::suits(session::of(stream.context)?, &destination, &source, is_stable)
        {
            return gpudirect::expose(destination, source, stream, mode);
        }
        if is_pinned && source.is_contiguous() {
            return enqueue(destination, source, stream);
        }
        send_now(destination, source, stream, mode)
    }
}

/// Sends few bytes along with their command.
///
/// # Safety
/// `source` must be readable.
unsafe fn send_with_command(
    destination: DeviceLocation,
    source: HostRegion,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    // Behind other work the call waits for that, as CUDA's does, however short the copy is.
    let is_possible = mode == Mode::Synchronous && can_publish(&destination) && has_capacity(stream, 1);
    let publication = if is_possible { Publication::begin(stream) } else { None };
    let publish = publication.is_some();
    let post = |bytes: &[u8]| {
        let data = Payload::Inline(bytes);
        let request = calls::copy_to_device { destination, stream: stream.handle, publish, data };
        send::post_in(stream.context, &request)
    };
    // SAFETY: the caller has the source readable until this returns.
    unsafe {
        if source.is_contiguous() {
            post(slice::from_raw_parts(source.address, source.bytes()))?;
        } else {
            post(&source.pack())?;
        }
    }
    let is_published = publication.is_some_and(|publication| publication.end(1));
    if mode == Mode::Synchronous && !is_published { stream.synchronize() } else { Ok(()) }
}

/// Posts the command of a piece whose bytes come as a transfer.
fn post_piece(
    destination: DeviceLocation,
    number: u64,
    length: usize,
    stream: &StreamState,
    publish: bool,
) -> Result<(), CUresult> {
    let data = Payload::Transfer { number, length: length as u64 };
    let request = calls::copy_to_device { destination, stream: stream.handle, publish, data };
    send::post_in(stream.context, &request)
}

fn plan(session: &Session, bytes: usize) -> Plan {
    session.plans.plan(Direction::ToDevice, bytes)
}

/// Queues pinned memory for the link's threads and returns.
///
/// # Safety
/// `source` must be readable, and stay as it is, until the stream has passed the copy.
unsafe fn enqueue(
    destination: DeviceLocation,
    source: HostRegion,
    stream: &StreamState,
) -> Result<(), CUresult> {
    let session = session::of(stream.context)?;
    registered::note(session, &source);
    // Copies that follow one another are carried like one that is as long as all of them, whose ends this
    // one's are not.
    let pending = transfers::bytes();
    let plan = plan(session, pending + source.bytes());
    let options = TransferOptions::planned(&plan, stream.id);
    let (start, end) = source.span();
    // Whoever frees the memory waits for this.
    let reading = Arc::new(Reading::of(start, end));
    let is_within_a_row = pending > 0 && plan.buffer_bytes > NONTEMPORAL_UP_TO;
    let taper = (!is_within_a_row).then_some(Direction::ToDevice);
    for (target, part) in pieces(destination, source, plan.buffer_bytes, taper) {
        let number = device::fresh();
        let length = part.bytes();
        let put = || {
            // SAFETY: the memory stays readable until the stream has passed the copy, for which the bytes
            // must have come; and it is not freed before `reading` has been dropped.
            let put = unsafe {
                session.link().post_transfer(number, part.address, length, options, Arc::clone(&reading))
            };
            put.map_err(|_| LOST)
        };
        // A posted copy that is waited for must have its bytes on their way before it is.
        if session.is_synchronous() {
            put()?;
        }
        post_piece(target, number, length, stream, false)?;
        if !session.is_synchronous() {
            put()?;
        }
    }
    Ok(())
}

/// Sends a copy whose source may change when this returns.
///
/// # Safety
/// `source` must be readable.
unsafe fn send_now(
    destination: DeviceLocation,
    source: HostRegion,
    stream: &StreamState,
    mode: Mode,
) -> Result<(), CUresult> {
    let session = session::of(stream.context)?;
    registered::note(session, &source);
    let _bar = session.watch_upload(source.bytes());
    let plan = plan(session, source.bytes());
    let parts: Vec<_> = pieces(destination, source, plan.buffer_bytes, Some(Direction::ToDevice)).collect();
    let commands = parts.len() as u64;
    let is_waited_for = mode == Mode::Synchronous;
    let publication =
        if is_waited_for { Publication::of_pieces(session, &destination, stream, commands) } else { None };
    let mut left = commands;
    let post = |number: u64, (target, part): &Part| {
        left -= 1;
        post_piece(*target, number, part.bytes(), stream, left == 0 && publication.is_some())
    };
    // A synchronous copy waits for the peer anyway; of an asynchronous one the source may change as soon as
    // it returns.
    let options = TransferOptions {
        steady: is_waited_for,
        spread: is_waited_for,
        ..TransferOptions::planned(&plan, stream.id)
    };
    let numbered = parts.into_iter().map(|part| (device::fresh(), part));
    // SAFETY: the caller has the source readable, and it is held only as long as this function runs.
    let held = unsafe { send_pieces(session, numbered, &plan, options, post) }?;
    if is_waited_for {
        // Until the bytes are known to have come, what a lane loses can be sent again.
        if !publication.is_some_and(|publication| publication.end(commands)) {
            stream.synchronize()?;
        }
        held.into_iter().for_each(Sending::on_response);
    }
    Ok(())
}

/// Sends pieces, of which the plan says how many are under way at a time, and waits until their bytes have
/// left the program's memory. What is returned still relies on that memory. `post` sends the command of a
/// piece.
///
/// # Safety
/// The pieces must be readable until the result has been dropped.
unsafe fn send_pieces(
    session: &Session,
    pieces: impl Iterator<Item = (u64, Part)>,
    plan: &Plan,
    options: TransferOptions,
    mut post: impl FnMut(u64, &Part) -> Result<(), CUresult>,
) -> Result<Vec<Sending>, CUresult> {
    let mut held = Vec::new();
    // A transfer stands before the buffer that it sends, so that it is dropped first.
    let mut in_flight: VecDeque<(Sending, Option<Vec<u8>>)> = VecDeque::new();
    let mut spare = Vec::new();
    let mut leave = |(sending, buffer): (Sending, Option<Vec<u8>>)| {
        let left = sending.wait().map_err(|_| LOST);
        match buffer {
            None => held.push(sending),
            Some(buffer) => {
                drop(sending);
                spare.push(buffer);
            }
        }
        left.map(|()| spare.pop())
    };
    for (number, part) in pieces {
        let mut free = None;
        if in_flight.len() >= plan.buffers
            && let Some(oldest) = in_flight.pop_front()
        {
            free = leave(oldest)?;
        }
        // A posted copy that is waited for must have its bytes on their way before it is. In shared memory
        // they are there as soon as they have been sent, so that the server need not put the command aside
        // until they come.
        let is_posted_first = !session.is_synchronous() && !session.shares_memory();
        if is_posted_first {
            post(number, &part)?;
        }
        let region = part.1;
        let buffer = (!region.is_contiguous()).then(|| {
            let mut buffer = free.unwrap_or_default();
            // SAFETY: the caller has the region readable.
            unsafe { region.pack_into(&mut buffer, plan.threads) };
            buffer
        });
        let start = buffer.as_ref().map_or(region.address.cast_const(), |buffer| buffer.as_ptr());
        // SAFETY: the caller has the piece readable; a buffer is kept, unchanged, until the transfer has been
        // dropped.
        let started = unsafe { session.link().begin_transfer(number, start, region.bytes(), options) };
        let started = started.map_err(|_| LOST)?;
        if !is_posted_first {
            started.wait().map_err(|_| LOST)?;
            post(number, &part)?;
            // The device copies this piece while the next one is read.
            session.link().flush().map_err(|_| LOST)?;
        }
        in_flight.push_back((started, buffer));
    }
    while let Some(oldest) = in_flight.pop_front() {
        leave(oldest)?;
    }
    Ok(held)
}

/// Lets the stream tell us when it reaches the copy, and reads the source then.
///
/// # Safety
/// `source` must be readable until the stream has passed the copy.
unsafe fn read_later(
    destination: DeviceLocation,
    source: HostRegion,
    stream: &StreamState,
) -> Result<(), CUresult> {
    let session = session::of(stream.context)?;
    registered::note(session, &source);
    mirrored::note_unknown();
    let plan = plan(session, source.bytes());
    let options = TransferOptions::planned(&plan, stream.id);
    let numbered: Vec<_> = pieces(destination, source, plan.buffer_bytes, Some(Direction::ToDevice))
        .map(|part| (device::fresh(), part))
        .collect();
    let mut later = numbered.clone();
    // Whoever frees the memory waits for this.
    let (start, end) = source.span();
    let reading = Reading::of(start, end);
    let send = Box::new(move |outcome: Result<(), CUresult>| {
        mirrored::note_unknown();
        let mut blank = Vec::new();
        if outcome.is_err() {
            // The program may have the memory back, and the server's commands wait for bytes, whichever.
            blank.resize(later.iter().map(|(_, part)| part.1.bytes()).max().unwrap_or(0), 0_u8);
            for (_, (_, region)) in &mut later {
                *region = HostRegion::linear(blank.as_mut_ptr(), region.bytes());
            }
        }
        // SAFETY: the stream has not passed the copy yet, so the source is readable; or else the vector is, which
        // outlives the call. An error means that the link is lost, which every call reports.
        let _ = unsafe { send_pieces(session, later.into_iter(), &plan, options, |_, _| Ok(())) };
        drop(reading);
    });
    let task = Task::Access { run: send, after: stream.pending_writes() };
    let token = callbacks::register(stream.context.server(), task)?;
    let resumed = calls::host_function { stream: stream.handle, token };
    send::post_in(stream.context, &resumed).inspect_err(|_| callbacks::forget(token))?;
    for (number, (target, part)) in numbered {
        post_piece(target, number, part.bytes(), stream, false)?;
    }
    Ok(())
}

/// How many commands may be unfinished before a copy that is published. The server holds a copy back, and
/// publishes it later, when its stream has more commands than the driver takes.
const MAX_UNFINISHED_COMMANDS: u64 = 400;

/// Whether a synchronous copy to this place may be published. An address that we do not know is judged by the
/// server, and the caller must hear of it.
pub(super) fn can_publish(destination: &DeviceLocation) -> bool {
    let is_known = match destination {
        DeviceLocation::Memory(region) => virtual_memory::is_writable(region.address),
        DeviceLocation::Array(part) => array::element_bytes(part.array).is_some(),
    };
    is_known && !session::are_several() && !exchange::is_used()
}

/// Whether the stream takes a published copy of so many commands.
pub(super) fn has_capacity(stream: &StreamState, commands: u64) -> bool {
    stream.unfinished() + commands <= MAX_UNFINISHED_COMMANDS
}

/// A copy that is being published where nothing but such copies is under way.
pub(super) struct Publication {
    context: Arc<ContextState>,
    /// The session's newest sequence number before the copy's.
    before: u64,
}

impl Publication {
    /// A copy in `stream` begins; nothing if anything else is under way in its context.
    pub fn begin(stream: &StreamState) -> Option<Self> {
        let context = context::state(stream.context).ok()?;
        // In this order: whatever is queued from now on has a newer sequence number.
        let before = completion::sequence_numbers(stream.context.server()).newest();
        context.has_only_published().then_some(Self { context, before })
    }

    /// The same for a long copy of so many commands, where it is to be published.
    pub fn of_pieces(
        session: &Session,
        destination: &DeviceLocation,
        stream: &StreamState,
        commands: u64,
    ) -> Option<Self> {
        let can_return_early = session.shares_memory() && !session.is_synchronous();
        if can_return_early && can_publish(destination) && has_capacity(stream, commands) {
            Self::begin(stream)
        } else {
            None
        }
    }

    /// The copy's commands have been sent by this thread, the last one as published. Whether that is all that
    /// was queued: what another thread may have put between them has to be waited for.
    pub fn end(self, commands: u64) -> bool {
        let newest = completion::of_thread();
        let is_all = newest == self.before + commands;
        if is_all {
            self.context.publish(newest);
        }
        is_all
    }
}
