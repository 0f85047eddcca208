//! The sessions with servers: opening them, and sending commands.
//!
//! A program has one session for each server that it names, opened by `cuInit`, never before. They are never
//! freed: destructors of the program call us after everything else is gone. A context belongs to a session
//! and its handle says to which, so that every command finds its way by the context that it names anyway.
//! What a session has of its own is in [`Session`]: link, replies, errors, sequence numbers, plans for
//! copies. Everything else of this library is the program's: its objects know their context, and with it
//! their session.

pub mod connect;
pub mod faults;
pub mod fork;
mod progress;
mod receive;
mod replies;

use crate::call_gate;
use crate::files;
use crate::locks::{Mutex, must_be_free, rank, waits_for_server};
use crate::log::{error, info};
use crate::model::completion::SequenceNumbers;
use crate::model::{context, device};
use crate::remote::callbacks::SessionCallbacks;
use crate::remote::plans::Plans;
use crate::statistics::{self, Carried};
use crate::trace::{self, Category};
use causeway_access::Target;
use causeway_api::calls::{Call, Opcode};
use causeway_api::handle::{Context, Handle, MAX_SERVERS};
use causeway_api::snapshot::Snapshot;
use causeway_api::sys::CUresult;
use causeway_config::read::PROCESS;
use causeway_config::table::STATS;
use causeway_link::{Link, Reason, Relocations, SharedReceiver, TransferOptions, TransportChoice};
use causeway_memory::SealedMemory;
use causeway_wire::codec::{DecodeError, Decoder, Encode};
use causeway_wire::handshake::{LaneToken, Locality, SessionId};
use causeway_wire::message::{ClientMessage, CommandHead, begin_command};
use causeway_wire::text::Printable;
use core::cell::Cell;
use faults::{Faults, LOST};
use progress::Upload;
use replies::{CommonCommands, Replies};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// An open session.
pub struct Session {
    /// Its server's place among those that the program names.
    server: usize,
    /// Where the server is.
    pub(crate) target: Target,
    /// Its name for other servers: the address at which it was reached, as they look up no names.
    pub(crate) address: String,
    /// What the user wants to carry calls and copies.
    pub(crate) via: TransportChoice,
    /// How it is reached from its own host.
    pub(crate) locality: Locality,
    link: Link,
    /// Where its connections are dialled, when it moves.
    relocations: Arc<Relocations>,
    /// Who hears from it.
    pub(crate) callbacks: &'static dyn SessionCallbacks,
    /// Why the modules of the fabric that are not in use are not.
    reasons: Vec<Reason>,
    receiver: SharedReceiver,
    replies: Replies,
    /// What both ends have of the commands.
    commands: CommonCommands,
    faults: Faults,
    /// The sequence numbers of its commands.
    sequence_numbers: &'static SequenceNumbers,
    /// How copies are cut and carried.
    pub plans: Plans,
    /// The state of the server's driver when the session was opened.
    pub snapshot: Snapshot,
    /// Its number, and the secret by which it is known to be this program's.
    identity: (SessionId, LaneToken),
    /// Whether its server can give a fork of this process a session.
    can_fork: bool,
    /// Whether every command is waited for.
    synchronous: bool,
    /// Whether a launch returns only when its kernel is done (`CUDA_LAUNCH_BLOCKING`).
    pub launches_wait: bool,
    started: Instant,
    /// Held while the command of a copy from a device is queued, so that such copies are known in the
    /// order of their commands.
    pub copies_from_device: Mutex<rank::CopiesFromDevice, ()>,
    /// Whether network cards reach the devices' memory.
    direct: Direct,
    /// Why it is lost, once that has been said.
    end: OnceLock<String>,
    /// The round trips that opening it took.
    opening: Vec<&'static str>,
}

/// Whether the server's network card reads what this process exposes straight into the memory of devices.
#[derive(Default)]
struct Direct {
    is_on: AtomicBool,
    /// What the server says of it.
    text: Mutex<rank::GpuDirectText, Printable>,
}

impl Direct {
    fn set(&self, is_on: bool, text: Printable) {
        info!("copies of this session: {text}");
        *self.text.lock() = text;
        self.is_on.store(is_on, Ordering::Relaxed);
    }
}

/// By server. All of them are there from the end of `cuInit` on.
static SESSIONS: [AtomicPtr<Session>; MAX_SERVERS] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_SERVERS];

/// The session with a server.
#[inline]
pub fn with(server: usize) -> Result<&'static Session, CUresult> {
    let pointer = SESSIONS[server].load(Ordering::Acquire);
    // SAFETY: the pointer is null or came from `Box::leak` and is never freed.
    unsafe { pointer.as_ref() }.ok_or(CUresult::CUDA_ERROR_NOT_INITIALIZED)
}

/// The session of a context; null handles have one, too.
#[inline]
pub fn of(context: Handle<Context>) -> Result<&'static Session, CUresult> {
    with(context.server())
}

/// The session of the calling thread's current context; the first one when there is none.
#[inline]
pub fn current() -> Result<&'static Session, CUresult> {
    of(context::current_or_none())
}

/// Whether the program has more than one.
#[inline]
pub fn are_several() -> bool {
    !SESSIONS[1].load(Ordering::Relaxed).is_null()
}

/// Every session, in the order in which the program names the servers.
pub fn all() -> impl Iterator<Item = &'static Session> {
    (0..MAX_SERVERS).map_while(|server| with(server).ok())
}

/// Says at compile time that a command needs nothing before it: neither captures nor memory with a mirror
/// have a say.
const fn needs_nothing_before(opcode: Opcode) {
    assert!(
        !opcode.concerns_captures() && !opcode.is_in_stream(),
        "a command for a stream goes through `submit::send`"
    );
}

/// Sends a command of `context` that needs nothing before it, without waiting for its outcome.
pub fn post_in<C: Call<Reply = ()>>(context: Handle<Context>, request: &C) -> Result<(), CUresult> {
    const { needs_nothing_before(C::OPCODE) };
    let session = of(context)?;
    if session.synchronous {
        return call_in(context, request);
    }
    session.faults.check()?;
    session.append(context, request, || ())
}

/// Sends a command of `context` that needs nothing before it and waits for its reply.
pub fn call_in<C: Call>(context: Handle<Context>, request: &C) -> Result<C::Reply, CUresult> {
    call_reading(context, request, |input| input.value())
}

/// Sends a command of `context` that needs nothing before it, waits for its reply and lets `read` take the
/// results from it.
pub fn call_reading<C: Call, R>(
    context: Handle<Context>,
    request: &C,
    read: impl FnOnce(&mut Decoder<'_>) -> Result<R, DecodeError>,
) -> Result<R, CUresult> {
    const { needs_nothing_before(C::OPCODE) };
    let session = of(context)?;
    session.faults.take()?;
    session.call(context, request, read)
}

/// The number of the calling thread, counted from 1.
fn thread_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local! {
        static NUMBER: Cell<u32> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

impl Session {
    /// Its server's place among those that the program names, from 0.
    pub fn server(&self) -> usize {
        self.server
    }

    /// Queues a command without waiting for it; [`faults`](Self::faults) have been looked at, and what
    /// it needs is before it. `on_queued` is called when it has its place, before any later command gets its
    /// own. It may not use the link.
    #[inline]
    pub fn append<C: Call<Reply = ()>>(
        &self,
        context: Handle<Context>,
        request: &C,
        on_queued: impl FnOnce(),
    ) -> Result<(), CUresult> {
        must_be_free::<rank::MirroredRegions>();
        self.commands.must_have(C::OPCODE, &self.target)?;
        statistics::mark(Carried::Posted);
        let encode = |out: &mut Vec<u8>| {
            self.encode(out, 0, context, request);
            on_queued();
        };
        self.link.append(encode).map_err(|_| LOST)
    }

    /// Sends a command, waits for its reply and lets `read` take the results from it;
    /// [`faults`](Self::faults) have been taken, and what it needs is before it.
    ///
    /// An error of an earlier posted call is reported here: before the command is sent when it is known by
    /// then, and after the reply when the command has no results or failed. So a command that made something
    /// is not forgotten.
    pub fn call<C: Call, R>(
        &self,
        context: Handle<Context>,
        request: &C,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<R, DecodeError>,
    ) -> Result<R, CUresult> {
        // A thread that waits reads the link, and ends the transfers that it finds there.
        if self.synchronous {
            must_be_free::<rank::MirroredRegions>();
        } else {
            waits_for_server();
        }
        self.commands.must_have(C::OPCODE, &self.target)?;
        statistics::mark(Carried::Called);
        let waiting = self.replies.expect();
        // The link may have been lost before this call could be failed with all the others.
        self.faults.check()?;
        self.link.send(|out| self.encode(out, waiting.number(), context, request)).map_err(|_| LOST)?;
        let started = trace::begin();
        let wait = statistics::begin_wait(C::OPCODE.name());
        self.look_for_reply(&waiting);
        let result = waiting.wait(|status, payload| match status {
            CUresult::CUDA_SUCCESS => read(&mut Decoder::new(payload)).map_err(|cause| {
                error!("the reply to {} is malformed: {cause}", C::OPCODE.name());
                CUresult::CUDA_ERROR_UNKNOWN
            }),
            failure => Err(failure),
        });
        drop(wait);
        trace::end(C::OPCODE.name(), Category::Wait, started);
        if let Err(status) = result
            && faults::is_sticky(status)
        {
            self.faults.record(status);
        }
        if result.is_err() || size_of::<R>() == 0 {
            self.faults.take()?;
        }
        result
    }

    /// Appends a command to the link's batch.
    fn encode<C: Call>(&self, out: &mut Vec<u8>, call: u32, context: Handle<Context>, request: &C) {
        let thread = thread_number();
        let head = CommandHead { call, thread, context: context.value(), opcode: C::OPCODE as u16 };
        self.sequence_numbers.note(context, request, call == 0);
        let open = begin_command(out, &head);
        request.encode(out);
        open.finish(out);
    }

    /// The link to the worker.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Why it is lost, if it is.
    fn reason(&self) -> Option<&str> {
        self.end.get().map(String::as_str)
    }

    /// The errors that wait to be reported.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Whether every command is waited for (`CAUSEWAY_SYNC`).
    pub fn is_synchronous(&self) -> bool {
        self.synchronous
    }

    /// Sends every command appended so far on its way now.
    pub fn flush(&self) -> Result<(), CUresult> {
        self.link.flush().map_err(|_| LOST)
    }

    /// Sends bulk bytes for a command that names the transfer.
    ///
    /// # Safety
    /// `pointer` must be readable for `length` bytes; other threads may write to them.
    pub unsafe fn send_transfer(
        &self,
        transfer: u64,
        pointer: *const u8,
        length: usize,
    ) -> Result<(), CUresult> {
        // SAFETY: the caller has `length` bytes readable at `pointer` until this returns, which is after the
        // transfer.
        let sending =
            unsafe { self.link.begin_transfer(transfer, pointer, length, TransferOptions::default()) };
        sending.and_then(|sending| sending.wait()).map_err(|_| LOST)
    }

    /// How calls and copies get to the server, for the counts.
    fn path(&self) -> statistics::ServerPath<'_> {
        statistics::ServerPath {
            via: self.link.kind(),
            reasons: &self.reasons,
            link: self.link.counters(),
            opening: &self.opening,
            backend: &self.snapshot.backend,
            pipeline: self.plans.source(),
            gpudirect: self.direct.text.lock().to_string(),
            started: self.started,
        }
    }

    /// Whether the server's network card reads exposed memory straight into that of devices.
    pub fn is_direct(&self) -> bool {
        self.direct.is_on.load(Ordering::Relaxed)
    }

    /// Whether memory of this process can be the worker's, too.
    pub fn shares_memory(&self) -> bool {
        self.link.passes_descriptors()
    }

    /// Hands memory to the worker, for a command that names its number.
    pub fn hand_over(&self, number: u64, memory: &SealedMemory) -> Result<(), CUresult> {
        self.link.send_descriptor(number, memory).map_err(|cause| {
            info!("cannot pass memory to the server: {cause}");
            CUresult::CUDA_ERROR_NOT_SUPPORTED
        })
    }

    /// Hands a file in memory to the worker, for a command that names its number.
    pub fn hand_over_file(&self, number: u64, file: BorrowedFd<'_>) -> Result<(), CUresult> {
        self.link.send_allocation(number, file).map_err(|cause| {
            info!("cannot pass a file to the server: {cause}");
            CUresult::CUDA_ERROR_NOT_SUPPORTED
        })
    }

    /// Whether the server knows a command.
    pub fn knows(&self, opcode: Opcode) -> bool {
        self.commands.has(opcode)
    }

    /// Shows how an upload of `bytes` gets on, while the result lives; for uploads and terminals that merit
    /// it.
    pub fn watch_upload(&self, bytes: usize) -> Option<Upload> {
        Upload::watch(&self.link, bytes as u64)
    }
}

/// Ends the sessions when the process ends.
pub fn close() {
    if let Ok(first) = with(0) {
        first.callbacks.before_end();
    }
    if trace::is_on() {
        trace::write(&all().map(|session| session.target.to_string()).collect::<Vec<_>>());
    }
    for session in all() {
        if session.link.is_lost() {
            // The thread that noticed may not have come to say so.
            session.lose(format_args!("the connection to the server is lost"));
        }
        // Errors have nobody left to go to: the worker notices the end of the connection all the same.
        let _ = session.link.send(|out| ClientMessage::Goodbye.encode(out));
        session.link.close();
    }
    if let Some(path) = PROCESS.path(&STATS) {
        let path = statistics::file_of(&path, std::process::id());
        if let Err(cause) = files::write(&path, &report()) {
            error!("cannot write the counts to {} (CAUSEWAY_STATS): {cause}", path.display());
        }
    }
}

/// What has been counted so far, as JSON.
pub fn report() -> String {
    let device = device::all().first().map_or("", |device| device.info.name.as_str());
    let servers: Vec<_> = all().map(Session::path).collect();
    statistics::report(device, &servers, &statistics::between_servers())
}

/// Lets go of the connections in a forked child, which shares them with its parent.
pub fn abandon_after_fork() {
    call_gate::after_fork();
    all().for_each(|session| session.link.abandon_after_fork());
}
